"""Reads a lake with delta-rs, Polars, ClickHouse (chDB) and DuckDB, and prints the answers as JSON.

Each engine answers the same questions in its own way; the test compares them with the server's."""

import json
import os
import re
import sys

import chdb
import duckdb
import polars
from deltalake import DeltaTable, QueryBuilder

LAKE, MONTH, DAY, PAGE = sys.argv[1:5]
# chDB reads files below the current folder only.
os.chdir(LAKE)
TABLES = ["samples", "samples_5m", "samples_1h", "job_runs", "usage", "efficiency", "fairshare"]
GPU_HOURS = """SELECT "user", CAST(sum(gpu_seconds) AS BIGINT) AS seconds FROM usage
               WHERE month = '{}' GROUP BY "user" ORDER BY "user\""""
POWER = """SELECT node, count(*) AS n, max(value) AS most FROM samples
           WHERE day = '{}' AND metric = 'takt_gpu_power_watts' GROUP BY node ORDER BY node"""


def delta_rs():
    builder = QueryBuilder()
    for table in TABLES:
        builder = builder.register(table, DeltaTable(f"{LAKE}/{table}"))

    def ask(sql):
        found = builder.execute(sql).read_all()
        return [list(row) for row in zip(*(found.column(i).to_pylist() for i in range(found.num_columns)))]

    return ask


def duckdb_alone():
    """DuckDB without an extension: the list of files is in the logs."""
    db = duckdb.connect()
    for table in TABLES:
        db.execute(f"""
            SET VARIABLE "{table}" = (
                WITH actions AS (
                    SELECT "add".path AS added, remove.path AS removed, filename AS version
                    FROM read_json('{LAKE}/{table}/_delta_log/*.json', filename = true,
                        format = 'newline_delimited',
                        columns = {{"add": 'STRUCT(path VARCHAR)', "remove": 'STRUCT(path VARCHAR)'}})
                    WHERE added IS NOT NULL OR removed IS NOT NULL
                ), files AS (
                    SELECT coalesce(added, removed) AS path, arg_max(added IS NOT NULL, version) AS is_there
                    FROM actions GROUP BY path
                )
                SELECT list('{LAKE}/{table}/' || path) FROM files WHERE is_there
            )""")
        db.execute(f"""
            CREATE VIEW "{table}" AS
            SELECT * FROM read_parquet(getvariable('{table}'), hive_partitioning = true)""")
    return lambda sql: [list(row) for row in db.execute(sql).fetchall()]


def clickhouse():
    def ask(sql):
        sql = re.sub(r"(FROM|JOIN) (%s)\b" % "|".join(TABLES), rf"\1 deltaLakeLocal('{LAKE}/\2')", sql)
        return json.loads(str(chdb.query(sql, "JSONCompact")))["data"]

    return ask


def polars_sql():
    context = polars.SQLContext()
    for table in TABLES:
        context.register(table, polars.scan_delta(f"{LAKE}/{table}"))
    return lambda sql: [list(row) for row in context.execute(sql).collect().rows()]


ENGINES = {"delta-rs": delta_rs, "duckdb": duckdb_alone, "clickhouse": clickhouse, "polars": polars_sql}


def number(value):
    """ClickHouse writes 64-bit numbers as text."""
    try:
        return int(value)
    except (TypeError, ValueError):
        return value


def plain(value):
    """A cell in a form that all engines have: numbers are rounded, days and times are text."""
    if value is None or isinstance(value, bool):
        return value
    try:
        return float(f"{float(value):.9g}")
    except (TypeError, ValueError):
        return str(value)[:19].replace("T", " ")


def queries():
    """The queries of the page, about the month and the day of the test."""
    page = open(PAGE, encoding="utf-8").read()
    for sql in re.findall(r"^```sql\n-- (.*?)^```", page, re.M | re.S):
        name, sql = sql.split("\n", 1)
        yield name, sql.replace("'2026-10-01'", f"'{DAY}'").replace("'2026-10'", f"'{MONTH}'")


answers = {}
for name, engine in ENGINES.items():
    ask = engine()
    answers[name] = {
        "rows": {table: number(ask(f"SELECT count(*) AS n FROM {table}")[0][0]) for table in TABLES},
        "gpu_seconds": [[user, number(seconds)] for user, seconds in ask(GPU_HOURS.format(MONTH))],
        "power": [[node, number(n), float(most)] for node, n, most in ask(POWER.format(DAY))],
    }
    # Polars knows less SQL.
    if name != "polars":
        answers[name]["page"] = {
            title: [[plain(cell) for cell in row] for row in ask(sql)] for title, sql in queries()
        }
# A reader that follows the table sees new rows once: merges and late samples are no news.
answers["version"] = {table: DeltaTable(f"{LAKE}/{table}").version() for table in TABLES}
json.dump(answers, sys.stdout)
