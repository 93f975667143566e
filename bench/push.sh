#!/usr/bin/env bash
# CPU of pushed samples, from the compressed request to the durable commit, beside scraped ones: the same pages for the same NODES.
# bench/push.py measures whole servers.
set -euo pipefail
cd "$(dirname "$0")/.."
bench/ingest.sh
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
for version in 1.0 2.0; do
	echo "remote write $version:"
	cargo run --release "${features[@]}" --locked -q -p takt-collector --example push -- \
		"${NODES:-60}" "${SECONDS_MEASURED:-30}" "${INTERVAL_MS:-1000}" \
		bench/pages/node_exporter-1.5_debian-12_0.prom bench/pages/node_exporter-1.5_debian-12_1.prom "$version"
done
