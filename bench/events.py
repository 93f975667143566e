#!/usr/bin/env python3
"""Latency from a line in the kernel log to a listener: events.py HOST:PORT LOGFILE COUNT prints the 50th and 99th percentile.

One fault at a time, with a pause before the next, as faults come. The clock runs from before the write to after the line has
been taken apart."""
import http.client, json, sys, time

address, log, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
connection = http.client.HTTPConnection(address)
connection.request("GET", "/events")
answer = connection.getresponse()
times = []
with open(log, "a", buffering=1) as file:
    for number in range(count):
        time.sleep(0.05)
        began = time.monotonic()
        # One event of each kind a second: the exporter only counts further ones.
        line = ["nfs: server nas%d not responding, still trying", "INFO: task t:%d blocked for more than 120 seconds.",
                "NVRM: Xid (PCI:0000:06:00): %d, test"][number % 3] % (number + 1)
        file.write(line + "\n")
        while True:
            text = answer.readline().decode()
            if text.startswith("data: ") and json.loads(text[6:]).get("message") == line:
                break
        times.append((time.monotonic() - began) * 1e3)
times.sort()
at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
print(f"{'kernel log line to listener':34} {at(0.5):8.2f} ms p50 {at(0.99):17.2f} ms p99 {times[-1]:8.2f} ms at most, {count} lines")
