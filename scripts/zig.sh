#!/usr/bin/env bash
# Prints a folder with cargo-zigbuild, which links programs for older C libraries and other processors.
#
# pip puts a pinned version into a cache folder. Without pip, or if it cannot be fetched, this exits 3: the caller then
# builds only for this machine.
set -euo pipefail

ZIGBUILD=0.24.0
ZIGLANG=0.17.1
cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
dir=$cache/zigbuild-$ZIGBUILD-zig-$ZIGLANG
if [ ! -e "$dir/complete" ]; then
	if ! command -v python3 >/dev/null; then
		echo "zig: python3 is not installed, so cargo-zigbuild cannot be fetched" >&2
		exit 3
	fi
	echo "zig: fetching cargo-zigbuild $ZIGBUILD and ziglang $ZIGLANG" >&2
	rm -rf "$dir"
	mkdir -p "$cache"
	{ python3 -m venv "$dir" &&
		"$dir/bin/pip" install --quiet --disable-pip-version-check "cargo-zigbuild==$ZIGBUILD" "ziglang==$ZIGLANG"; } >&2 || {
		echo "zig: cargo-zigbuild cannot be fetched" >&2
		exit 3
	}
	touch "$dir/complete" # last: its presence says the folder is complete
fi
echo "$dir/bin"
