#!/usr/bin/env bash
# Fetches the prebuilt libduckdb that Takt links to, and prints its folder.
#
# The version is DuckDB 1.5.6, as the crate `duckdb` 1.10506.1 expects it; the library comes from the npm package
# `@duckdb/node-bindings-<platform>`, pinned by checksum and kept in a cache folder. Without npm this prints nothing
# and exits 3: the caller then builds DuckDB from source (feature `bundled`).
set -euo pipefail

VERSION=1.5.6-r.1
case "$(uname -s)-$(uname -m)" in
Linux-x86_64) PLATFORM=linux-x64 SHA256=1b9f82478539bb9a1d1df44bd103121a12ae52142c07158dc52b97d2ec1d69ff ;;
*)
	echo "libduckdb: no pinned library for $(uname -sm); DuckDB will be compiled from source (about 25 minutes)" >&2
	exit 3
	;;
esac

cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
dir=$cache/libduckdb-$VERSION-$PLATFORM
if [ ! -e "$dir/libduckdb.so" ]; then
	if ! command -v npm >/dev/null; then
		echo "libduckdb: npm is not installed, so the prebuilt DuckDB cannot be fetched;" \
			"DuckDB will be compiled from source (about 25 minutes)" >&2
		exit 3
	fi
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	package=@duckdb/node-bindings-$PLATFORM@$VERSION
	echo "libduckdb: fetching $package" >&2
	(cd "$tmp" && npm pack --silent "$package" >/dev/null) || {
		echo "libduckdb: npm could not fetch $package" >&2
		exit 1
	}
	archive=$(echo "$tmp"/*.tgz)
	echo "$SHA256  $archive" | sha256sum --check --quiet - >&2 || {
		echo "libduckdb: $package has another checksum than the one pinned in $0; not used" >&2
		exit 1
	}
	mkdir -p "$dir"
	tar -xzf "$archive" -C "$tmp" package/libduckdb.so package/LICENSE
	mv "$tmp/package/LICENSE" "$dir/LICENSE"
	mv "$tmp/package/libduckdb.so" "$dir/libduckdb.so" # last: its presence says the folder is complete
fi
echo "$dir"
