#!/usr/bin/env bash
# CPU and memory of the exporter beside node_exporter's: the same collectors, the same machine, the same minutes.
#
# Each is scraped once a second, SCRAPES times, without compression. CPU is user + system time of the process over the
# scrapes; memory is what is resident at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

scrapes=${SCRAPES:-120}
bin=${CARGO_TARGET_DIR:-target}/release
peer=$(command -v prometheus-node-exporter || command -v node_exporter) ||
	{ echo "bench: prometheus-node-exporter is not installed" >&2; exit 1; }
collectors="cpu diskstats filesystem loadavg meminfo netclass netdev stat time uname"
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$scratch"' EXIT

flags=(--collector.disable-defaults)
for name in $collectors; do flags+=("--collector.$name"); done
"$peer" --web.listen-address=127.0.0.1:29100 "${flags[@]}" >"$scratch/peer.log" 2>&1 &
peer_pid=$!
"$bin/takt-exporter" --web.listen-address=127.0.0.1:29855 "${flags[@]}" >"$scratch/ours.log" 2>&1 &
our_pid=$!
printf 'profile rtx5090 8\n' >"$scratch/gpus.txt"
NVML_STAND_IN_SCRIPT=$scratch/gpus.txt "$bin/takt-exporter" --web.listen-address=127.0.0.1:29856 \
	--nvml.library "$PWD/$bin/libnvml_stand_in.so" >"$scratch/all.log" 2>&1 &
all_pid=$!
sleep 3

ticks() { local s; s=$(<"/proc/$1/stat"); set -- ${s##*) }; echo $((${12} + ${13})); }
resident() { awk '/^VmRSS:/{print $2}' "/proc/$1/status"; }
scrape() { curl -s -o /dev/null -w '%{time_total}\n' -H 'Accept-Encoding: identity' "http://127.0.0.1:$1/metrics"; }

peer_before=$(ticks $peer_pid) our_before=$(ticks $our_pid) all_before=$(ticks $all_pid)
for ((n = 0; n < scrapes; n++)); do
	scrape 29100 >>"$scratch/peer.times"
	scrape 29855 >>"$scratch/ours.times"
	scrape 29856 >>"$scratch/all.times"
	sleep 1
done

row() { # NAME PID TICKS-BEFORE TIMES
	local used=$(($(ticks "$2") - $3)) hz
	hz=$(getconf CLK_TCK)
	p99=$(sort -n "$4" | awk '{t[NR]=$1} END{i=int(NR*0.99); print t[i<1?1:i]*1000}')
	awk -v n="$1" -v c="$used" -v hz="$hz" -v s="$scrapes" -v r="$(resident "$2")" -v p="$p99" \
		'BEGIN{printf "%-34s %8.2f ms CPU a scrape %8.1f MB resident %8.2f ms p99\n", n, c*1000/hz/s, r/1024, p}'
}
row "node_exporter, ten collectors" $peer_pid "$peer_before" "$scratch/peer.times"
row "takt-exporter, the same ten" $our_pid "$our_before" "$scratch/ours.times"
row "takt-exporter, all and 8 GPUs" $all_pid "$all_before" "$scratch/all.times"
awk -v a=$(($(ticks $our_pid) - our_before)) -v b=$(($(ticks $peer_pid) - peer_before)) \
	'BEGIN{printf "CPU, ours to node_exporter: 1 to %.1f\n", b/(a>0?a:1)}'
