#!/usr/bin/env bash
# SQL queries over psql: energy by user and of each of the 10,000 jobs of a month on 30 nodes with two GPUs
# (10.7 million readings in sealed blocks), from the counters at start and end, as in docs/sql.md. KEEP=DIR keeps the data there.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${CARGO_TARGET_DIR:-target}/release
command -v psql >/dev/null || { echo "bench: needs psql; scripts/test-deps.sh" >&2; exit 1; }
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
[ -x "$bin/examples/energy" ] || cargo build --release "${features[@]}" --locked -q -p takt-store --example energy
scratch=${KEEP:-$(mktemp -d)}
server=
end_all() {
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	wait
	[ -n "${KEEP:-}" ] || rm -rf "$scratch"
}
trap end_all EXIT

if [ ! -e "$scratch/jobs.txt" ]; then
	mkdir -p "$scratch"
	"$bin/examples/energy" "$scratch/data" "$scratch/jobs.new"
	"$bin/takt" import sacct "$scratch/jobs.new" --cluster lab --timezone UTC --data-dir "$scratch/data"
	mv "$scratch/jobs.new" "$scratch/jobs.txt"
fi
cat >"$scratch/takt.toml" <<-TOML
	cluster = "lab"
	[server]
	listen_address = "127.0.0.1:19192"
	[sql]
	listen_address = "127.0.0.1:19193"
	[store]
	retention_days = 400
	[jobs]
	poll = false
	[alerts]
	enabled = false
TOML
"$bin/takt" serve --config "$scratch/takt.toml" --data-dir "$scratch/data" >"$scratch/takt.log" 2>&1 &
server=$!
for _ in $(seq 600); do curl -fs http://127.0.0.1:19192/-/ready >/dev/null && break; sleep 0.1; done
du -sm "$scratch/data/blocks" | sed 's|\s.*| MiB in blocks|'

# The first query of docs/sql.md, unchanged and with one row for each job.
by_user=$(sed -n '/^-- energy by user/,/^```/p' docs/sql.md | sed '$d')
by_job=$(printf '%s' "$by_user" | sed 's|SELECT "user", round(sum(joules) / 3.6e6, 3) AS kwh FROM used GROUP BY ALL ORDER BY kwh DESC|SELECT job_id, "user", round(sum(joules) / 3.6e6, 3) AS kwh FROM used GROUP BY ALL ORDER BY ALL|')
ask() {
	psql -X -q -h 127.0.0.1 -p 19193 -U bench -d takt -c '\timing on' -c "$2" -o /dev/null -c "$2" -c "$2" -c "$2" |
		grep -o 'Time: .*' | sed "s/^/$1: /"
}
ticks() { awk '{print ($14 + $15) * 10}' "/proc/$server/stat"; }
for query in user job; do
	sql=$by_user; [ $query = user ] || sql=$by_job
	rows=$(psql -X -q -At -h 127.0.0.1 -p 19193 -U bench -d takt -c "$sql" | wc -l)
	before=$(ticks)
	ask "energy by $query ($rows rows)" "$sql"
	echo "energy by $query: $((($(ticks) - before) / 4)) ms of CPU each"
done
