#!/usr/bin/env python3
"""Runs the queries of the same panels on two servers with Prometheus' API (`query.sh`).

    query.py settle PID…                waits until these processes have come to rest
    query.py ask END NAME=URL=PID …     one line a server and range, and the ratio of all
"""

import json
import os
import sys
import time
import urllib.parse
import urllib.request

# Queries of the dashboard "Node Exporter Full", of Takt's dashboards and of a GPU dashboard.
PANELS = [
    '100 - avg by (node) (rate(node_cpu_seconds_total{mode="idle"}[5m])) * 100',
    'sum by (mode) (rate(node_cpu_seconds_total[5m]))',
    'sum by (node, mode) (rate(node_cpu_seconds_total{mode!="idle"}[5m]))',
    'node_load1{node=~"n0.*"}',
    'node_load5',
    'avg(node_load15)',
    '1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes',
    'sum(node_memory_MemTotal_bytes - node_memory_MemAvailable_bytes)',
    'node_memory_Cached_bytes + node_memory_Buffers_bytes',
    'topk(5, 1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)',
    'sum by (node) (rate(node_network_receive_bytes_total{device!="lo"}[5m])) * 8',
    'sum by (node) (rate(node_network_transmit_bytes_total{device!="lo"}[5m])) * 8',
    'topk(5, sum by (node) (rate(node_network_receive_bytes_total[5m])))',
    'sum(increase(node_network_receive_errs_total[1h]))',
    'sum by (node) (rate(node_disk_read_bytes_total[5m]))',
    'sum by (node) (rate(node_disk_written_bytes_total[5m]))',
    'max by (node) (rate(node_disk_io_time_seconds_total[5m]))',
    'irate(node_disk_writes_completed_total{node="n07"}[5m])',
    'rate(node_context_switches_total[5m])',
    'rate(node_intr_total[5m])',
    'rate(node_pressure_cpu_waiting_seconds_total[5m])',
    'node_memory_Slab_bytes{node="n11"}',
    'avg by (node) (takt_gpu_utilization_ratio)',
    'takt_gpu_utilization_ratio{node="n03"}',
    'sum(takt_gpu_power_watts)',
    'avg by (node) (takt_gpu_memory_used_bytes / takt_gpu_memory_total_bytes)',
    'max by (node) (takt_gpu_temperature_celsius)',
    'quantile(0.9, takt_gpu_temperature_celsius)',
    'sum by (node) (increase(takt_gpu_energy_joules_total[10m])) / 3.6e6',
    'count(takt_gpu_utilization_ratio < 0.1) or vector(0)',
]
ROUNDS = 3


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid, key):
    lines = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return int(lines[key].split()[0]) / 1024


def settle(pids):
    for _ in range(120):
        before = sum(map(cpu, pids))
        time.sleep(3)
        if sum(map(cpu, pids)) - before < 0.3:
            return


def ask(url, panel, end, hours):
    # A panel is about 300 points wide.
    step = max(15, hours * 3600 // 300)
    end = end // step * step
    form = {"query": panel, "start": end - hours * 3600, "end": end, "step": step}
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/query_range", urllib.parse.urlencode(form).encode()) as answer:
        body = answer.read()
    took = time.perf_counter() - began
    result = json.loads(body)["data"]["result"]
    return took, [(json.dumps(series["metric"], sort_keys=True), series["values"]) for series in result]


def picked(answer):
    """The values at each instant without their series, since `topk` may pick any of equal series."""
    values = {}
    for _, points in answer:
        for at, value in points:
            values.setdefault(at, []).append(float(value))
    return [("picked", [(at, value) for at in sorted(values) for value in sorted(values[at])])]


def difference(panel, one, other):
    """The first difference between two answers, except rounding; None if series, instants and values are equal."""
    if "topk(" in panel and one:
        one, other = picked(one), picked(other)
    one, other = dict(one), dict(other)
    if one.keys() != other.keys():
        return f"only one has {sorted(one.keys() ^ other.keys())[:3]}"
    if not one:
        return "both are empty"
    for name, values in one.items():
        instants = [[at for at, _ in answer] for answer in (values, other[name])]
        if instants[0] != instants[1]:
            return f"{name}: at different instants, {[len(all) for all in instants]} of them"
        for (at, a), (_, b) in zip(values, other[name]):
            a, b = float(a), float(b)
            if a != b and not (a != a and b != b) and not abs(a - b) <= 1e-9 * max(abs(a), abs(b)):
                return f"{name} at {at}: {a} and {b}"
    return None


def main(end, servers):
    servers = [server.split("=") for server in servers]
    sums = {name: [0.0, 0.0] for name, _, _ in servers}
    compared, differences = 0, 0
    print(f"{'':12} {'range':>5} {'total':>9} {'p50':>9} {'p99':>9} {'CPU':>8} {'resident':>12}")
    for hours in (1, 6, 24):
        answers, slowest = {}, {}
        for name, url, pid in servers:
            # The first round fills the caches of both, as a refreshing dashboard does.
            for panel in PANELS:
                answers.setdefault(panel, []).append(ask(url, panel, end, hours)[1])
            times, begun = [], cpu(pid)
            for _ in range(ROUNDS):
                for panel in PANELS:
                    took = ask(url, panel, end, hours)[0]
                    times.append(took)
                    slowest.setdefault(panel, {}).setdefault(name, []).append(took)
            used = cpu(pid) - begun
            times.sort()
            sums[name][0] += sum(times)
            sums[name][1] += used
            print(
                f"{name:12} {hours:>3} h {sum(times):7.2f} s {times[len(times) // 2] * 1e3:6.1f} ms "
                f"{times[int(len(times) * 0.99)] * 1e3:6.1f} ms {used:6.2f} s {memory(pid, 'VmRSS'):8.0f} MiB"
            )
        for panel, both in answers.items():
            found = difference(panel, *both)
            compared += sum(len(values) for _, values in both[0])
            if found:
                differences += 1
                print(f"differs: {panel} over {hours} h: {found}")
        if os.environ.get("PANELS"):
            for panel, both in slowest.items():
                print("   ", panel, {name: f"{min(times) * 1e3:.1f} ms" for name, times in both.items()})
    print(f"{compared} values compared, answers that differ: {differences} of {3 * len(PANELS)}")
    (_, theirs), (_, ours) = list(sums.items())[:2]
    print(f"takt / prometheus: {ours[0] / theirs[0]:.2f} of the time, {ours[1] / theirs[1]:.2f} of the CPU")
    for name, _, pid in servers:
        print(f"{name}: at most {memory(pid, 'VmHWM'):.0f} MiB resident")
    return 1 if differences else 0


if __name__ == "__main__":
    if sys.argv[1] == "settle":
        settle(sys.argv[2:])
    else:
        sys.exit(main(int(sys.argv[2]), sys.argv[3:]))
