#!/usr/bin/env python3
"""A cluster for the pages: exporters' pages of NODES nodes with eight GPUs, strips of a week, a month of jobs.

    pages.py serve PORT NODES      answers /N with the page of node N
    pages.py config PORT NODES     prints a takt.toml
    pages.py strips DIR NODES      writes DIR/strips.bin
    pages.py jobs NODES COUNT      prints records in sacct's format

Everything follows from the number of the node and the time, so the same run shows the same cluster."""

import math
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GPUS = 8
USERS = ["ada", "grace", "alan", "edsger", "barbara", "donald", "katherine", "linus", "margaret", "tim"]


def name(node):
    return f"g{node:03}"


def uuid(node, gpu):
    return f"GPU-{node:08x}-0000-4000-8000-{gpu:012x}"


def job(node, gpu):
    """Job of a GPU, or None. Jobs hold two, four or eight GPUs of a node."""
    kind = node * 7 % 10
    if kind == 0:
        return None
    size = [8, 4, 2][kind % 3]
    if (node + gpu // size) % 9 == 8:
        return None
    return 10_000 + node * 8 + gpu // size


def wastes(number):
    return number % 13 == 3


def is_lost(node, gpu):
    return (node, gpu) in {(2, 2), (17, 5), (211, 0)}


def utilization(node, gpu, at):
    number = job(node, gpu)
    if number is None or wastes(number):
        return 0.0
    # A job begins and ends with its day, and has a rhythm of its own.
    begun = (at // 86_400 + number) % 7
    if begun == 0 and at % 86_400 < 30_000:
        return 0.0
    wave = math.sin(at / (600 + number % 50 * 60) + number)
    return max(0.1, min(1.0, 0.55 + 0.5 * math.sin(number) + 0.12 * wave))


def page(node):
    at = time.time()
    out = []

    def put(metric, labels, value):
        text = ",".join(f'{key}="{value}"' for key, value in labels.items())
        out.append(f"{metric}{{{text}}} {value}" if text else f"{metric} {value}")

    for gpu in range(GPUS):
        own = {"uuid": uuid(node, gpu)}
        lost = is_lost(node, gpu)
        if lost:
            put("takt_gpu_up", {**own, "reason": "lost"}, 0)
        else:
            put("takt_gpu_up", own, 1)
        put("takt_gpu_info", {**own, "index": gpu, "minor": gpu, "pci_bus_id": f"0000:{gpu:02x}:00.0",
                              "model": "NVIDIA H100 80GB HBM3", "driver": "570.86"}, 1)
        number = job(node, gpu)
        if number is not None:
            put("takt_gpu_job_info", {**own, "jobid": number, "user": USERS[number % len(USERS)]}, 1)
        if lost:
            continue
        use = utilization(node, gpu, at)
        put("takt_gpu_utilization_ratio", own, round(use, 3))
        put("takt_gpu_memory_used_bytes", own, int((0.1 + 0.8 * (number is not None)) * 80 * 2**30))
        put("takt_gpu_memory_total_bytes", own, 80 * 2**30)
        put("takt_gpu_temperature_celsius", {**own, "sensor": "gpu"}, int(32 + 40 * use))
        put("takt_gpu_power_watts", own, int(75 + 600 * use))
        put("takt_gpu_ecc_errors_total", {**own, "type": "corrected", "scope": "lifetime"}, node * gpu % 5)
        put("takt_gpu_xid_errors_total", {**own, "xid": 31}, node * gpu % 3)
        if number is not None:
            put("takt_gpu_process_memory_used_bytes",
                {**own, "pid": 4000 + gpu, "user": USERS[number % len(USERS)], "command": "python"}, 70 * 2**30)
    for cpu in range(4):
        put("node_cpu_seconds_total", {"cpu": cpu, "mode": "idle"}, round(at * 0.6 % 1e7, 2))
    put("node_memory_MemTotal_bytes", {}, 1024 * 2**30)
    put("node_memory_MemAvailable_bytes", {}, (300 + node) * 2**30)
    return "\n".join(out) + "\n"


class Exporter(BaseHTTPRequestHandler):
    nodes = 0

    def do_GET(self):
        node = int(self.path.split("/")[1])
        if node == 5:
            self.send_error(503, "the exporter of this node fails")
            return
        body = page(node).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def config(port, nodes):
    print(f"""cluster = "lab"
timezone = "Europe/Oslo"
[server]
listen_address = "127.0.0.1:{port + 1}"
token_file = "token"
[sql]
listen_address = "127.0.0.1:{port + 2}"
[jobs]
poll = false
[scrape]
interval_seconds = 15""")
    for node in range(1, nodes + 1):
        print(f"""[[scrape.targets]]
url = "http://127.0.0.1:{port}/{node}"
node = "{name(node)}\"""")


def strips(directory, nodes):
    """Writes the file that crates/store/src/strips/file.rs reads."""
    slots, length = 2016, 300
    until = int(time.time()) // length
    first = until - slots + 1
    rest = bytearray(struct.pack("<qq", first, until))
    for node in range(1, nodes + 1):
        for gpu in range(GPUS):
            for text in (name(node), uuid(node, gpu)):
                rest += struct.pack("<H", len(text)) + text.encode()
            ring = bytearray([255] * slots)
            held = job(node, gpu) is not None
            for slot in range(first, until):
                gone = is_lost(node, gpu) and slot > until - 30
                gap = node % 40 == 7 and 400 < until - slot < 450
                if not (gone or gap):
                    ring[slot % slots] = round(utilization(node, gpu, slot * length) * 126) * 2 + held
            rest += ring
    checksum = 0xCBF29CE484222325
    for byte in rest:
        checksum = (checksum ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    with open(f"{directory}/strips.bin", "wb") as file:
        file.write(b"TAKTSTR1" + struct.pack("<Q", checksum) + rest)


def jobs(nodes, count):
    print("JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|NNodes|NCPUS|NodeList|ElapsedRaw")
    now = int(time.time())

    def line(number, user, submit, start, end, state, gpus, node):
        text = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) if at else "Unknown" for at in (submit, start, end)]
        tres = f"cpu={gpus * 8},mem={gpus * 64}G,node=1,gres/gpu={gpus}" if start else ""
        elapsed = (end or now) - start if start else 0
        print(f"{number}|{user}|lab{len(user) % 4}|gpu|{text[0]}|{text[1]}|{text[2]}|{state}|{tres}|1|{gpus * 8}"
              f"|{node if start else 'None assigned'}|{elapsed}")

    running = sorted({(job(node, gpu), node) for node in range(1, nodes + 1) for gpu in range(GPUS) if job(node, gpu)})
    for number, node in running:
        gpus = sum(1 for gpu in range(GPUS) if job(node, gpu) == number)
        start = now - 3600 * (1 + number % 40)
        line(number, USERS[number % len(USERS)], start - 600, start, 0, "RUNNING", gpus, name(node))
    for at in range(nodes):
        line(50_000 + at, USERS[at % 7], now - 60 * at, 0, 0, "PENDING", 8, "")
    for at in range(count):
        end = now - at * 30 * 86_400 // max(count, 1)
        state = ["COMPLETED", "COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY"][at * 7 % 5]
        start = end - 600 - at * 37 % 20_000
        line(100_000 + at, USERS[at % 10], start - at % 4000, start, end, state, 1 + at % 8, name(1 + at % nodes))


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "serve":
        ThreadingHTTPServer.request_queue_size = 512
        ThreadingHTTPServer(("127.0.0.1", int(arguments[0])), Exporter).serve_forever()
    elif what == "config":
        config(int(arguments[0]), int(arguments[1]))
    elif what == "strips":
        strips(arguments[0], int(arguments[1]))
    else:
        jobs(int(arguments[0]), int(arguments[1]))
