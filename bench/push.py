#!/usr/bin/env python3
"""CPU of pushed samples beside scraped ones.

    bench/push.py [NODES [SECONDS]]

Takt scrapes nodes at one second. Then a Prometheus scrapes the same nodes and pushes the samples by remote write: to a new Takt, and
to VictoriaMetrics if it is here. Prints the CPU of each receiver per sample, for takt with sealing. The peers are the releases that
scripts/peers.sh builds, else the installed ones; PROMETHEUS, VICTORIA and TAKT name other programs. VERSION=2 pushes remote write 2.0,
which needs Prometheus 3. SAMPLES_PER_SEND sets the size of its requests (2,000 samples unless given).
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

sys.argv, arguments = sys.argv[:1], sys.argv[1:]
NODES = int(arguments[0]) if arguments else 60
SECONDS = int(arguments[1]) if len(arguments) > 1 else 60
TOKEN = "0123456789abcdef-bench"
HERE = pathlib.Path(__file__).resolve().parent
CAPTURES = sorted(str(path) for path in (HERE / "pages").glob("*.jsonl.gz"))
TAKT = os.environ.get("TAKT", str(HERE.parent / "target" / "release" / "takt"))
sys.path.insert(0, str(HERE))
import programs  # noqa: E402
from peers import cpu, free_port, get, metric  # noqa: E402

PROMETHEUS = programs.current("prometheus", "PROMETHEUS")
VICTORIA = programs.current("victoria-metrics", "VICTORIA")


def start(command, directory, name):
    log = open(directory / f"{name}.log", "a")
    return subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)


def stop(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()


def until_ready(url):
    for _ in range(300):
        try:
            return get(url)
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


def measure(process, samples):
    """CPU per sample, and the number of samples."""
    cpu_0, samples_0 = cpu(process.pid), samples()
    time.sleep(SECONDS)
    count = samples() - samples_0
    return (cpu(process.pid) - cpu_0) / max(1, count), count


def takt(directory, port, targets):
    folder = directory / ("scraped" if targets else "pushed")
    folder.mkdir()
    (folder / "token").write_text(TOKEN)
    toml = f'cluster = "bench"\ndata_dir = "data"\n[server]\nlisten_address = "127.0.0.1:{port}"\n[jobs]\npoll = false\n'
    toml += "[alerts]\nenabled = false\n[store]\nmin_free_bytes = 0\n[scrape]\ninterval_seconds = 1.0\ntimeout_seconds = 1.0\n"
    toml += "".join(f'[[scrape.targets]]\nurl = "{url}"\nnode = "node{n}"\n' for n, url in enumerate(targets))
    toml += '[[push.senders]]\nname = "bench"\ntoken_file = "token"\n'
    (folder / "takt.toml").write_text(toml)
    process = start([TAKT, "serve", "--config", "takt.toml"], folder, "takt")
    base = f"http://127.0.0.1:{port}"
    until_ready(base + "/-/ready")
    return process, folder, lambda: metric(base + "/metrics", "takt_store_samples_total"), base


def sealed(process, folder, base, samples):
    """CPU of sealing, per sample."""
    token = json.loads((folder / "data" / "takt.lock").read_text())["token"]
    all_samples, before = samples(), cpu(process.pid)
    get(base + "/api/takt/v1/store/seal", b"", token)
    return (cpu(process.pid) - before) / all_samples


def prometheus(directory, targets, url):
    folder = directory / "sender"
    folder.mkdir()
    protobuf = "  protobuf_message: io.prometheus.write.v2.Request\n" if os.environ.get("VERSION") == "2" else ""
    text = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" + "".join(
        f"- job_name: node{n}\n  metrics_path: /{n}/metrics\n  static_configs: [{{targets: ['{target.split('/')[2]}'], labels: {{node: 'node{n}'}}}}]\n"
        for n, target in enumerate(targets)
    )
    text += f"remote_write:\n- url: {url}\n  authorization: {{credentials: '{TOKEN}'}}\n{protobuf}"
    if size := int(os.environ.get("SAMPLES_PER_SEND", 0)):
        text += f"  queue_config: {{max_samples_per_send: {size}, capacity: {5 * size}}}\n"
    (folder / "prometheus.yml").write_text(text)
    command = [PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{free_port()}"]
    return start(command, folder, "prometheus")


def main():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="takt-push-"))
    nodes = free_port()
    replay = subprocess.Popen([sys.executable, str(HERE / "replay.py"), str(nodes), str(4 * SECONDS + 300), *CAPTURES])
    targets = [f"http://127.0.0.1:{nodes}/{n}/metrics" for n in range(NODES)]
    running = [replay]
    try:
        until_ready(targets[0])
        print(f"{NODES} nodes, {SECONDS} s, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        results = {}
        for name in ["takt, scraped", "takt, pushed", "victoria-metrics, pushed"]:
            port = free_port()
            if name.startswith("victoria") and not shutil.which(VICTORIA):
                continue
            if name.startswith("takt"):
                process, folder, samples, base = takt(directory, port, targets if name == "takt, scraped" else [])
            else:
                base = f"http://127.0.0.1:{port}"
                command = [VICTORIA, "-storageDataPath=victoria", f"-httpListenAddr=127.0.0.1:{port}", "-loggerLevel=ERROR"]
                process = start(command, directory, "victoria")
                until_ready(base + "/health")
                samples = lambda: metric(base + "/metrics", "vm_rows_inserted_total")  # noqa: E731
            running.append(process)
            if name != "takt, scraped":
                running.append(prometheus(directory, targets, base + "/api/v1/write"))
            time.sleep(20)  # the first samples create the series; only later ones are measured
            each, count = measure(process, samples)
            if name != "takt, scraped":
                stop(running.pop())
                shutil.rmtree(directory / "sender")
            sealing = sealed(process, folder, base, samples) if name.startswith("takt") else 0.0
            results[name] = each + sealing
            print(f"{name:26}{count:10.0f} samples{each * 1e6:8.2f} µs CPU each{(each + sealing) * 1e6:8.2f} with sealing")
            stop(running.pop())
        print(f"pushed / scraped: {results['takt, pushed'] / results['takt, scraped']:.2f}")
    finally:
        for process in reversed(running):
            stop(process)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
