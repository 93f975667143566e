"""Python's drivers as people use them, against a takt at HOST PORT. Ends with an error at the first difference."""

import asyncio
import datetime
import decimal
import math
import sys

import psycopg
import psycopg2

HOST, PORT = sys.argv[1:]
DSN = f"host={HOST} port={PORT} user=alice dbname=takt"
UTC = datetime.timezone.utc


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def with_psycopg():
    with psycopg.connect(DSN) as connection:
        run = connection.execute
        equal(run("SELECT 1").fetchone(), (1,))
        # Values come as what they are, in text and in binary.
        statement = """SELECT true, 7::SMALLINT, 7, 7::BIGINT, 1.5::DOUBLE, 12.50::DECIMAL(6, 2), 'text',
            TIMESTAMP '2026-10-25 01:02:03.5', DATE '2026-10-25', NULL, [1, 2], ['a', NULL], 'x'::BLOB, {'a': 1},
            sum(n::BIGINT), 'nan'::DOUBLE, INTERVAL 90 MINUTE FROM range(3) AS t(n)"""
        for binary in (False, True):
            row = connection.cursor(binary=binary).execute(statement).fetchone()
            equal(row[:15], (True, 7, 7, 7, 1.5, decimal.Decimal("12.50"), "text",
                datetime.datetime(2026, 10, 25, 1, 2, 3, 500000), datetime.date(2026, 10, 25), None, [1, 2],
                ["a", None], b"x", {"a": 1}, 3))
            assert math.isnan(row[15]), row
            equal(row[16], datetime.timedelta(minutes=90))
        # Parameters of every usual type.
        oslo = datetime.timezone(datetime.timedelta(hours=2))
        given = ("it's", 7, -7, 1.5, decimal.Decimal("-0.25"), True, None, datetime.datetime(2026, 10, 1, 2, 0, 0),
            datetime.datetime(2026, 10, 1, 2, 0, 0, tzinfo=oslo), datetime.date(2026, 10, 1), b"\x00\xff", [1, 2])
        for binary in (False, True):
            found = connection.cursor(binary=binary).execute(
                "SELECT %s, %s, 1 -%s, %s, %s, %s, %s, %s, %s, %s, %s, %s", given).fetchone()
            equal(found, ("it's", 7, 8, 1.5, decimal.Decimal("-0.25"), True, None, datetime.datetime(2026, 10, 1, 2),
                datetime.datetime(2026, 10, 1), datetime.date(2026, 10, 1), b"\x00\xff", [1, 2]))
        equal(run("SELECT job_id FROM jobs WHERE \"user\" = %s AND submit_time < %s ORDER BY 1",
            ("alice", datetime.datetime(2026, 11, 1))).fetchall(), [("1",), ("2",)])
        equal(run("SELECT job_id FROM jobs WHERE job_id = ANY(%s)", (["1", "9"],)).fetchall(), [("1",)])
        equal(run("SELECT count(*) FROM jobs WHERE gpus = %s", ("2",)).fetchone(), (1,))
        # Calls without an alias are named after their function, also in subqueries.
        cursor = run("SELECT count(*), max(gpus) + 1 AS most, lower(max(\"user\")) FROM jobs")
        equal([column.name for column in cursor.description], ["count", "most", "lower"])
        equal(run("SELECT count FROM (SELECT count(*) FROM jobs) AS n").fetchone(), (3,))
        # A pattern in a parameter has the backslash as its escape character.
        equal(run("SELECT count(*) FROM pg_catalog.pg_class WHERE relname LIKE %s", (r"job\_usage",)).fetchone(), (1,))
        equal(run("SELECT count(*) FROM pg_catalog.pg_class WHERE relname LIKE %s", (r"job\_u_x",)).fetchone(), (0,))
        # A statement that is prepared is asked again and again.
        for n in range(8):
            equal(run("SELECT %s::INT + 1", (n,), prepare=True).fetchone(), (n + 1,))
        # Rows in portions.
        rows = connection.cursor().stream("SELECT n FROM range(5) AS t(n)")
        equal([row[0] for row in rows], [0, 1, 2, 3, 4])
    # An error ends the transaction, not the connection.
    with psycopg.connect(DSN) as connection:
        for sql, state in [("SELECT * FROM jbs", "42P01"), ("SELEC 1", "42601"), ("SELECT nope FROM jobs", "42703"),
                ("SELECT nope(1)", "42883"), ("SELECT 'x'::INT", "22P02"), ("DELETE FROM jobs", "25006")]:
            try:
                connection.execute(sql)
                raise AssertionError(f"{sql} was answered")
            except psycopg.Error as error:
                equal((sql, error.sqlstate), (sql, state))
            try:
                connection.execute("SELECT 1")
                raise AssertionError("a failed transaction went on")
            except psycopg.errors.InFailedSqlTransaction:
                connection.rollback()
        equal(connection.execute("SELECT 1").fetchone(), (1,))


