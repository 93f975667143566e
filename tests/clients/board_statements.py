"""Each statement of the file (a JSON list) with psycopg, by the simple protocol and by the extended one.

Prints one JSON line for each: columns, and rows of texts. Ends with an error at the first difference.
"""

import json
import sys

import psycopg

HOST, PORT, FILE = sys.argv[1:]


def answer(result):
    columns = [result.fname(i).decode() for i in range(result.nfields)]
    text = lambda value: None if value is None else value.decode()
    rows = [[text(result.get_value(row, i)) for i in range(result.nfields)] for row in range(result.ntuples)]
    return {"columns": columns, "rows": rows}


with psycopg.connect(f"host={HOST} port={PORT} user=alice dbname=takt", autocommit=True) as connection:
    for sql in json.load(open(FILE)):
        simple = connection.pgconn.exec_(sql.encode())
        assert simple.status == psycopg.pq.ExecStatus.TUPLES_OK, f"{sql}\n  {simple.error_message.decode()}"
        extended = connection.pgconn.exec_params(sql.encode(), None)
        assert extended.status == psycopg.pq.ExecStatus.TUPLES_OK, f"{sql}\n  {extended.error_message.decode()}"
        assert answer(extended)["columns"] == answer(simple)["columns"], sql
        print(json.dumps(answer(simple)))
