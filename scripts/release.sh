#!/usr/bin/env bash
# Builds the programs of a release and packs them into target/dist: `make dist`.
#
# With cargo-zigbuild (scripts/zig.sh) and rustup: both programs for x86-64 and the exporter for arm64, for glibc 2.28 (RHEL
# 8 and newer) and later, and the exporter for x86-64 without a C library (musl). Server and arm64 only where a DuckDB for
# arm64 can be had. Otherwise the programs of `make build` are packed, which run on this machine's C library and newer ones.
#
#     scripts/release.sh                  all of it
#     scripts/release.sh exporter TARGET  builds the exporter for one target, and prints the program
set -euo pipefail
cd "$(dirname "$0")/.."

GLIBC=2.28
X86=x86_64-unknown-linux-gnu.$GLIBC
ARM=aarch64-unknown-linux-gnu.$GLIBC
STATIC=x86_64-unknown-linux-musl
: "${CARGO_TARGET_DIR:=target}"
export CARGO_TARGET_DIR

# has_target TARGET: whether rustc can compile for it, after rustup has tried to add it.
has_target() {
	local folder
	folder=$(rustc --print sysroot)/lib/rustlib/${1%".$GLIBC"}
	[ -d "$folder" ] || rustup target add "${1%".$GLIBC"}" >&2 || true
	[ -d "$folder" ]
}

# folder TARGET: where cargo-zigbuild puts its programs.
folder() {
	echo "$CARGO_TARGET_DIR/${1%".$GLIBC"}/release"
}

# built TARGET ARGUMENTS: runs cargo-zigbuild.
built() {
	local target=$1
	shift
	PATH=$zig:$PATH cargo zigbuild --release --locked --target "$target" "$@" >&2
}

# at_most_glibc FILE: fails if the program needs a newer C library than promised.
at_most_glibc() {
	local newest
	newest=$(readelf --wide --version-info "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1 | cut -d_ -f2) || true
	if [ "$(printf '%s\n%s\n' "$newest" "$GLIBC" | sort -V | tail -1)" != "$GLIBC" ]; then
		echo "release.sh: $1 needs glibc $newest, newer than $GLIBC" >&2
		exit 1
	fi
	echo "release.sh: $1 needs glibc ${newest:-nothing}" >&2
}

zig=$(scripts/zig.sh) || {
	[ "${1:-}" != exporter ] || exit 3
	echo "release.sh: only packages for this machine and newer C libraries are built" >&2
	make --no-print-directory build S3=1
	BIN=$CARGO_TARGET_DIR/release exec scripts/dist.sh
}

# Two builds of one commit are equal, wherever the checkout is.
export CARGO_INCREMENTAL=0
# The linker strips programs of every processor.
export CARGO_PROFILE_RELEASE_STRIP=symbols
export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/takt --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"

if [ "${1:-}" = exporter ]; then
	has_target "$2" || exit 3
	built "$2" -p takt-exporter
	program=$(folder "$2")/takt-exporter
	at_most_glibc "$program"
	echo "$program"
	exit
fi

has_target "$X86" || { echo "release.sh: rustup cannot add a target" >&2; exit 1; }
DUCKDB_LIB_DIR=$(scripts/libduckdb.sh)
export DUCKDB_LIB_DIR
built "$X86" --no-default-features --features takt/s3 -p takt -p takt-exporter
native=$(folder "$X86")
cp "$DUCKDB_LIB_DIR/libduckdb.so" "$native/"
for file in takt takt-exporter libduckdb.so; do at_most_glibc "$native/$file"; done
"$native/takt" --version >&2
rm -f "${OUT:-target/dist}"/takt*.{deb,rpm,tar.gz}
BIN=$native scripts/dist.sh
for target in $ARM $STATIC; do
	if has_target "$target"; then
		built "$target" -p takt-exporter
		at_most_glibc "$(folder "$target")/takt-exporter"
		BIN=$(folder "$target") NATIVE=$native scripts/dist.sh
	else
		echo "release.sh: no packages for $target" >&2
	fi
done
