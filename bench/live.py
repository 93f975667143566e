#!/usr/bin/env python3
"""Takt beside Prometheus and VictoriaMetrics on live data: all scrape, and answer a dashboard's queries meanwhile.

    bench/live.py [NODES [INTERVAL [MINUTES]]]

All scrape the same captured nodes (18) each INTERVAL (5) seconds. A minute after the start, and after MINUTES (10), the panels of
`query.py` are asked over several ranges, each once after a first round. Then all are killed and started again, and the panels are
asked at once, without a first round. Nothing is sealed before that, unless SEAL_MINUTES says so. Prints totals and percentiles, the
time until each start answered, CPU a sample and memory, the ratios, and regressions against `recorded.json`.
Prometheus and VictoriaMetrics are the releases that scripts/peers.sh builds, else the installed ones; without both, the rows are
missing. PROMETHEUS, VICTORIA and TAKT name other programs. ONLY=takt leaves the others out, ONLY=takt,prometheus one of them.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import programs
import query
import recorded

HERE = pathlib.Path(__file__).resolve().parent
CAPTURES = sorted(str(path) for path in (HERE / "pages").glob("*.jsonl.gz"))
NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 18
INTERVAL = int(sys.argv[2]) if len(sys.argv) > 2 else 5
MINUTES = float(sys.argv[3]) if len(sys.argv) > 3 else 10
RANGES = (900, 3600, 3 * 3600, 24 * 3600)
PORTS = {"nodes": 19200, "takt": 19201, "prometheus": 19202, "victoria-metrics": 19203}
SAMPLES = {
    "takt": "takt_store_samples_total",
    "prometheus": "prometheus_tsdb_head_samples_appended_total",
    "victoria-metrics": "vm_rows_inserted_total",
}


def name_of(seconds):
    return f"{seconds // 60} min" if seconds < 3600 else f"{seconds // 3600} h"


class Server:
    def __init__(self, name, command, directory):
        self.name, self.command, self.directory = name, command, directory
        self.url = f"http://127.0.0.1:{PORTS[name]}"
        self.start()

    def start(self):
        self.began = time.time()
        log = open(self.directory / f"{self.name}.log", "a")
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.directory)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def answers(self):
        """Seconds from the start until a query returned a fresh sample."""
        ask = f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": f"count(up == 1) and on() (time() - max(timestamp(up)) < {3 * INTERVAL})"})
        while time.time() < self.began + 120:
            try:
                if json.loads(urllib.request.urlopen(ask, timeout=60).read())["data"]["result"]:
                    return time.time() - self.began
            except OSError:
                pass
            time.sleep(0.02)
        raise SystemExit(f"{self.name} does not answer, see {self.directory}/{self.name}.log")

    def samples(self):
        metric = SAMPLES[self.name]
        lines = urllib.request.urlopen(f"{self.url}/metrics").read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.split("{")[0].split(" ")[0] == metric)

    def ask(self, panel, seconds):
        step = max(INTERVAL, seconds // 300)
        end = int(time.time()) // step * step
        form = {"query": panel, "start": end - seconds, "end": end, "step": step}
        began = time.perf_counter()
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range", urllib.parse.urlencode(form).encode()) as answer:
            body = answer.read()
        if not json.loads(body)["data"]["result"]:
            self.empty.add(panel)
        return time.perf_counter() - began

    def dashboard(self, seconds, warm):
        """Times of all panels, sorted, and CPU seconds."""
        self.empty = set()
        if warm:
            for panel in query.PANELS:
                self.ask(panel, seconds)
        before = query.cpu(self.process.pid)
        times = sorted(self.ask(panel, seconds) for panel in query.PANELS for _ in range(3 if warm else 1))
        return times, query.cpu(self.process.pid) - before


def show(servers, title, figures, warm=True):
    print(f"\n{title}")
    print(f"{'':16} {'range':>7} {'total':>9} {'p50':>10} {'p95':>10} {'p99':>10} {'CPU':>8}")
    cpu = {server.name: 0.0 for server in servers}
    for seconds in RANGES:
        totals = {}
        for server in servers:
            times, used = server.dashboard(seconds, warm)
            cpu[server.name] += used
            p50, p95, p99 = (times[int(len(times) * part)] for part in (0.5, 0.95, 0.99))
            totals[server.name] = (sum(times), p95, p99)
            empty = f"  {len(server.empty)} empty" if server.empty else ""
            print(
                f"{server.name:16} {name_of(seconds):>7} {sum(times):7.2f} s {p50 * 1e3:7.1f} ms {p95 * 1e3:7.1f} ms "
                f"{p99 * 1e3:7.1f} ms {used:6.2f} s{empty}"
            )
        ours = totals.pop("takt", None)
        for peer, theirs in totals.items():
            if ours is None:
                continue
            ratios = [mine / other for mine, other in zip(ours, theirs)]
            print(f"{'to ' + peer:19.19} {name_of(seconds):>4} {ratios[0]:7.2f} {'':12} {ratios[1]:7.2f} {ratios[2]:10.2f}")
            of_peer = "" if peer == "prometheus" else f", to {peer}"
            for figure, ratio in zip(("total", "p95", "p99"), ratios):
                figures[f"{title}, {name_of(seconds)}, {figure}{of_peer}"] = ratio
    for peer in cpu.keys() - {"takt"}:
        if "takt" in cpu and warm:
            ratio = cpu["takt"] / cpu[peer]
            print(f"{'to ' + peer:19.19} {'all':>4} {'':49} {ratio:5.2f}")
            figures[f"{title}, all ranges, CPU to {peer}"] = ratio


def main():
    directory = pathlib.Path(os.environ.get("KEEP") or tempfile.mkdtemp(prefix="takt-live-"))
    directory.mkdir(exist_ok=True)
    replay = subprocess.Popen([sys.executable, str(HERE / "replay.py"), str(PORTS["nodes"]), "7200", *CAPTURES])
    target = f"127.0.0.1:{PORTS['nodes']}"
    scrape = f"global: {{scrape_interval: {INTERVAL}s, scrape_timeout: {INTERVAL}s}}\nscrape_configs:\n" + "".join(
        f"- job_name: node{n}\n  metrics_path: /{n}/metrics\n  static_configs: [{{targets: ['{target}'], labels: {{node: 'n{n:02}'}}}}]\n"
        for n in range(NODES)
    )
    (directory / "scrape.yml").write_text(scrape)
    toml = f'cluster = "bench"\ndata_dir = "data"\n[server]\nlisten_address = "127.0.0.1:{PORTS["takt"]}"\n[sql]\nlisten_address = ""\n'
    toml += f"[jobs]\npoll = false\n[alerts]\nenabled = false\n[store]\nmin_free_bytes = 0\nseal_minutes = {os.environ.get('SEAL_MINUTES', '60')}\n"
    toml += f"[scrape]\ninterval_seconds = {INTERVAL}.0\ntimeout_seconds = {INTERVAL}.0\n"
    toml += "".join(f'[[scrape.targets]]\nurl = "http://{target}/{n}/metrics"\nnode = "n{n:02}"\n' for n in range(NODES))
    (directory / "takt.toml").write_text(toml)
    takt = os.environ.get("TAKT", str(HERE.parent / "target" / "release" / "takt"))
    prometheus = programs.current("prometheus", "PROMETHEUS")
    victoria = programs.current("victoria-metrics", "VICTORIA")
    commands = {
        "prometheus": [prometheus, "--config.file=scrape.yml", "--storage.tsdb.path=prometheus", f"--web.listen-address=127.0.0.1:{PORTS['prometheus']}"],
        # It answers for samples that are older than this.
        "victoria-metrics": [victoria, "-promscrape.config=scrape.yml", "-storageDataPath=victoria",
            f"-httpListenAddr=127.0.0.1:{PORTS['victoria-metrics']}", "-search.latencyOffset=1ms", "-loggerLevel=ERROR"],
        "takt": [takt, "serve", "--config", "takt.toml"],
    }
    servers, figures = [], {}
    try:
        time.sleep(1)
        for name, command in commands.items():
            if name not in os.environ.get("ONLY", name).split(","):
                continue
            if shutil.which(command[0]):
                servers.append(Server(name, command, directory))
            else:
                print(f"{name} is not here and left out", file=sys.stderr)
        for server in servers:
            server.answers()
        print(f"{NODES} nodes each {INTERVAL} s, load {os.getloadavg()[0]:.1f}")
        time.sleep(60)
        show(servers, "after a minute", figures)
        before = [(query.cpu(server.process.pid), server.samples()) for server in servers]
        time.sleep(60 * MINUTES)
        for server, (cpu, samples) in zip(servers, before):
            used = (query.cpu(server.process.pid) - cpu) / (server.samples() - samples)
            memory = query.memory(server.process.pid, "VmRSS")
            print(f"{server.name:16} {used * 1e6:7.2f} µs CPU a sample, {memory:7.0f} MiB resident")
            if server.name == "takt":
                figures["µs CPU a sample"] = used * 1e6
                figures["MiB resident"] = memory
        show(servers, f"after {MINUTES:g} minutes", figures)
        for server in servers:
            server.kill()
            server.start()
            took = server.answers()
            print(f"\n{server.name} answered {took:.2f} s after a kill and a start")
            if server.name == "takt":
                figures["seconds to the first answer"] = took
        show(servers, "cold", figures, warm=False)
        for server in servers:
            print(f"{server.name}: at most {query.memory(server.process.pid, 'VmHWM'):.0f} MiB resident")
    finally:
        for process in [server.process for server in servers] + [replay]:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        if not os.environ.get("KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
    print()
    return 1 if recorded.check(f"live {NODES} {INTERVAL} {MINUTES:g}", figures) else 0


if __name__ == "__main__":
    sys.exit(main())
