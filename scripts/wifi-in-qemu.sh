#!/usr/bin/env bash
# Compares the exporter's wireless links with node_exporter 1.12.1's on a real nl80211: Debian's kernel under QEMU with three
# simulated radios (mac80211_hwsim): an access point, its station, and an ad-hoc network. Prints the lines that differ, for
# review by eye: times and counters differ by the time between two scrapes, and docs/compatibility.md has the rest.
#
# Needs: qemu-system-x86 busybox-static cpio kmod iw hostapd, the exporter built, node_exporter 1.12.1 (scripts/peers.sh), and a
# Debian that has a package of its kernel (fetched by apt-get download). KVM is optional (ACCEL=kvm CPU=qemu64).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PATH:/sbin:/usr/sbin
exporter=${EXPORTER:-${CARGO_TARGET_DIR:-target}/release/takt-exporter}
peer=$(scripts/peers.sh node_exporter)/node_exporter-1.12.1
for program in qemu-system-x86_64 busybox cpio depmod iw hostapd "$exporter" "$peer"; do
	command -v "$program" >/dev/null || { echo "wifi-in-qemu: no $program" >&2; exit 2; }
done
work=$(mktemp -d)
trap '[ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
root=$work/root

package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
(cd "$work" && chmod 755 . && apt-get download -qq "$package" && dpkg-deb -x ./*.deb kernel)
version=${package#linux-image-}
modules=lib/modules/$version
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc} "$root/$modules/kernel/drivers/net/wireless" "$root/$modules/kernel/net"
cp -r "$work/kernel/$modules/kernel"/{crypto,lib,arch} "$root/$modules/kernel/"
cp -r "$work/kernel/$modules/kernel/net"/{mac80211,wireless,rfkill} "$root/$modules/kernel/net/"
cp -r "$work/kernel/$modules/kernel/drivers/virtio" "$root/$modules/kernel/drivers/"
find "$work/kernel/$modules" -name 'mac80211_hwsim.ko*' -exec cp {} "$root/$modules/kernel/drivers/net/wireless/" \;
cp "$work/kernel/$modules"/modules.{builtin,order} "$root/$modules/"
depmod -b "$root" "$version" 2>/dev/null

put() { # PROGRAM NAME: it and its libraries
	local path
	path=$(realpath "$(command -v "$1")")
	cp "$path" "$root/bin/$2"
	# A static program has no libraries.
	{ ldd "$path" 2>/dev/null | grep -o '/[^ ]*' || true; } | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -Ln "$library" "$root$library"
	done
}
cp "$(command -v busybox)" "$root/bin/"
for name in sh mount cat sleep modprobe wget grep ifconfig poweroff; do ln -s busybox "$root/bin/$name"; done
put iw iw
put hostapd hostapd
put "$exporter" takt-exporter
put "$peer" node_exporter
printf 'interface=wlan0\ndriver=nl80211\nssid2=P"lab \\"n\\" \\xc3\\xa4"\nutf8_ssid=1\nhw_mode=g\nchannel=6\n' >"$root/etc/hostapd.conf"

cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
echo 1 >/proc/sys/kernel/printk; ifconfig lo 127.0.0.1 up
modprobe mac80211_hwsim radios=4
for link in wlan0 wlan1 wlan2; do ifconfig $link up; done
hostapd -B /etc/hostapd.conf
sleep 2
iw dev wlan1 connect 'lab "n" ä'
iw dev wlan2 set type ibss 2>/dev/null || { ifconfig wlan2 down; iw dev wlan2 set type ibss; ifconfig wlan2 up; }
iw dev wlan2 ibss join cell 2437
sleep 6
iw dev
takt-exporter --web.listen-address=127.0.0.1:9855 --collector.disable-defaults --collector.wifi 2>/tmp/log &
node_exporter --web.listen-address=127.0.0.1:9100 --collector.disable-defaults --collector.wifi 2>/tmp/log2 &
sleep 8
for port in 9855 9100; do
	echo "== $port"
	wget -qO- http://127.0.0.1:$port/metrics | grep 'node_wifi\|collector_success'
done
cat /tmp/log | grep 'WARN\|ERROR'
echo "== end"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd.gz"
timeout 600 qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu "${CPU:-max}" -m 1024 -display none -no-reboot -serial "file:$work/log" \
	-kernel "$work/kernel/boot/vmlinuz-$version" -initrd "$work/initrd.gz" -append "console=ttyS0 panic=-1 quiet no_timer_check" \
	</dev/null
sed -i 's/\r//' "$work/log"
[ -z "${VERBOSE:-}" ] || cat "$work/log"
# Numbers in one spelling.
page() { sed -n "/^== $1/,/^==/p" "$work/log" | grep '^# \|^node_' | awk '/^node_/ { $NF = sprintf("%.12g", $NF) } 1' | sort; }
page 9855 >"$work/ours"
page 9100 >"$work/theirs"
grep -q 'node_wifi_station_info.*wlan1' "$work/theirs" || { cat "$work/log"; echo "wifi-in-qemu: no station" >&2; exit 2; }
echo "$(grep -c '^node_wifi' "$work/ours") series here, $(grep -c '^node_wifi' "$work/theirs") there; different (< there, > here):"
diff "$work/theirs" "$work/ours" | grep '^[<>]' || true
