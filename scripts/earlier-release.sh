#!/usr/bin/env bash
# Builds an earlier release of Takt from its tag, once, and prints the folder with its program: tests of downgrades start it.
#
#   scripts/earlier-release.sh 0.1.0
#
# A debug build: it takes a quarter of an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/earlier-release.sh VERSION}
cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
dir=$cache/peers/takt-$version
if [ ! -x "$dir/takt" ]; then
	library=$(scripts/libduckdb.sh)
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	git archive "$version" | tar -x -C "$tmp"
	(
		cd "$tmp"
		export CARGO_TARGET_DIR=$tmp/target CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 DUCKDB_LIB_DIR=$library
		cargo build --locked --no-default-features -p takt
	) >&2
	mkdir -p "$dir"
	cp "$library/libduckdb.so" "$dir/"
	mv "$tmp/target/debug/takt" "$dir/takt.new"
	mv "$dir/takt.new" "$dir/takt" # last: its presence says that the folder is complete
fi
echo "$dir"
