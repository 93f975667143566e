#!/usr/bin/env bash
# Memory and time of the head: node_exporter's page, captured once a second for SECONDS_CAPTURED, kept as 100,000 and
# 200,000 series for 15 minutes of samples. Takes as long as the capture and half a minute.
set -euo pipefail
cd "$(dirname "$0")/.."
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
pages=${TAKT_CAPTURED_PAGES:-}
if [ -z "$pages" ]; then
	pages=$(mktemp -d)
	prometheus-node-exporter --web.listen-address=127.0.0.1:29131 >/dev/null 2>&1 &
	trap 'kill $!; rm -r "$pages"' EXIT
	for second in $(seq -w 0 "${SECONDS_CAPTURED:-900}"); do
		sleep "$(date +%s%N | awk '{ printf "%.3f", 1 - ($1 % 1e9) / 1e9 }')"
		curl -sf --retry 5 --retry-connrefused http://127.0.0.1:29131/metrics >"$pages/$second.prom"
	done
fi
TAKT_CAPTURED_PAGES=$pages cargo test --release "${features[@]}" --locked -q -p takt-collector --lib -- \
	--ignored --nocapture head_memory_per_series
