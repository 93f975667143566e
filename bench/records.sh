#!/usr/bin/env bash
# A million job records: import, second import, and the monthly report over all of them.
#
# JOBS names a file as `sacct -P` prints it (gzip or plain) whose ids may be shifted to repeat it; the default is the
# RICC log in the shared data, every job of which lies in one month.
set -euo pipefail
cd "$(dirname "$0")/.."

jobs=${JOBS:-${TAKT_SHARED:-../shared}/data/ricc-2010-05/sacct-2010-05.txt.gz}
month=${MONTH:-2010-05} zone=${ZONE:-Asia/Tokyo} rows=${ROWS:-1000000}
takt=${CARGO_TARGET_DIR:-target}/release/takt
[ -e "$jobs" ] || { echo "bench: $jobs is not there (JOBS names another file)" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

{ gzip -dcf "$jobs" | head -1 || true; } >"$scratch/jobs.txt"
gzip -dcf "$jobs" | tail -n +2 >"$scratch/once.txt"
copies=$(((rows + $(wc -l <"$scratch/once.txt") - 1) / $(wc -l <"$scratch/once.txt")))
for ((n = 0; n < copies; n++)); do
	awk -v shift=$((n * 100000)) 'BEGIN{FS=OFS="|"} {$1 += shift; print}' "$scratch/once.txt"
done | head -n "$rows" >>"$scratch/jobs.txt" || true

timed() { # NAME COMMAND…
	local name=$1 begun ended
	shift
	begun=$(date +%s.%N)
	"$@" >/dev/null
	ended=$(date +%s.%N)
	awk -v n="$name" -v a="$begun" -v b="$ended" 'BEGIN{printf "%-34s %6.2f s\n", n, b - a}'
}
export TAKT_DATA_DIR=$scratch/data
timed "import of $rows rows" "$takt" import sacct "$scratch/jobs.txt" --timezone "$zone" --cluster bench
timed "the same again" "$takt" import sacct "$scratch/jobs.txt" --timezone "$zone" --cluster bench
for _ in 1 2 3; do timed "report of the month, by user" "$takt" report usage --month "$month"; done
timed "report by user,account,partition" "$takt" report usage --month "$month" --by user,account,partition
