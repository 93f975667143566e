#!/usr/bin/env bash
# One store with NODES (2,000) nodes of SERIES (2,000) series and ROWS (26) samples of each, 15 s apart and written as fast as the
# store takes them: CPU and disk a sample, memory, start, queries and all shipped rules. 4 million series take 8 GB of memory and
# some minutes. DIR=… keeps the data there.
set -euo pipefail
cd "$(dirname "$0")/.."
nodes=${NODES:-2000} series=${SERIES:-2000} rows=${ROWS:-26}
bin=${CARGO_TARGET_DIR:-target}/release
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
cargo build --release "${features[@]}" --locked -q -p takt-store --example scale
directory=${DIR:-$(mktemp -d)}
[ -n "${DIR:-}" ] || trap 'rm -rf "$directory"' EXIT
export LD_LIBRARY_PATH=${DUCKDB_LIB_DIR:-}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} MALLOC_ARENA_MAX=2
capture=bench/pages/takt-exporter_8-stand-in-h100.jsonl.gz
"$bin/examples/scale" "$capture" dashboards/rules "$directory" fill "$nodes" "$series" "$rows"
"$bin/examples/scale" "$capture" dashboards/rules "$directory" open
