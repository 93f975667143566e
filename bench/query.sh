#!/usr/bin/env bash
# Thirty panels of a usual dashboard over 1, 6 and 24 h, on Takt and on Debian's Prometheus. Both have the same samples in
# sealed blocks: the captured page of a node with 8 stand-in GPUs, as NODES (30) different nodes, over HOURS (24), with a
# sample each STEP (15) seconds. KEEP=DIR keeps the data there for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${NODES:-30} hours=${HOURS:-24} step=${STEP:-15}
bin=${CARGO_TARGET_DIR:-target}/release
for program in prometheus promtool python3; do
	command -v "$program" >/dev/null || { echo "bench: needs $program; scripts/test-deps.sh" >&2; exit 1; }
done
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
[ -x "$bin/examples/history" ] || cargo build --release "${features[@]}" --locked -q -p takt-store --example history
scratch=${KEEP:-$(mktemp -d)}
pids=()
end_all() {
	[ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
	wait
	[ -n "${KEEP:-}" ] || rm -rf "$scratch"
}
trap end_all EXIT

if [ ! -e "$scratch/end" ]; then
	end=$(($(date +%s) / 60 * 60 - 60))
	mkdir -p "$scratch/text" "$scratch/prometheus"
	"$bin/examples/history" "$scratch/takt" "$scratch/text" "$nodes" "$hours" "$step" "$end"
	for text in "$scratch"/text/*.om; do
		promtool tsdb create-blocks-from openmetrics "$text" "$scratch/prometheus" >/dev/null
		rm "$text"
	done
	echo "$end" >"$scratch/end"
fi
end=$(cat "$scratch/end")

echo 'global: {}' >"$scratch/prometheus.yml"
prometheus --config.file="$scratch/prometheus.yml" --storage.tsdb.path="$scratch/prometheus" \
	--storage.tsdb.retention.time=10y --web.listen-address=127.0.0.1:19190 >"$scratch/prometheus.log" 2>&1 &
pids+=($!)
cat >"$scratch/takt.toml" <<-TOML
	[server]
	listen_address = "127.0.0.1:19191"
	[sql]
	listen_address = ""
	[jobs]
	poll = false
	[alerts]
	enabled = false
TOML
"$bin/takt" serve --config "$scratch/takt.toml" --data-dir "$scratch/takt" >"$scratch/takt.log" 2>&1 &
pids+=($!)
for url in http://127.0.0.1:19190 http://127.0.0.1:19191; do
	for _ in $(seq 600); do curl -fs "$url/-/ready" >/dev/null && break; sleep 0.1; done
done
# Both compact their blocks first.
python3 bench/query.py settle "${pids[@]}"
du -sm "$scratch/takt" "$scratch/prometheus" | sed "s|$scratch/||; s/^/MiB on disk: /"
python3 bench/query.py ask "$end" "prometheus=http://127.0.0.1:19190=${pids[0]}" "takt=http://127.0.0.1:19191=${pids[1]}"
