#!/usr/bin/env python3
"""Serves captured pages as many different nodes.

    replay.py PORT SECONDS CAPTURE.jsonl.gz...

Node N answers at http://127.0.0.1:PORT/N/metrics. It shows capture N modulo their number, begins at a second of its own, and adds a
number of its own to every series, so that no two nodes have the same values and no compressor profits from copies. Within a
second every reader gets the same page.

A capture is lines of JSON: the first page as text after `PAGE `, then [milliseconds, {series: value}, [series that went]].
"""

import asyncio
import gzip
import json
import random
import sys
import time


class Capture:
    def __init__(self, path):
        lines = gzip.open(path, "rt").read().splitlines()
        self.template = json.loads(lines[0][5:]).splitlines()
        self.rows, values = [], {}
        for line in lines[1:]:
            _, changed, gone = json.loads(line)
            values = {key: value for key, value in {**values, **changed}.items() if key not in gone}
            self.rows.append(values)


class Node:
    def __init__(self, number, capture, seconds):
        self.random = random.Random(number)
        self.capture = capture
        rows = len(capture.rows)
        # A capture that is too short starts again, as after a reboot of the node.
        self.phase = self.random.randrange(rows - seconds if rows > seconds else rows)
        self.offsets, self.page, self.second = {}, b"", None

    def shifted(self, key, text):
        """The value plus a number that depends on the node, with as many digits. Flags and info metrics do not change."""
        if key not in self.offsets:
            is_flag = len(text) == 1 or not text[0].isdigit()
            self.offsets[key] = 0 if is_flag else self.random.randrange(1, 1000) * (7919 if float(text) > 1e6 else 1)
        offset = self.offsets[key]
        if offset == 0:
            return text
        value = float(text) + offset
        digits = len(text) - text.find(".") - 1 if "." in text and "e" not in text else 0
        return f"{value:.{digits}f}" if digits or value.is_integer() else repr(value)

    def render(self, second):
        if second != self.second:
            rows = self.capture.rows
            values = rows[(self.phase + second) % len(rows)]
            lines = []
            for line in self.capture.template:
                if line.startswith("#"):
                    lines.append(line)
                    continue
                key = line.rsplit(" ", 1)[0]
                if key in values:
                    lines.append(f"{key} {self.shifted(key, values[key])}")
            self.page, self.second = ("\n".join(lines) + "\n").encode(), second
        return self.page


async def main():
    port, seconds = int(sys.argv[1]), int(sys.argv[2])
    captures = [Capture(path) for path in sys.argv[3:]]
    nodes, began = {}, time.time()

    async def answer(reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1]
                if not path.endswith(b"/metrics"):
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                number = int(path.split(b"/")[1])
                if number not in nodes:
                    nodes[number] = Node(number, captures[number % len(captures)], seconds)
                page = nodes[number].render(int(time.time() - began))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n" % len(page))
                writer.write(page)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError, IndexError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


asyncio.run(main())
