"""Exports metrics with the OpenTelemetry SDK to several receivers.

otel.py TEMPORALITY SECONDS URL=TOKEN...   one point a second for each receiver; prints the failures
"""
import logging
import sys
import time

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import (
    Counter, Histogram, MeterProvider, ObservableCounter, ObservableGauge, UpDownCounter,
)
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

logging.basicConfig(stream=sys.stdout, level=logging.WARNING)
temporality, seconds, receivers = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
preferred = {}
if temporality == "delta":
    delta = AggregationTemporality.DELTA
    preferred = {Counter: delta, Histogram: delta, ObservableCounter: delta, UpDownCounter: AggregationTemporality.CUMULATIVE}
readers = []
for receiver in receivers:
    url, token = receiver.split("=", 1)
    headers = {"Authorization": "Bearer " + token} if token else {}
    exporter = OTLPMetricExporter(endpoint=url, headers=headers, preferred_temporality=preferred, timeout=20)
    readers.append(PeriodicExportingMetricReader(exporter, export_interval_millis=1000))
resource = Resource({
    "service.name": "train", "service.namespace": "lab", "service.instance.id": "n1:7",
    "host.name": "n1", "slurm.job_id": "42", "0.weights": [1, 2], "scale": 0.5,
})
provider = MeterProvider(metric_readers=readers, resource=resource)
meter = provider.get_meter("test")
steps = meter.create_counter("steps.done", "1")
moved = meter.create_counter("net.io", "By/s")
queue = meter.create_up_down_counter("queue.length", "{job}")
duration = meter.create_histogram("step.duration", "s")
meter.create_observable_gauge("gpu.util", [lambda _: [Observation(0.25, {"gpu": 0, "on": True})]], "1")
meter.create_observable_gauge("power-draw__now", [lambda _: [Observation(350, {"a.b": "x", "a/b": "y"})]], "W")
for at in range(seconds):
    steps.add(2, {"rank": 0})
    steps.add(3, {"rank": 1, "label with spaces": "ä\"\\\n"})
    moved.add(100.5)
    queue.add(1 if at % 2 else -2)
    duration.record(0.003 * (at + 1))
    duration.record(20000)
    time.sleep(1)
provider.shutdown()
