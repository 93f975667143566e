"""Reads tables of a lake with delta-rs, anew for each line of input, and prints their rows as a line of JSON.

    lake_reader.py LAKE TABLE...

A table without a log is null. Any other failure ends the program."""

import json
import sys

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

LAKE, *TABLES = sys.argv[1:]


def rows(table):
    try:
        found = DeltaTable(f"{LAKE}/{table}")
    except TableNotFoundError:
        return None
    found = QueryBuilder().register("found", found).execute("SELECT * FROM found").read_all()
    columns = [found.column(number).to_pylist() for number in range(found.num_columns)]
    return sorted(map(str, zip(*columns)))


for _ in sys.stdin:
    print(json.dumps({table: rows(table) for table in TABLES}), flush=True)
