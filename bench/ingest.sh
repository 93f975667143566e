#!/usr/bin/env bash
# CPU and memory of ingest, from the socket to the durable commit: captured node_exporter pages, served as NODES nodes.
set -euo pipefail
cd "$(dirname "$0")/.."
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
cargo run --release "${features[@]}" --locked -q -p takt-collector --example ingest -- \
	"${NODES:-60}" "${SECONDS_MEASURED:-30}" "${INTERVAL_MS:-1000}" \
	bench/pages/node_exporter-1.5_debian-12_0.prom bench/pages/node_exporter-1.5_debian-12_1.prom
