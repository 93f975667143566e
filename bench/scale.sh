#!/usr/bin/env bash
# One server for NODES (2,000) nodes with SERIES (2,000) series and ROWS (26) samples of each, 15 s apart but written as fast as
# the store takes them: CPU and disk a sample, memory, queries, all shipped rules, start. 4 million series take 5 GB of memory
# and some minutes. HEAD_MINUTES sets store.head_minutes, CRASH=1 starts after kill -9, DIR=… keeps the data there.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${CARGO_TARGET_DIR:-target}/release
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
[ -x "$bin/examples/scale" ] || cargo build --release "${features[@]}" --locked -q -p takt-server --example scale
directory=${DIR:-$(mktemp -d)}
[ -n "${DIR:-}" ] || trap 'rm -rf "$directory"' EXIT
# As the server does.
export MALLOC_ARENA_MAX=2
"$bin/examples/scale" "$directory" fill "${NODES:-2000}" "${SERIES:-2000}" "${ROWS:-26}" || [ -n "${CRASH:-}" ]
"$bin/examples/scale" "$directory" open