def with_psycopg2():
    connection = psycopg2.connect(DSN)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT \"user\", gpus FROM jobs WHERE job_id IN %s ORDER BY 1", (("1", "3"),))
        equal(cursor.fetchall(), [("alice", 2), ("bob", 0)])
        cursor.execute("SELECT %s < now()", (datetime.datetime.now(UTC) - datetime.timedelta(hours=1),))
        equal(cursor.fetchone(), (True,))
        # Several statements in one message: the last answer counts.
        cursor.execute("SET TIMEZONE TO 'UTC'; SELECT 41; SELECT 42")
        equal(cursor.fetchone(), (42,))
    connection.close()


def with_asyncpg():
    try:
        import asyncpg
    except ImportError:
        return

    async def ask():
        connection = await asyncpg.connect(host=HOST, port=int(PORT), user="alice", database="takt", ssl=False)
        equal(await connection.fetchval("SELECT 1"), 1)
        row = await connection.fetchrow("SELECT job_id, submit_time, gpus, cpus * 1.5::DOUBLE AS x FROM jobs "
            "WHERE job_id = $1", "1")
        equal(tuple(row), ("1", datetime.datetime(2026, 10, 1, 8, 0), 2, 12.0))
        # It asks for the types of parameters and sends values of these, in binary.
        equal(await connection.fetch("SELECT job_id FROM jobs WHERE gpus >= $1 AND submit_time < $2 AND cpus * 1.5 > $3 "
            "ORDER BY 1 LIMIT $4", 2, datetime.datetime(2026, 11, 1), decimal.Decimal("0.5"), 1), [("1",)])
        equal(await connection.fetchval("SELECT count(*) FROM node_load1 WHERE ts > $1 AND value > $2 AND node = $3",
            datetime.datetime(2026, 1, 1), 1e9, "n1"), 0)
        equal(tuple(await connection.fetchrow("SELECT $1::VARCHAR, $2::BIGINT + 1, $3::DATE", "it's", 7,
            datetime.date(2026, 10, 1))), ("it's", 8, datetime.date(2026, 10, 1)))
        equal(await connection.fetchval("SELECT $1", "anything"), "anything")
        equal(await connection.fetch("SELECT job_id FROM jobs WHERE job_id = ANY($1) ORDER BY 1", ["1", "2", "9"]),
            [("1",), ("2",)])
        async with connection.transaction():
            equal([row[0] async for row in connection.cursor("SELECT n FROM range(120) AS t(n)")], list(range(120)))
        await connection.close()

    asyncio.run(ask())


def with_sqlalchemy():
    try:
        import sqlalchemy
    except ImportError:
        return
    engine = sqlalchemy.create_engine(f"postgresql+psycopg2://alice@{HOST}:{PORT}/takt")
    looked = sqlalchemy.inspect(engine)
    assert {"public", "metrics"} <= set(looked.get_schema_names()), looked.get_schema_names()
    assert {"jobs", "job_usage", "users", "nodes", "gpus", "samples"} <= set(looked.get_table_names())
    assert "node_load1" in looked.get_view_names("metrics")
    columns = {column["name"]: column["type"].python_type for column in looked.get_columns("jobs")}
    equal((columns["job_id"], columns["submit_time"], columns["gpus"]), (str, datetime.datetime, int))
    equal((looked.get_pk_constraint("jobs")["constrained_columns"], looked.get_foreign_keys("jobs"),
        looked.get_indexes("jobs")), ([], [], []))
    meta = sqlalchemy.MetaData()
    jobs = sqlalchemy.Table("jobs", meta, autoload_with=engine)
    with engine.connect() as connection:
        by_user = sqlalchemy.select(jobs.c.user, sqlalchemy.func.count()).group_by(jobs.c.user).order_by(jobs.c.user)
        equal([tuple(row) for row in connection.execute(by_user)], [("alice", 2), ("bob", 1)])


for check in (with_psycopg, with_psycopg2, with_asyncpg, with_sqlalchemy):
    check()
    print("ok", check.__name__)
