#!/usr/bin/env bash
# Runs the benchmarks in turn. The newest figures go into docs/performance.md, with command and machine; what changed them goes into
# docs/performance-history.md.
set -euo pipefail
here=$(dirname "$0")
echo "== $(nproc) cores, $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
echo "== exporter beside node_exporter"
"$here/exporter.sh"
echo "== ingest"
"$here/ingest.sh"
echo "== ingest beside Prometheus and VictoriaMetrics"
"$here/peers.py"
echo "== pushed samples beside scraped ones"
"$here/push.py"
echo "== job records"
"$here/records.sh"
echo "== alerts"
"$here/alerts.sh"
echo "== live data beside Prometheus"
"$here/live.py"
echo "== PromQL beside Prometheus, sealed data"
"$here/query.sh"
echo "== SQL: energy of every job of a month"
"$here/energy.sh"
echo "== pages of 300 nodes of eight GPUs"
"$here/pages.sh"
echo "== a million series: memory, queries, rules, start"
NODES=500 "$here/scale.sh"
