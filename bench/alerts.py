#!/usr/bin/env python3
"""Latency of alerts: from a line in the kernel log to the request that Slack receives.

    alerts.py latency [FAULTS]   one fault at a time, 2 s apart (GAP): p50, p99, the worst
    alerts.py peer [FAULTS]      the same exporter behind Debian's Prometheus and Alertmanager, everything at 1 s
    alerts.py storm [NODES]      all nodes fail at once: how many messages within 30 s
    alerts.py cycle [ALERTS]     that many firing, 60 rules over 100,000 series: CPU of an evaluation of all of them
    alerts.py soak [KILLS]       kill -9 at random moments after a fault: what was lost, what came twice

Programs: target/release/takt (TAKT), tests/whole/support/slack.py as Slack. Everything runs on loopback in a fresh directory.
"""

import asyncio
import http.server
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TAKT = os.environ.get("TAKT", os.path.join(HERE, "../target/release/takt"))
SLACK = os.path.join(HERE, "../tests/whole/support/slack.py")
SOON = int(os.environ.get("SOON", "60"))
GAP = float(os.environ.get("GAP", "2"))
# With the channel's id (C1) Takt finds an unanswered message; with its name it may send it twice.
CHANNEL = os.environ.get("CHANNEL", "#gpu")
# A server that has run for less than the look-back of queries reads its database for what came before it.
WARM = float(os.environ.get("WARM", "310"))

