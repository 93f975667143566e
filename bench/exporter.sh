#!/usr/bin/env bash
# CPU and memory of the exporter beside node_exporter's, on the same machine at the same time; then the cost of a hung
# mount, of a hung driver and of a fault in the kernel log.
#
# Each is scraped once a second, SCRAPES times, without compression. CPU is the time on a CPU of all threads, in nanoseconds
# (`/proc/PID/task/*/schedstat`), over the scrapes; memory is the resident memory at the end. The hung mount needs root.
#
# The peer is $NODE_EXPORTER, else node_exporter 1.12.1 built by scripts/peers.sh, else the installed one.
set -euo pipefail
cd "$(dirname "$0")/.."

scrapes=${SCRAPES:-120}
bin=$(realpath "${CARGO_TARGET_DIR:-target}/release")
peer=${NODE_EXPORTER:-}
if [ -z "$peer" ] && command -v go >/dev/null; then
	peer=$(scripts/peers.sh node_exporter)/node_exporter-1.12.1 || true
	[ -x "$peer" ] || peer=
fi
: "${peer:=$(command -v prometheus-node-exporter || command -v node_exporter || true)}"
[ -n "$peer" ] || { echo "bench: no node_exporter: set NODE_EXPORTER, or install Go or prometheus-node-exporter" >&2; exit 1; }
both="arp bcache bonding btrfs conntrack cpu cpufreq diskstats dmi edac entropy fibrechannel filefd filesystem hwmon infiniband ipvs loadavg mdadm meminfo
	netclass netdev netstat nfs nfsd nvme os powersupplyclass pressure rapl schedstat selinux sockstat softnet stat tapestats
	thermal_zone time timex udp_queues uname vmstat xfs zfs"
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; sleep 0.5; rm -rf "$scratch"' EXIT

# Six consecutive ports that are probably free.
port=$((20000 + $$ % 10000))
flags=(--collector.disable-defaults)
for name in $both; do flags+=("--collector.$name"); done
"$peer" --web.listen-address=127.0.0.1:$port "${flags[@]}" >"$scratch/peer.log" 2>&1 &
peer_pid=$!
"$bin/takt-exporter" --web.listen-address=127.0.0.1:$((port + 1)) "${flags[@]}" >"$scratch/ours.log" 2>&1 &
our_pid=$!
"$peer" --web.listen-address=127.0.0.1:$((port + 4)) >"$scratch/peer-defaults.log" 2>&1 &
peer_defaults_pid=$!
"$bin/takt-exporter" --web.listen-address=127.0.0.1:$((port + 5)) >"$scratch/our-defaults.log" 2>&1 &
our_defaults_pid=$!
gpus='profile rtx5090 8\n'
printf "$gpus" >"$scratch/gpus.txt"
: >"$scratch/kmsg"
NVML_STAND_IN_SCRIPT=$scratch/gpus.txt "$bin/takt-exporter" --web.listen-address=127.0.0.1:$((port + 2)) --collector.meminfo_numa \
	--nvml.library "$bin/libnvml_stand_in.so" --path.kmsg "$scratch/kmsg" --state-directory "$scratch/state" \
	>"$scratch/all.log" 2>&1 &
all_pid=$!
if [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ]; then
	mkdir -p "$scratch/hangs" "$scratch/proc/1"
	cp -r /proc/{loadavg,meminfo,stat,vmstat,diskstats} "$scratch/proc/"
	{ cat /proc/mounts; echo "nowhere $scratch/hangs fuse.nowhere rw 0 0"; } >"$scratch/proc/1/mounts"
	printf "${gpus}sleep nvmlDeviceGetTemperature 30000\n" >"$scratch/hung.txt"
	NVML_STAND_IN_SCRIPT=$scratch/hung.txt unshare -m --propagation private python3 bench/hang.py "$scratch/hangs" \
		"$bin/takt-exporter" --web.listen-address=127.0.0.1:$((port + 3)) --path.procfs "$scratch/proc" \
		--nvml.library "$bin/libnvml_stand_in.so" >"$scratch/hung.log" 2>&1 &
fi
sleep 3

# Nanoseconds on a CPU. The time of an ended thread is lost; neither exporter ends threads.
cpu() { cat /proc/"$1"/task/*/schedstat | awk '{sum += $1} END {print sum}'; }
resident() { awk '/^VmRSS:/{print $2}' "/proc/$1/status"; }
scrape() { curl -s -o /dev/null -w '%{time_total}\n' -H 'Accept-Encoding: identity' "http://127.0.0.1:$1/metrics"; }
percentile() { sort -n "$1" | awk -v p="$2" '{t[NR]=$1} END{i=int(NR*p); print t[i<1?1:i]*1000}'; }

peer_before=$(cpu $peer_pid) our_before=$(cpu $our_pid) all_before=$(cpu $all_pid)
peer_defaults_before=$(cpu $peer_defaults_pid) our_defaults_before=$(cpu $our_defaults_pid)
for ((n = 0; n < scrapes; n++)); do
	scrape $port >>"$scratch/peer.times"
	scrape $((port + 1)) >>"$scratch/ours.times"
	scrape $((port + 2)) >>"$scratch/all.times"
	scrape $((port + 4)) >>"$scratch/peer-defaults.times"
	scrape $((port + 5)) >>"$scratch/our-defaults.times"
	[ ! -e "$scratch/hung.log" ] || scrape $((port + 3)) >>"$scratch/hung.times"
	sleep 1
done

row() { # NAME PID CPU-BEFORE TIMES
	awk -v n="$1" -v c=$(($(cpu "$2") - $3)) -v s="$scrapes" -v r="$(resident "$2")" \
		-v m="$(percentile "$4" 0.5)" -v p="$(percentile "$4" 0.99)" \
		'BEGIN{printf "%-34s %8.3f ms CPU a scrape %8.1f MB resident %8.2f ms p50 %8.2f ms p99\n", n, c/1e6/s, r/1024, m, p}'
}
ratio() { # NAME OURS BEFORE THEIRS BEFORE
	awk -v n="$1" -v a=$(($(cpu "$2") - $3)) -v b=$(($(cpu "$4") - $5)) \
		'BEGIN{printf "CPU, ours to node_exporter, %s: %.2f\n", n, a/(b>0?b:1)}'
}
row "node_exporter, what both have" $peer_pid "$peer_before" "$scratch/peer.times"
row "takt-exporter, the same" $our_pid "$our_before" "$scratch/ours.times"
row "node_exporter, defaults" $peer_defaults_pid "$peer_defaults_before" "$scratch/peer-defaults.times"
row "takt-exporter, defaults" $our_defaults_pid "$our_defaults_before" "$scratch/our-defaults.times"
row "takt-exporter, all and 8 GPUs" $all_pid "$all_before" "$scratch/all.times"
ratio "what both have" $our_pid "$our_before" $peer_pid "$peer_before"
ratio "defaults" $our_defaults_pid "$our_defaults_before" $peer_defaults_pid "$peer_defaults_before"
[ ! -e "$scratch/hung.times" ] ||
	printf '%-34s %8.2f ms p50 %17.2f ms p99\n' "while a mount and NVML hang" \
		"$(percentile "$scratch/hung.times" 0.5)" "$(percentile "$scratch/hung.times" 0.99)"
python3 bench/events.py 127.0.0.1:$((port + 2)) "$scratch/kmsg" "${FAULTS:-300}"
ls -l "$bin/takt-exporter" | awk '{printf "%-34s %8.1f MB on disk\n", "takt-exporter", $5/1048576}'
