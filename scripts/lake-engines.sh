#!/usr/bin/env bash
# Installs the engines that the tests of the data lake use (delta-rs, Polars, DuckDB, ClickHouse as chDB) from PyPI into a
# virtual environment of their own, once: about 1 GB. A test without it is skipped by name.
set -euo pipefail

folder=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}/lake-venv
[ -e "$folder/complete" ] && exit 0
python3 -m venv "$folder"
"$folder/bin/pip" install -q 'deltalake>=1.6,<2' 'polars>=2.1,<3' 'duckdb>=1.5' 'chdb>=4.4,<5'
touch "$folder/complete"