# Each fault has its own alert and group, so each message is the first of an episode.
RULES = """
groups:
- name: bench
  rules:
  - alert: GpuXid
    when: [{kind: xid}]
    by: [node, xid, pci_bus_id]
    hold: %s
    labels: {severity: critical}
    annotations: {summary: 'XID {{ $labels.xid }} at {{ $labels.pci_bus_id }}'}
"""
ROUTES = """
global: {slack_app_url: '%s/api', slack_app_token: xoxb-test}
route: {receiver: ops, group_by: [%s], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers:
- name: ops
  slack_configs: [{channel: '%s', send_resolved: true}]
"""


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fetch(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as reply:
        return reply.read().decode()


def wait(what, ready, limit=SOON):
    deadline = time.time() + limit
    while time.time() < deadline:
        try:
            result = ready()
        except OSError:
            result = None
        if result:
            return result
        time.sleep(0.05)
    sys.exit(f"no {what} within {limit} s")


class Lab:
    """Programs in a directory of their own; closing the lab ends them."""

    def __init__(self, burst=5, hold="1s", group_by="'...'", targets=None):
        self.dir = tempfile.TemporaryDirectory(prefix="takt-bench-")
        self.running = []
        os.mkdir(self.path("rules"))
        self.slack_url = "http://127.0.0.1:%d" % self.slack(burst)
        self.write("kmsg", "")
        self.write("rules/bench.events.yml", RULES % hold)
        self.write("am.yml", ROUTES % (self.slack_url, group_by, CHANNEL))
        self.address = "127.0.0.1:%d" % free_port()
        self.node = "127.0.0.1:%d" % free_port()
        targets = targets or [(f"http://{self.node}/metrics", "g01")]
        scrape = "".join(f"[[scrape.targets]]\nurl = '{url}'\nnode = '{node}'\n" for url, node in targets)
        self.write("takt.toml", f"""
cluster = 'bench'
server.listen_address = '{self.address}'
jobs.poll = false
[alerts]
alertmanager_file = 'am.yml'
shipped_rules = false
rule_dirs = ['rules']
[scrape]
interval_seconds = {1 if len(targets) == 1 else 30}
timeout_seconds = {1 if len(targets) == 1 else 25}
{scrape}""")

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, name, *command, **options):
        log = open(self.path(name + ".log"), "ab")
        process = subprocess.Popen(command, cwd=self.dir.name, stdout=options.pop("stdout", log), stderr=log, **options)
        self.running.append(process)
        return process

    def slack(self, burst):
        process = self.run("slack", sys.executable, SLACK, self.path("taken"), "--burst", str(burst), stdout=subprocess.PIPE)
        return int(process.stdout.readline())

    def exporter(self):
        command = [TAKT, "exporter", "--web.listen-address", self.node, "--path.kmsg", self.path("kmsg")]
        self.run("exporter", *command, "--state-directory", self.path("state"))
        wait("exporter", lambda: fetch(f"http://{self.node}/metrics"))

    def serve(self):
        process = self.run("takt", TAKT, "serve", "--config", "takt.toml", "--data-dir", self.path("data"))
        wait("server", lambda: fetch(f"http://{self.address}/-/healthy"))
        return process

    def listeners(self):
        page = fetch(f"http://{self.node}/metrics")
        return any(line.startswith("takt_events_listeners 1") for line in page.splitlines())

    def fault(self, number):
        with open(self.path("kmsg"), "a", encoding="utf-8") as file:
            file.write(f"NVRM: Xid (PCI:{number:04x}:06:00): 79, pid=1, name=x, GPU has fallen off the bus.\n")

    def taken(self, path):
        with open(self.path("taken"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return [line for line in lines if line["path"].startswith(path)]

    def sql(self, statement):
        command = [TAKT, "sql", "--format", "json", "--data-dir", self.path("data"), statement]
        return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)

    def cpu(self, process):
        with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        if error:
            subprocess.run("tail -n 5 *.log", shell=True, cwd=self.dir.name, check=False)
        for process in reversed(self.running):
            process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.dir.cleanup()


def tell(name, waits):
    waits = sorted(waits)
    rank = lambda share: waits[min(len(waits) - 1, int(share * len(waits)))]
    print(f"{name}: {len(waits)} faults, p50 {statistics.median(waits):.3f} s, p99 {rank(0.99):.3f} s, "
          f"worst {waits[-1]:.3f} s")


def latency(faults):
    with Lab(burst=10) as lab:
        lab.exporter()
        lab.serve()
        wait("listener", lab.listeners)
        begun = {}
        for number in range(1, faults + 1):
            begun[number] = time.time()
            lab.fault(number)
            time.sleep(GAP)
        def all_there():
            posts = lab.taken("/api/chat.postMessage")
            found = {number: [p["at"] for p in posts if f"{number:04x}:06:00" in p["body"]] for number in begun}
            return found if all(found.values()) else None
        found = wait("message for every fault", all_there)
        tell("takt", [min(found[number]) - at for number, at in begun.items()])


def peer(faults):
    """Each fault raises the counter of XIDs for one scrape; three seconds later the alert ends."""
    with Lab() as lab:
        lab.exporter()
        am, prom = free_port(), free_port()
        lab.write("peer-am.yml", f"""
route: {{receiver: hook, group_wait: 0s, group_interval: 1s, repeat_interval: 1h, group_by: [alertname]}}
receivers:
- name: hook
  webhook_configs: [{{url: '{lab.slack_url}/peer', send_resolved: true}}]
""")
        lab.write("peer.rules.yml", """
groups:
- name: peer
  interval: 1s
  rules:
  - {alert: GpuXid, expr: 'changes(takt_events_total{kind="xid"}[3s]) > 0'}
""")
        lab.write("peer.yml", f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [peer.rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{am}']}}]}}]}}
scrape_configs: [{{job_name: takt, static_configs: [{{targets: ['{lab.node}']}}]}}]
""")
        lab.run("alertmanager", "prometheus-alertmanager", "--config.file=peer-am.yml", "--storage.path=am-data",
                f"--web.listen-address=127.0.0.1:{am}", "--cluster.listen-address=")
        lab.run("prometheus", "prometheus", "--config.file=peer.yml", "--storage.tsdb.path=prom-data",
                f"--web.listen-address=127.0.0.1:{prom}")
        wait("prometheus", lambda: fetch(f"http://127.0.0.1:{prom}/-/ready"))
        wait("alertmanager", lambda: fetch(f"http://127.0.0.1:{am}/-/ready"))
        wait("scrape", lambda: '"1"]' in fetch(f"http://127.0.0.1:{prom}/api/v1/query?query=up"))
        time.sleep(3)
        waits = []
        for number in range(1, faults + 1):
            begun = time.time()
            lab.fault(number)
            told = lambda: [p["at"] for p in lab.taken("/peer") if p["at"] > begun and '"status":"firing"' in p["body"]]
            waits.append(wait("message of the peer", told)[0] - begun)
            # Waits until the alert has ended, its end was sent, and the group is gone; with a random offset to the scrapes.
            wait("its end", lambda: [p for p in lab.taken("/peer") if p["at"] > begun and '"status":"resolved"' in p["body"]])
            time.sleep(2 + random.random())
        tell("prometheus and alertmanager", waits)


async def exporters(port, count, trigger):
    """Many exporters in one program: a page each, and an event when the trigger comes."""
    async def serve(reader, writer):
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = request.split(" ")[1]
        if path.endswith("/metrics"):
            body = b"# TYPE bench_up gauge\nbench_up 1\n"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
            return writer.close()
        trigger["listening"] += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: hello\n\n")
        await writer.drain()
        await trigger["fault"].wait()
        event = {"id": 1, "at": int(time.time() * 1000), "kind": "xid", "message": "NVRM: Xid (PCI:0000:06:00): 79",
                 "labels": {"xid": "79", "pci_bus_id": "0000:06:00.0"}}
        writer.write(b"id: 1\ndata: " + json.dumps(event).encode() + b"\n\n")
        await writer.drain()
        await asyncio.sleep(3600)

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=4096)
    trigger["nodes"] = count
    return server


def storm(nodes):
    port = free_port()
    targets = [(f"http://127.0.0.1:{port}/n{n}/metrics", f"n{n:04}") for n in range(nodes)]

    async def run():
        # At the end waiting connections are cut off, which is expected.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        trigger = {"listening": 0, "fault": asyncio.Event()}
        await exporters(port, nodes, trigger)
        with Lab(hold="1h", group_by="alertname", targets=targets) as lab:
            process = await asyncio.to_thread(lab.serve)
            deadline = time.time() + 120
            while trigger["listening"] < nodes and time.time() < deadline:
                await asyncio.sleep(0.1)
            print(f"{trigger['listening']} of {nodes} exporters are listened to")
            cpu, begun = lab.cpu(process), time.time()
            trigger["fault"].set()
            await asyncio.sleep(30)
            posts = [p for p in lab.taken("/api/chat.postMessage") if p["status"] == 200]
            count = await asyncio.to_thread(lab.sql, "SELECT count(*) AS n FROM alert_transitions WHERE state_after = 'firing'")
            print(f"storm: {count[0]['n']} alerts fire; {len(posts)} messages within 30 s, the first after "
                  f"{posts[0]['at'] - begun:.3f} s, the last after {posts[-1]['at'] - begun:.3f} s; "
                  f"{lab.cpu(process) - cpu:.1f} s CPU")

    asyncio.run(run())


def cycle(firing):
    """The same server with and without rules, a minute each once it is warm: the difference is what rules cost."""
    nodes, series = 20, 5_000
    pages = {}
    for node in range(nodes):
        hot = firing // nodes
        lines = [f'bench_value{{gpu="{n}",part="{n % 59}"}} {95 if n < hot else 20}' for n in range(series)]
        pages[f"/n{node}/metrics"] = ("# TYPE bench_value gauge\n" + "\n".join(lines) + "\n").encode()
    port = free_port()

    class Pages(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            page = pages.get(self.path)
            self.send_response(200 if page else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    targets = [(f"http://127.0.0.1:{port}/n{n}/metrics", f"n{n:02}") for n in range(nodes)]
    quiet = "".join(f"  - {{alert: Q{k}, expr: 'sum by (node) (bench_value{{part=\"{k}\"}}) > 1e9'}}\n" for k in range(59))
    rules = f"groups:\n- name: bench\n  interval: 15s\n  rules:\n  - {{alert: Hot, expr: 'bench_value > 90'}}\n{quiet}"
    spent = {}
    for name, text in [("without rules", "groups: []\n"), ("with rules", rules)]:
        with Lab(group_by="alertname", targets=targets) as lab:
            lab.write("rules/bench.rules.yml", text)
            process = lab.serve()
            alerts = lambda: int(float(next(line.split()[-1] for line in fetch(f"http://{lab.address}/metrics").splitlines()
                                            if line.startswith("takt_alerts_active "))))
            if text is rules:
                wait(f"{firing} alerts", lambda: alerts() >= firing, 120)
            else:
                time.sleep(25)
            time.sleep(WARM)
            cpu = lab.cpu(process)
            time.sleep(60)
            spent[name] = lab.cpu(process) - cpu
            took = [line for line in fetch(f"http://{lab.address}/metrics").splitlines()
                    if line.startswith("takt_alerts_evaluation_seconds ")]
            print(f"cycle: {name}: {spent[name]:.2f} s CPU in 60 s; {alerts()} alerts; {took[0]}")
    print(f"cycle: {(spent['with rules'] - spent['without rules']) / 4:.2f} s CPU an evaluation of 60 rules")


def soak(kills):
    seed = int(os.environ.get("SOAK_SEED", time.time()))
    chance = random.Random(seed)
    with Lab(burst=1000, hold="1s") as lab:
        lab.exporter()
        process = lab.serve()
        wait("listener", lab.listeners)
        in_flight = 0
        for number in range(1, kills + 1):
            # More than one event a second is a flood, of which the exporter only counts some.
            next_fault = time.monotonic() + 1.05
            lab.fault(number)
            time.sleep(chance.uniform(0, 0.3))
            process.send_signal(signal.SIGKILL)
            process.wait()
            lab.running.remove(process)
            # Sent to the channel without a committed answer: only these may arrive twice.
            in_flight += lab.sql("SELECT count(*) AS n FROM notifications WHERE state = 'sending'")[0]["n"]
            process = lab.serve()
            time.sleep(max(0, next_fault - time.monotonic()))
        wait("listener", lab.listeners)
        def sent():
            return lab.sql("SELECT count(*) AS n FROM notifications WHERE state = 'sent' AND reason IN ('first_firing', 'resolved')")[0]["n"]
        # On a busy machine a server is killed before it has sent all that waits. Only progress to the end matters.
        while (before := sent()) < 2 * kills:
            wait("further message", lambda: sent() > before, 120)
        posts = [p["body"] for p in lab.taken("/api/chat.postMessage") if p["status"] == 200]
        told = [sum(f"{number:04x}:06:00" in body and "[FIRING" in body for body in posts) for number in range(1, kills + 1)]
        lost, twice = sum(times == 0 for times in told), sum(max(0, times - 1) for times in told)
        uneven = lab.sql("""SELECT group_key, sum((reason = 'first_firing')::INT) AS begun, sum((reason = 'resolved')::INT) AS over
                            FROM notifications GROUP BY group_key HAVING begun <> 1 OR over <> 1""")
        print(f"soak: {kills} kills (seed {seed}): {lost} faults never told, {twice} messages twice "
              f"of {in_flight} in flight, "
              f"{len(uneven)} episodes without exactly one beginning and one end")
        if lost or uneven or twice > in_flight:
            print(json.dumps(uneven[:10], indent=1))
            sys.exit(1)


def main():
    modes = {"latency": (latency, 50), "peer": (peer, 15), "storm": (storm, 1000), "cycle": (cycle, 10000), "soak": (soak, 20)}
    if len(sys.argv) < 2 or sys.argv[1] not in modes:
        sys.exit(__doc__)
    run, count = modes[sys.argv[1]]
    run(int(sys.argv[2]) if len(sys.argv) > 2 else count)


main()
