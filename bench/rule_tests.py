#!/usr/bin/env python3
"""CPU of rule tests: `takt alerts test` beside promtool, on tests like those of kubernetes-mixin.

    rule_tests.py [GROUPS] [RUNS]    30 groups of ten rules; median of 3 runs of each program

Half of the rules record, half alert; the tests have 60 series of five hours at one minute, and ask for alerts and expressions at
several times. Programs: target/release/takt (TAKT), promtool of scripts/peers.sh or in the path (PROMTOOL).
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TAKT = os.environ.get("TAKT", os.path.join(HERE, "../target/release/takt"))
CACHE = os.environ.get("TAKT_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "takt")
PROMTOOL = os.environ.get("PROMTOOL", os.path.join(CACHE, "peers/promtool-3.14.0"))
GROUPS = int(sys.argv[1]) if len(sys.argv) > 1 else 30
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 3

RULES = """- name: group{n}
  rules:
  - record: namespace_workload:cpu:sum{n}
    expr: sum by (namespace, pod) (rate(container_cpu_usage_seconds_total{{job="kubelet",image!=""}}[5m]))
  - record: namespace:memory:sum{n}
    expr: sum by (namespace) (container_memory_working_set_bytes * on (namespace, pod) group_left (phase) kube_pod_status_phase{{phase="Running"}} == 1)
  - record: cluster:burn{n}:1h
    expr: sum(rate(apiserver_request_total{{code=~"5.."}}[1h])) / sum(rate(apiserver_request_total[1h]))
  - record: instance:latency{n}:99
    expr: histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_duration_seconds_bucket[5m])))
  - record: namespace:restarts{n}
    expr: sum by (namespace) (increase(kube_pod_container_status_restarts_total[10m]))
  - alert: PodCrashLooping{n}
    expr: increase(kube_pod_container_status_restarts_total{{namespace=~"ns.*"}}[10m]) > 0 and on (namespace, pod) kube_pod_status_phase{{phase="Running"}} == 1
    for: 15m
    labels: {{severity: warning}}
    annotations:
      summary: "Pod {{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}} restarts {{{{ printf \\"%.2f\\" $value }}}} times in ten minutes"
  - alert: BudgetBurn{n}
    expr: cluster:burn{n}:1h > 0.1 and sum(rate(apiserver_request_total{{code=~"5.."}}[5m])) / sum(rate(apiserver_request_total[5m])) > 0.1
    for: 2m
    labels: {{severity: critical, long: 1h, short: 5m}}
  - alert: MemoryHigh{n}
    expr: namespace:memory:sum{n} > 1e12
    for: 5m
  - alert: CpuHigh{n}
    expr: sum by (namespace) (namespace_workload:cpu:sum{n}) > 1000
    for: 5m
  - alert: TargetDown{n}
    expr: absent(up{{job="kubelet"}} == 1)
    for: 15m
    labels: {{severity: critical}}
"""

EXPRESSIONS = [
    'sum by (namespace) (rate(container_cpu_usage_seconds_total[5m])) > 1e9',
    'max_over_time(container_memory_working_set_bytes[1h]) > 1e12',
]


def series():
    for n in range(20):
        pod = f'namespace="ns{n % 4}", pod="pod{n}"'
        yield f'container_cpu_usage_seconds_total{{job="kubelet", image="i", {pod}}}', f"0+{n + 1}x300"
        yield f'container_memory_working_set_bytes{{{pod}}}', f"{n}x300"
    for n in range(8):
        yield f'kube_pod_status_phase{{phase="Running", namespace="ns{n % 4}", pod="pod{n}"}}', "1x300"
        yield f'kube_pod_container_status_restarts_total{{container="c", namespace="ns{n % 4}", pod="pod{n}"}}', "0+0x300"
    for code in ("200", "500"):
        yield f'apiserver_request_total{{code="{code}"}}', "0+5x300" if code == "200" else "0x300"
    for at, le in enumerate(("0.1", "1", "+Inf")):
        yield f'apiserver_request_duration_seconds_bucket{{le="{le}", verb="GET"}}', f"0+{at + 1}x300"
    yield 'up{job="kubelet"}', "1x300"


def write(folder):
    with open(os.path.join(folder, "rules.yml"), "w", encoding="utf-8") as file:
        file.write("groups:\n" + "".join(RULES.format(n=n) for n in range(GROUPS)))
    with open(os.path.join(folder, "tests.yml"), "w", encoding="utf-8") as file:
        file.write("rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n")
        for name, values in series():
            file.write(f"  - series: '{name}'\n    values: '{values}'\n")
        file.write("  alert_rule_test:\n")
        for n in range(GROUPS):
            for alert in ("PodCrashLooping", "BudgetBurn", "MemoryHigh", "CpuHigh", "TargetDown"):
                file.write(f"  - {{eval_time: 4h, alertname: {alert}{n}}}\n")
        file.write("  promql_expr_test:\n")
        for expr in EXPRESSIONS:
            file.write(f"  - {{expr: '{expr}', eval_time: 5h}}\n")


def cpu(*command):
    """Seconds of CPU."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode != 0:
        sys.exit(f"{command}: {process.stdout[:2000]}{process.stderr[:2000]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    with tempfile.TemporaryDirectory(prefix="takt-bench-") as folder:
        write(folder)
        tests = os.path.join(folder, "tests.yml")
        programs = {"takt alerts test": (TAKT, "alerts", "test", tests)}
        promtool = shutil.which(PROMTOOL) or shutil.which("promtool")
        if promtool:
            programs["promtool test rules"] = (promtool, "test", "rules", tests)
        else:
            print("no promtool here: the peer is left out")
        # In turns, so that a busy machine slows both down alike.
        found = {name: [] for name in programs}
        for _ in range(RUNS):
            for name, command in programs.items():
                found[name].append(cpu(*command))
        for name, seconds in found.items():
            print(f"{name}: {statistics.median(seconds):.2f} s CPU (median of {RUNS}: {', '.join(f'{s:.2f}' for s in seconds)})")


main()
