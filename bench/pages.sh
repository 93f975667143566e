#!/usr/bin/env bash
# Time and bytes of each page for NODES nodes of eight GPUs, a week of strips and JOBS jobs of a month; then the server's
# CPU with FOLLOWERS browsers that follow the overview. The times are of the whole answer, with gzip, over loopback.
set -euo pipefail
cd "$(dirname "$0")/.."
NODES=${NODES:-300} JOBS=${JOBS:-50000} FOLLOWERS=${FOLLOWERS:-50} PORT=${PORT:-29700}
takt=${TAKT:-${CARGO_TARGET_DIR:-target}/release/takt}
base=http://127.0.0.1:$((PORT + 1))
dir=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait; rm -rf "$dir"' EXIT

python3 bench/pages.py serve "$PORT" "$NODES" & pids+=($!)
python3 bench/pages.py config "$PORT" "$NODES" >"$dir/takt.toml"
echo secret-secret-secret >"$dir/token"
mkdir "$dir/takt-data"
python3 bench/pages.py strips "$dir/takt-data" "$NODES"
python3 bench/pages.py jobs "$NODES" "$JOBS" >"$dir/jobs.txt"
"$takt" import sacct "$dir/jobs.txt" --timezone UTC --cluster lab --data-dir "$dir/takt-data" >/dev/null
"$takt" serve --config "$dir/takt.toml" --data-dir "$dir/takt-data" 2>"$dir/log" & server=$!
pids+=("$server")
until curl -sf "$base/-/ready" >/dev/null; do sleep 0.2; done
sleep 40

node=g009
gpu=$(curl -s "$base/api/takt/v1/cluster?node=$node" | jq -r '.nodes[0].gpus[0].uuid')
job=$(curl -s "$base/api/takt/v1/cluster?node=$node" | jq -r '.nodes[0].gpus[0].holders[0].job_id')
paths=$(curl -s "$base/" | sed -n '/<nav aria-label="Pages">/,/<\/nav>/p' | grep -o 'href="/[a-z]*"' | cut -d'"' -f2 | sort -u)
# The pages above leave the memory of the server.
sleep 6
ticks() { awk '{print $14 + $15}' "/proc/$server/stat"; }
# CPU milliseconds of the server for one answer: the mean of ten addresses that are not in its memory.
cpu() {
	local before separator='?'
	[[ $1 == *\?* ]] && separator='&'
	before=$(ticks)
	for at in $(seq 1001 1010); do curl -s -o /dev/null -H 'Accept-Encoding: gzip' "$base$1${2:+$separator$2$at}"; done
	echo $((($(ticks) - before) * 1000 / $(getconf CLK_TCK) / 10))
}
printf '%-42s %6s %9s %9s %7s %9s\n' page status first_ms next_ms cpu_ms gzip_bytes
for path in / $paths "/nodes/$node" "/gpus/$gpu" "/jobs/$job" /status /alerts/rules /alerts/history '/?range=7d' /api/takt/v1/cluster '/api/takt/v1/strips?by_node=true'; do
	# The server keeps a page for five seconds: the first answer renders it, the second comes from memory.
	first=$(curl -s -o /dev/null -H 'Accept-Encoding: gzip' -w '%{http_code} %{time_total} %{size_download}' "$base$path")
	next=$(curl -s -o /dev/null -H 'Accept-Encoding: gzip' -w '%{time_total}' "$base$path")
	read -r status seconds bytes <<<"$first"
	vary=limit=
	[[ $path == /api/* ]] && vary=
	printf '%-42s %6s %9.1f %9.1f %7d %9d\n' "$path" "$status" "$(jq -n "$seconds * 1000")" "$(jq -n "$next * 1000")" "$(cpu "$path" "$vary")" "$bytes"
done | awk '!seen[$1]++'

measure() {
	local before after
	before=$(ticks)
	sleep 60
	after=$(ticks)
	jq -n "($after - $before) / $(getconf CLK_TCK) / 60 * 100 | round / 100"
}
alone=$(measure)
for _ in $(seq "$FOLLOWERS"); do
	# Like the script: on each message, fetch the page if a section changed (here: always).
	(curl -sN "$base/live/" | while read -r line; do
		[[ $line == data:* ]] && curl -s -o /dev/null -H 'Accept-Encoding: gzip' "$base/"
	done) & pids+=($!)
done
sleep 5
echo "cores of the server: $alone alone, $(measure) with $FOLLOWERS browsers that follow /"
echo "first element counts: $(curl -s "$base/" | grep -o '<[a-z]' | wc -l) elements on /"
