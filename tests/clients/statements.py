"""Runs what Grafana and BI tools send by themselves: each statement of a file, as one message of the simple protocol.

A file has statements between lines of `----`; after a line `=>` comes the first row that is expected, as Python.
"""

import sys

import psycopg2

HOST, PORT, *FILES = sys.argv[1:]
connection = psycopg2.connect(f"host={HOST} port={PORT} user=grafana dbname=takt")
connection.autocommit = True
failed = 0
for file in FILES:
    for block in open(file).read().split("\n----\n"):
        sql, _, expected = block.partition("\n=> ")
        with connection.cursor() as cursor:
            try:
                cursor.execute(sql)
                row = cursor.fetchone() if cursor.description else None
            except psycopg2.Error as error:
                # A comment is an empty query, and is to be answered as one.
                if sql.startswith("-- ping") and "empty query" in str(error):
                    continue
                failed += 1
                print(f"{file}: {sql.strip()}\n  {error}")
                continue
        if expected and row != eval(expected):
            failed += 1
            print(f"{file}: {sql.strip()}\n  expected {expected.strip()}, found {row!r}")
sys.exit(1 if failed else 0)
