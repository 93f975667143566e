#!/usr/bin/env bash
# The SQL lint: fails on SQL that needs DuckDB's ICU extension. A build from source lacks it, and a test against the
# prebuilt library would not notice. Instants are UTC; months and days are computed in Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

icu='TIMESTAMPTZ|TIMESTAMP +WITH +TIME +ZONE|AT +TIME +ZONE|SET +TimeZone|\bcurrent_(timestamp|date|time)\b'
clock='\b(now|today|get_current_timestamp|transaction_timestamp)\(\)'
# In Rust a function may be called `now`; in SQL it stands in a statement.
clock_in_rust="\\b(SELECT|VALUES|SET|WHERE|epoch[a-z_]*\\(|make_timestamp\\(|date_[a-z]+\\()[^;]*$clock"
# Files with words of SQL clients, which are replaced before DuckDB sees them.
spoken='^crates/(postgres/src/|store/src/sql/session.rs|[a-z]+/tests/|[a-z]+/examples/)'
found=$(
	git ls-files --cached --others --exclude-standard 'crates/*.sql' |
		xargs -r grep -nEi "$icu|$clock" | grep -vE '^[^:]+:[0-9]+: *--' || true
	# The sessions of clients replace now() and its like (crates/store/src/sql/session.rs), so panels may use them.
	git ls-files --cached --others --exclude-standard 'dashboards/*.json' |
		xargs -r grep -nEi "$icu" || true
	git ls-files --cached --others --exclude-standard 'crates/*.rs' 'collector/src/*.rs' 'src/*.rs' | grep -vE "$spoken" |
		xargs -r grep -nEi "$icu|$clock_in_rust" | grep -vE '^[^:]+:[0-9]+: *//|::now\(\)|\.now\(\)' || true
)
if [ -n "$found" ]; then
	echo "$found" >&2
	echo "check-sql: needs DuckDB's ICU extension; keep instants in UTC and pass them in from Rust" >&2
	exit 1
fi
