#!/usr/bin/env bash
# Efficiency of jobs from sealed samples, and monthly reports; where the Slurm lab can run, sacct over a month of as many
# jobs beside them. NODES, DAYS, JOBS and INTERVAL (seconds between samples) set the size: 30 30 10000 15 is a month of a
# small cluster, whose data take some minutes to generate.
set -euo pipefail
cd "$(dirname "$0")/.."

features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
takt=${CARGO_TARGET_DIR:-target}/release/takt scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo run --release "${features[@]}" --locked -q -p takt-server --example efficiency -- \
	"$scratch/data" "${NODES:-8}" "${DAYS:-31}" "${JOBS:-500}" "${INTERVAL:-300}"

timed() { # NAME COMMAND…
	local name=$1 begun ended
	shift
	begun=$(date +%s.%N)
	"$@" >/dev/null
	ended=$(date +%s.%N)
	awk -v n="$name" -v a="$begun" -v b="$ended" 'BEGIN{printf "%-34s %6.2f s\n", n, b - a}'
}
export TAKT_DATA_DIR=$scratch/data
month=$(date -d '-1 day' +%Y-%m)
for report in cluster waste efficiency 'user --user ada'; do
	# shellcheck disable=SC2086
	timed "report $report" "$takt" report $report --month "$month" --format html
done

lab=${TAKT_SHARED:-../shared}/slurm-lab
if [ -x "$lab/lab.sh" ] && [ "$(id -u)" = 0 ]; then
	export SLURM_LAB_DIR=$scratch/lab LAB_QUIET=1
	chmod 755 "$scratch"
	"$lab/lab.sh" up "$SLURM_LAB_DIR"
	trap '"$lab/lab.sh" down --wipe "$SLURM_LAB_DIR"; rm -rf "$scratch"' EXIT
	eval "$("$lab/lab.sh" env "$SLURM_LAB_DIR")"
	# Two months of jobs; one is queried.
	"$lab/inject.py" generate -n $((2 * ${JOBS:-500})) --months 2 >"$scratch/jobs.csv"
	"$lab/inject.py" load "$scratch/jobs.csv" >/dev/null
	fields=JobID,User,Account,State,Submit,Start,End,AllocTRES
	timed "sacct, allocations of a month" sacct -a -X -P -S 2026-09-01 -E 2026-10-01 -o "$fields"
	timed "sacct, with steps" sacct -a -P -S 2026-09-01 -E 2026-10-01 -o "$fields"
	timed "sreport UserUtilizationByAccount" sreport -P cluster UserUtilizationByAccount start=2026-09-01 end=2026-10-01
fi
