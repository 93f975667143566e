#!/usr/bin/env bash
# Jobs judged from the samples of their nodes, and the month's reports. NODES, DAYS, JOBS and INTERVAL (seconds between
# samples) say how much: 30 30 10000 15 is the month of a lab, which is for sealed blocks; unsealed samples are scanned
# for every run.
set -euo pipefail
cd "$(dirname "$0")/.."

features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
takt=${CARGO_TARGET_DIR:-target}/release/takt scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo run --release "${features[@]}" --locked -q -p takt-collector --example efficiency -- \
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
