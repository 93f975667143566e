#!/usr/bin/env bash
# Time from a fault in the kernel log to the request to Slack, beside Debian's Prometheus and Alertmanager; then a thousand
# nodes that fail at once. FAULTS is the number of faults (default 50; 1000 take 35 minutes).
set -euo pipefail
here=$(dirname "$0")
faults=${FAULTS:-50}
"$here/alerts.py" latency "$faults"
if command -v prometheus >/dev/null && command -v prometheus-alertmanager >/dev/null; then
	"$here/alerts.py" peer "$((faults < 20 ? faults : 20))"
else
	echo "no prometheus and alertmanager here: the peer is left out"
fi
"$here/alerts.py" storm 1000
"$here/alerts.py" cycle
