#!/usr/bin/env bash
# Prints the exporter's values of simulated hardware beside those of smartctl and ipmitool: Debian's kernel under QEMU,
# with QEMU's NVMe and SATA disks and BMC and the kernel's scsi_debug. For review by eye; this is not a test.
#
# Needs: qemu-system-x86 busybox-static cpio kmod smartmontools ipmitool, the exporter built, and a Debian that has a package
# of its kernel (fetched by apt-get download). KVM is optional (ACCEL=kvm).
set -euo pipefail
cd "$(dirname "$0")/.."
exporter=${CARGO_TARGET_DIR:-target}/release/takt-exporter
[ -x "$exporter" ] || { echo "hardware-in-qemu: no $exporter; make build" >&2; exit 2; }
for program in qemu-system-x86_64 busybox cpio depmod smartctl ipmitool; do
	PATH=$PATH:/sbin:/usr/sbin command -v $program >/dev/null || { echo "hardware-in-qemu: no $program" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
(cd "$work" && chmod 755 . && apt-get download -qq "$package" && dpkg-deb -x ./*.deb kernel)
version=${package#linux-image-}
modules=lib/modules/$version
mkdir -p "$root"/{bin,sbin,proc,sys,dev,tmp,etc} "$root/$modules/kernel/drivers/char"
for part in ata scsi nvme acpi char/ipmi; do
	cp -r "$work/kernel/$modules/kernel/drivers/$part" "$root/$modules/kernel/drivers/$part"
done
cp -r "$work/kernel/$modules/kernel"/{crypto,lib,block,arch} "$root/$modules/kernel/"
cp "$work/kernel/$modules"/modules.{builtin,order} "$root/$modules/"
PATH=$PATH:/sbin:/usr/sbin depmod -b "$root" "$version" 2>/dev/null

put() { # PROGRAM: it and its libraries
	local path
	path=$(PATH=$PATH:/sbin:/usr/sbin command -v "$1" || realpath "$1")
	cp "$path" "$root/bin/"
	ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$root$(dirname "$library")"
		cp -Ln "$library" "$root$library"
	done
}
cp "$(command -v busybox)" "$root/bin/"
for name in sh mount cat sleep modprobe wget grep ifconfig mkdir kill poweroff sort; do ln -s busybox "$root/bin/$name"; done
for program in smartctl ipmitool "$exporter"; do put "$program"; done

cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin:/sbin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
echo 1 >/proc/sys/kernel/printk; ifconfig lo 127.0.0.1 up
for module in ahci sd_mod nvme ipmi_si ipmi_devintf; do modprobe $module; done
modprobe scsi_debug dev_size_mb=8
sleep 2
# scsi_debug claims an ATA disk behind it and has none: the exporter gets a sysfs without that page.
for disk in sda sdb; do mkdir -p /tmp/sys/block/$disk/device; cat /sys/block/$disk/device/vendor >/tmp/sys/block/$disk/device/vendor; done
mkdir -p /tmp/sys/class/nvme/nvme0
page() {
	takt-exporter --web.listen-address=127.0.0.1:9855 --path.sysfs=/tmp/sys --state-directory=/tmp/state \
		--collector.disable-defaults --collector.disk_health --collector.nvme_health --collector.ipmi --collector.events 2>/tmp/log &
	sleep 8
	wget -qO- http://127.0.0.1:9855/metrics | grep '^takt_disk_\|^takt_nvme_\|^takt_ipmi_\|^node_scrape_collector_success\|kind="hardware_log"'
	kill $!; sleep 1
	grep 'WARN\|ERROR' /tmp/log
}
echo "== takt-exporter"; page
# IPMI 2.0 §31.6, Add SEL Entry: a power supply loses its input, memory fails, the node boots.
for record in '8 0x51 0x6f 3' '0x0c 0x52 0x6f 1' '0x1f 0x53 0x6f 1'; do
	ipmitool raw 0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 $record 0xff 0xff >/dev/null 2>&1
done
echo "== takt-exporter, after three records in the BMC's log"; page; grep event /tmp/state/events.jsonl
echo "== ipmitool"; ipmitool sel info 2>/dev/null; ipmitool sel list 2>/dev/null
for disk in sda sdb nvme0; do echo "== smartctl: $disk"; smartctl -H -A /dev/$disk | grep -v '^$\|^smartctl\|^Copyright'; done
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd.gz"
truncate -s 64M "$work/sata.img" "$work/nvme.img"
timeout 600 qemu-system-x86_64 -accel "${ACCEL:-tcg}" -cpu max -m 1024 -nographic -no-reboot \
	-kernel "$work/kernel/boot/vmlinuz-$version" -initrd "$work/initrd.gz" -append "console=ttyS0 panic=-1 quiet" \
	-device ahci,id=ahci -drive id=sata,file="$work/sata.img",format=raw,if=none -device ide-hd,drive=sata,bus=ahci.0 \
	-drive id=nvme,file="$work/nvme.img",format=raw,if=none -device nvme,serial=takt,drive=nvme \
	-device ipmi-bmc-sim,id=bmc -device isa-ipmi-kcs,bmc=bmc </dev/null | tr -d '\r' | sed -n '/== takt/,$p'
