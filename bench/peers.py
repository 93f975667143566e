#!/usr/bin/env python3
"""Takt beside Prometheus and VictoriaMetrics, all scraping the same nodes at one second.

    bench/peers.py [NODES [SECONDS]]

Prints for each: CPU a sample (for takt with sealing), resident bytes and bytes a series (mean of the last quarter of the time), disk
bytes a sample (sealed, or in blocks), how long until a sample is visible, and the longest time that the newest sample stood still.
ONLY=takt leaves the others out. They are the releases that scripts/peers.sh builds, else the installed ones; PROMETHEUS and VICTORIA
name other programs. DUCKDB_MEMORY_MIB sets takt's limit for DuckDB. Figures are compared with `recorded.json`.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import programs
import recorded

HERE = pathlib.Path(__file__).resolve().parent
CAPTURES = sorted(str(path) for path in (HERE / "pages").glob("*.jsonl.gz"))
NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 60
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 90
QUERY = "max(timestamp(node_load1))"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(url, data=None, token=None):
    request = urllib.request.Request(url, data=data)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    return urllib.request.urlopen(request, timeout=120).read()


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid):
    return int(open(f"/proc/{pid}/statm").read().split()[1]) * 4096


def size(path):
    return sum(f.stat().st_size for f in pathlib.Path(path).rglob("*") if f.is_file())


def metric(url, name):
    lines = get(url).decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == name)


class Peer:
    def __init__(self, name, command, port, directory):
        self.name, self.port, self.directory = name, port, directory
        self.log = open(directory / f"{name}.log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=directory)
        self.base = f"http://127.0.0.1:{port}"
        self.lags, self.stalls, self.newest, self.moved = [], [], None, None
        self.resident = []

    def ready(self):
        deadline = time.time() + 60
        while time.time() < deadline:
            try:
                get(self.base + ("/-/healthy" if self.name != "victoria-metrics" else "/health"))
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit(f"{self.name} does not answer, see {self.log.name}")

    def look(self):
        """Age of the newest sample that a query sees."""
        url = f"{self.base}/api/v1/query?" + urllib.parse.urlencode({"query": QUERY, **self.extra})
        result = json.loads(get(url))["data"]["result"]
        now = time.time()
        if not result:
            return
        newest = float(result[0]["value"][1])
        self.lags.append(now - newest)
        if newest != self.newest:
            if self.moved:
                self.stalls.append(now - self.moved)
            self.newest, self.moved = newest, now

    extra = {}


class Takt(Peer):
    def samples(self):
        return metric(self.base + "/metrics", "takt_store_samples_total")

    def series(self):
        return metric(self.base + "/metrics", "takt_store_series")

    def settle(self):
        """Seals all samples; its CPU time counts."""
        holder = json.loads((self.directory / "data" / "takt.lock").read_text())
        get(self.base + "/api/takt/v1/store/seal", b"", holder["token"])
        stat = json.loads(get(self.base + "/api/takt/v1/store"))
        blocks = stat["blocks"]
        return sum(b["bytes"] for b in blocks) / max(1, sum(b["rows"] for b in blocks))


class Prometheus(Peer):
    def samples(self):
        return metric(self.base + "/metrics", "prometheus_tsdb_head_samples_appended_total")

    def series(self):
        return metric(self.base + "/metrics", "prometheus_tsdb_head_series")

    def settle(self):
        """Blocks as far as there are any: its configured block length is two minutes, and it writes a block after three."""
        bytes_, samples = 0, 0
        for meta in (self.directory / "prometheus").glob("*/meta.json"):
            bytes_ += size(meta.parent)
            samples += json.loads(meta.read_text())["stats"]["numSamples"]
        return bytes_ / samples if samples else float("nan")


class Victoria(Peer):
    extra = {"nocache": "1", "latency_offset": "1ms"}

    def samples(self):
        return metric(self.base + "/metrics", "vm_rows_inserted_total")

    def series(self):
        return metric(self.base + "/metrics", "vm_new_timeseries_created_total")

    def settle(self):
        get(self.base + "/internal/force_flush")
        get(self.base + "/internal/force_merge")
        time.sleep(8)
        rows = sum(metric_by(self.base + "/metrics", "vm_rows", kind) for kind in ("storage/big", "storage/small", "storage/inmemory"))
        return size(self.directory / "victoria" / "data") / max(1, rows)


def metric_by(url, name, kind):
    lines = get(url).decode().splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith(name + "{") and f'type="{kind}"' in l)


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="takt-peers-"))
    nodes = free_port()
    replay = subprocess.Popen([sys.executable, str(HERE / "replay.py"), str(nodes), str(SECONDS + 60), *CAPTURES])
    targets = [f"127.0.0.1:{nodes}"] * NODES
    scrape = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" + "".join(
        f"- job_name: node{n}\n  metrics_path: /{n}/metrics\n  static_configs: [{{targets: ['{t}'], labels: {{node: 'node{n}'}}}}]\n"
        for n, t in enumerate(targets)
    )
    (directory / "scrape.yml").write_text(scrape)
    ports = [free_port() for _ in range(3)]
    toml = f'cluster = "bench"\ndata_dir = "data"\n[server]\nlisten_address = "127.0.0.1:{ports[0]}"\n[jobs]\npoll = false\n'
    toml += "[alerts]\nenabled = false\n[store]\nmin_free_bytes = 0\n"
    if "DUCKDB_MEMORY_MIB" in os.environ:
        toml += f"duckdb_memory_mib = {int(os.environ['DUCKDB_MEMORY_MIB'])}\n"
    toml += "[scrape]\ninterval_seconds = 1.0\ntimeout_seconds = 1.0\n"
    toml += "".join(f'[[scrape.targets]]\nurl = "http://{t}/{n}/metrics"\nnode = "node{n}"\n' for n, t in enumerate(targets))
    (directory / "takt.toml").write_text(toml)
    takt = os.environ.get("TAKT", str(HERE.parent / "target" / "release" / "takt"))
    wanted = [name for name in ("takt", "prometheus", "victoria-metrics") if name in os.environ.get("ONLY", name)]
    prometheus = programs.current("prometheus", "PROMETHEUS") if "prometheus" in wanted else ""
    victoria = programs.current("victoria-metrics", "VICTORIA") if "victoria-metrics" in wanted else ""
    commands = [
        (Takt, "takt", [takt, "serve", "--config", "takt.toml"]),
        (Prometheus, "prometheus", [prometheus, "--config.file=scrape.yml", "--storage.tsdb.path=prometheus",
            f"--web.listen-address=127.0.0.1:{ports[1]}", "--storage.tsdb.min-block-duration=2m", "--storage.tsdb.max-block-duration=2m"]),
        (Victoria, "victoria-metrics", [victoria, "-promscrape.config=scrape.yml", "-storageDataPath=victoria",
            f"-httpListenAddr=127.0.0.1:{ports[2]}", "-loggerLevel=ERROR"]),
    ]
    peers, figures = [], {}
    try:
        for (kind, name, command), port in zip(commands, ports):
            if name not in wanted:
                continue
            if shutil.which(command[0]):
                peers.append(kind(name, command, port, directory))
            else:
                print(f"{name} is not here and left out", file=sys.stderr)
        for peer in peers:
            peer.ready()
        time.sleep(15)  # the first scrapes create the series; only later ones are measured
        before = {peer: (cpu(peer.process.pid), peer.samples()) for peer in peers}
        time.sleep(SECONDS * 3 / 4)
        for _ in range(max(1, SECONDS // 4)):
            time.sleep(1)
            for peer in peers:
                peer.resident.append(resident(peer.process.pid))
        after = {peer: (cpu(peer.process.pid), peer.samples()) for peer in peers}
        # Queries use CPU too, so they run outside of the measured ingest.
        end = time.time() + 20
        while time.time() < end:
            for peer in peers:
                peer.look()
            time.sleep(0.2)
        print(f"{NODES} nodes, {SECONDS} s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'':18}{'samples':>10}{'series':>9}{'µs CPU':>8}{'sealed':>8}{'MiB':>7}{'B/series':>10}{'B/sample':>10}{'visible p50':>13}{'p99':>7}{'stall':>7}")
        for peer in peers:
            cpu_0, samples_0 = before[peer]
            cpu_1, samples = after[peer][0], after[peer][1] - samples_0
            memory = sum(peer.resident) / len(peer.resident)
            all_samples, before_sealing = peer.samples(), cpu(peer.process.pid)
            on_disk = peer.settle()
            sealing = (cpu(peer.process.pid) - before_sealing) / all_samples if peer.name == "takt" else 0.0
            ingest = (cpu_1 - cpu_0) / samples
            lags = sorted(peer.lags) or [float("nan")]
            if peer.name == "takt":
                figures["µs CPU a sample"] = ingest * 1e6
                figures["µs CPU a sample, with sealing"] = (ingest + sealing) * 1e6
                figures["MiB resident"] = memory / 2**20
                figures["bytes a sample on disk"] = on_disk
                ours = ingest + sealing
            elif figures:
                figures[f"CPU a sample, with sealing, to {peer.name}"] = ours / ingest
            print(
                f"{peer.name:18}{samples:10.0f}{peer.series():9.0f}{ingest * 1e6:8.2f}{(ingest + sealing) * 1e6:8.2f}"
                f"{memory / 2**20:7.0f}{memory / max(1, peer.series()):10.0f}{on_disk:10.2f}{lags[len(lags) // 2]:12.2f}s{lags[len(lags) * 99 // 100]:6.2f}s{max(peer.stalls, default=float('nan')):6.2f}s"
            )
    finally:
        for process in [peer.process for peer in peers] + [replay]:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(directory, ignore_errors=True)
    return 1 if recorded.check(f"peers {NODES} {SECONDS}", figures) else 0


if __name__ == "__main__":
    sys.exit(main())
