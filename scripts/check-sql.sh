#!/usr/bin/env bash
# The SQL lint: what needs DuckDB's ICU extension is refused, because a build from source has none and a test against
# the prebuilt library would not notice. Instants are UTC; months and days are computed in Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

pattern='TIMESTAMPTZ|TIMESTAMP +WITH +TIME +ZONE|AT +TIME +ZONE|SET +TimeZone|\b(now|today|get_current_timestamp|transaction_timestamp)\(\)|\bcurrent_(timestamp|date|time)\b'
found=$(git ls-files --cached --others --exclude-standard 'collector/*.sql' 'collector/src/*.rs' 'src/*.rs' 'dashboards/*.json' |
	xargs -r grep -nEi "$pattern" | grep -vE '^[^:]+:[0-9]+: *(//|--)' | grep -vE '::now\(\)|\.now\(\)' || true)
if [ -n "$found" ]; then
	echo "$found" >&2
	echo "check-sql: needs DuckDB's ICU extension; keep instants in UTC and pass them in from Rust" >&2
	exit 1
fi
