"""Compares takt-exporter's readings of NVIDIA GPUs with NVML's and nvidia-smi's while the GPUs do known work.

The examiner reads NVML by itself (ctypes) and through `nvidia-smi`, and shares no code with the exporter. In each
phase it reads the peers all the time and the exporter once a second: each value of the exporter must lie within what
the peer saw in that phase, so that what does not change must be equal. A value that the peer has must be exported, and
a value that NVML does not support must be absent.

No setting of a GPU is changed. One phase lets a program of its own make an error (XID 31), which ends that program
only; `--no-fault` leaves it out.
"""

import argparse
import csv
import ctypes
import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

NOT_SUPPORTED = 3

# --- NVML, read by the examiner itself -------------------------------------------------------------------------


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class Bar1(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Violation(ctypes.Structure):
    _fields_ = [("reference", ctypes.c_ulonglong), ("violation", ctypes.c_ulonglong)]


class Histogram(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint) for name in ("max", "high", "partial", "low", "none")]


class Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class NvmlError(Exception):
    def __init__(self, call, code):
        super().__init__(f"{call}: error {code}")
        self.code = code


class Nvml:
    """The few calls of NVML that the examination needs."""

    def __init__(self, library):
        self.lib = ctypes.CDLL(library)
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        function = getattr(self.lib, name, None)
        if function is None:
            raise NvmlError(name, NOT_SUPPORTED)
        code = function(*arguments)
        if code != 0:
            raise NvmlError(name, code)

    def text(self, name, *arguments):
        buffer = ctypes.create_string_buffer(128)
        self.call(name, *arguments, buffer, 128)
        return buffer.value.decode()

    def devices(self):
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [Device(self, index) for index in range(count.value)]


class Device:
    def __init__(self, nvml, index):
        self.nvml = nvml
        self.index = index
        self.handle = ctypes.c_void_p()
        nvml.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(self.handle))
        self.uuid = nvml.text("nvmlDeviceGetUUID", self.handle)
        self.name = nvml.text("nvmlDeviceGetName", self.handle)

    def text(self, call):
        return self.nvml.text(call, self.handle)

    def number(self, call, *arguments, kind=ctypes.c_uint):
        value = kind()
        self.nvml.call(call, self.handle, *arguments, ctypes.byref(value))
        return value.value

    def pair(self, call):
        first, second = ctypes.c_uint(), ctypes.c_uint()
        self.nvml.call(call, self.handle, ctypes.byref(first), ctypes.byref(second))
        return first.value, second.value

    def struct(self, call, kind, *arguments, **fields):
        value = kind(**fields)
        self.nvml.call(call, self.handle, *arguments, ctypes.byref(value))
        return value

    def memory(self):
        version = ctypes.sizeof(MemoryV2) | 2 << 24
        return self.struct("nvmlDeviceGetMemoryInfo_v2", MemoryV2, version=version)

    def remapped(self):
        values = [ctypes.c_uint() for _ in range(4)]
        self.nvml.call("nvmlDeviceGetRemappedRows", self.handle, *map(ctypes.byref, values))
        return [value.value for value in values]

    def processes(self):
        count = ctypes.c_uint(256)
        processes = (Process * 256)()
        call = "nvmlDeviceGetComputeRunningProcesses_v3"
        self.nvml.call(call, self.handle, ctypes.byref(count), processes)
        return {process.pid: process.memory for process in processes[: count.value]}


# --- What is compared ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Check:
    """One series of the exporter beside one reading of NVML, both in the exporter's unit."""

    series: str
    labels: dict
    # Device → value, or None for what the GPU has not.
    read: object
    # How far outside of what the peer saw in a phase is still the same, in the exporter's unit.
    tolerance: float = 0.0


LONG = ctypes.c_ulonglong
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
REASONS = ["idle", "app_clocks", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal",
           "hw_power_brake", "display_clocks"]
LIMITS = {"shutdown": 0, "slowdown": 1, "memory_max": 2, "gpu_max": 3, "target": 5}


def nvml_checks():
    """The readings of NVML by the names of the exporter."""
    checks = []

    def add(series, read, tolerance=0.0, **labels):
        checks.append(Check("takt_gpu_" + series, labels, read, tolerance))

    utilization = lambda gpu: gpu.struct("nvmlDeviceGetUtilizationRates", Utilization)
    add("utilization_ratio", lambda gpu: utilization(gpu).gpu / 100, 0.05)
    add("memory_utilization_ratio", lambda gpu: utilization(gpu).memory / 100, 0.05)
    for part, call in [("encoder", "Encoder"), ("decoder", "Decoder"), ("jpeg", "Jpg"), ("optical_flow", "Ofa")]:
        read = lambda gpu, call=call: gpu.pair(f"nvmlDeviceGet{call}Utilization")[0] / 100
        add(f"{part}_utilization_ratio", read, 0.05)
    for part in ("total", "used", "free", "reserved"):
        add(f"memory_{part}_bytes", lambda gpu, part=part: getattr(gpu.memory(), part), 4 << 20)
    add("bar1_total_bytes", lambda gpu: gpu.struct("nvmlDeviceGetBAR1MemoryInfo", Bar1).total)
    add("bar1_used_bytes", lambda gpu: gpu.struct("nvmlDeviceGetBAR1MemoryInfo", Bar1).used, 1 << 20)
    add("power_watts", lambda gpu: gpu.number("nvmlDeviceGetPowerUsage") / 1e3, 10)
    add("power_limit_watts", lambda gpu: gpu.number("nvmlDeviceGetEnforcedPowerLimit") / 1e3)
    add("power_limit_default_watts",
        lambda gpu: gpu.number("nvmlDeviceGetPowerManagementDefaultLimit") / 1e3)
    for place, end in enumerate(("min", "max")):
        add(f"power_limit_{end}_watts", lambda gpu, place=place:
            gpu.pair("nvmlDeviceGetPowerManagementLimitConstraints")[place] / 1e3)
    add("energy_joules_total",
        lambda gpu: gpu.number("nvmlDeviceGetTotalEnergyConsumption", kind=LONG) / 1e3)
    add("temperature_celsius", lambda gpu: gpu.number("nvmlDeviceGetTemperature", 0), 1, sensor="gpu")
    for limit, number in LIMITS.items():
        add("temperature_limit_celsius", lambda gpu, number=number:
            gpu.number("nvmlDeviceGetTemperatureThreshold", number) or None, limit=limit)
    for domain, number in CLOCKS.items():
        add("clock_hertz", lambda gpu, number=number:
            gpu.number("nvmlDeviceGetClockInfo", number) * 1e6, 30e6, domain=domain)
        add("clock_max_hertz", lambda gpu, number=number:
            gpu.number("nvmlDeviceGetMaxClockInfo", number) * 1e6, domain=domain)
    add("performance_state", lambda gpu: gpu.number("nvmlDeviceGetPerformanceState"))
    for bit, reason in enumerate(REASONS):
        add("throttle", lambda gpu, bit=bit: throttle(gpu, bit), reason=reason)
    for reason, policy in {"sw_power_cap": 0, "thermal": 1, "sync_boost": 2, "board_limit": 3, "low_utilization": 4,
                           "reliability": 5, "app_clocks": 10, "base_clocks": 11}.items():
        add("throttle_seconds_total", lambda gpu, policy=policy:
            gpu.struct("nvmlDeviceGetViolationStatus", Violation, policy).violation / 1e9, reason=reason)
    for kind, word in [("current", "Curr"), ("max", "Max")]:
        for what in ("Generation", "Width"):
            call = f"nvmlDeviceGet{word}PcieLink{what}"
            add(f"pcie_link_{what.lower()}", lambda gpu, call=call: gpu.number(call), kind=kind)
    add("pcie_replays_total", lambda gpu: gpu.number("nvmlDeviceGetPcieReplayCounter"))
    add("persistence_enabled", lambda gpu: gpu.number("nvmlDeviceGetPersistenceMode"))
    add("ecc_enabled", lambda gpu: gpu.pair("nvmlDeviceGetEccMode")[0])
    add("ecc_pending_enabled", lambda gpu: gpu.pair("nvmlDeviceGetEccMode")[1])
    for kind, type_ in enumerate(("corrected", "uncorrected")):
        for counter, scope in enumerate(("volatile", "aggregate")):
            add("ecc_errors_total", lambda gpu, kind=kind, counter=counter:
                gpu.number("nvmlDeviceGetTotalEccErrors", kind, counter, kind=LONG), type=type_, scope=scope)
    for place, cause in enumerate(("corrected", "uncorrected")):
        add("row_remap_rows", lambda gpu, place=place: gpu.remapped()[place], cause=cause)
    add("row_remap_pending", lambda gpu: gpu.remapped()[2])
    add("row_remap_failed", lambda gpu: gpu.remapped()[3])
    for spare in ("max", "high", "partial", "low", "none"):
        add("row_remap_banks", lambda gpu, spare=spare:
            getattr(gpu.struct("nvmlDeviceGetRowRemapperHistogram", Histogram), spare), spare=spare)
    add("mig_enabled", lambda gpu: gpu.pair("nvmlDeviceGetMigMode")[0])
    for link in range(18):
        add("nvlink_up", lambda gpu, link=link: gpu.number("nvmlDeviceGetNvLinkState", link), link=str(link))
    add("processes", lambda gpu: len(gpu.processes()))
    return checks


def throttle(gpu, bit):
    """One reason for slower clocks, if the GPU knows it."""
    supported = gpu.number("nvmlDeviceGetSupportedClocksEventReasons", kind=LONG)
    current = gpu.number("nvmlDeviceGetCurrentClocksEventReasons", kind=LONG)
    return current >> bit & 1 if supported >> bit & 1 else None


# Column of nvidia-smi → series, labels, unit, tolerance.
SMI = {
    "memory.total": ("memory_total_bytes", {}, 2**20, 2**20),
    "memory.used": ("memory_used_bytes", {}, 2**20, 4 * 2**20),
    "memory.free": ("memory_free_bytes", {}, 2**20, 4 * 2**20),
    "memory.reserved": ("memory_reserved_bytes", {}, 2**20, 4 * 2**20),
    "utilization.gpu": ("utilization_ratio", {}, 0.01, 0.05),
    "utilization.memory": ("memory_utilization_ratio", {}, 0.01, 0.05),
    "utilization.encoder": ("encoder_utilization_ratio", {}, 0.01, 0.05),
    "utilization.decoder": ("decoder_utilization_ratio", {}, 0.01, 0.05),
    "utilization.jpeg": ("jpeg_utilization_ratio", {}, 0.01, 0.05),
    "utilization.ofa": ("optical_flow_utilization_ratio", {}, 0.01, 0.05),
    "temperature.gpu": ("temperature_celsius", {"sensor": "gpu"}, 1, 1),
    "temperature.memory": ("temperature_celsius", {"sensor": "memory"}, 1, 1),
    "temperature.gpu.tlimit": ("temperature_margin_celsius", {}, 1, 1),
    "power.draw.average": ("power_watts", {}, 1, 10),
    "power.draw.instant": ("power_instant_watts", {}, 1, 60),
    "enforced.power.limit": ("power_limit_watts", {}, 1, 0.01),
    "power.default_limit": ("power_limit_default_watts", {}, 1, 0.01),
    "power.min_limit": ("power_limit_min_watts", {}, 1, 0.01),
    "power.max_limit": ("power_limit_max_watts", {}, 1, 0.01),
    "clocks.current.graphics": ("clock_hertz", {"domain": "graphics"}, 1e6, 30e6),
    "clocks.current.sm": ("clock_hertz", {"domain": "sm"}, 1e6, 30e6),
    "clocks.current.memory": ("clock_hertz", {"domain": "memory"}, 1e6, 30e6),
    "clocks.current.video": ("clock_hertz", {"domain": "video"}, 1e6, 30e6),
    "clocks.max.graphics": ("clock_max_hertz", {"domain": "graphics"}, 1e6, 0),
    "clocks.max.sm": ("clock_max_hertz", {"domain": "sm"}, 1e6, 0),
    "clocks.max.memory": ("clock_max_hertz", {"domain": "memory"}, 1e6, 0),
    "pcie.link.gen.gpucurrent": ("pcie_link_generation", {"kind": "current"}, 1, 0),
    "pcie.link.gen.max": ("pcie_link_generation", {"kind": "max"}, 1, 0),
    "pcie.link.width.current": ("pcie_link_width", {"kind": "current"}, 1, 0),
    "pcie.link.width.max": ("pcie_link_width", {"kind": "max"}, 1, 0),
    "ecc.errors.corrected.volatile.total": ("ecc_errors_total", {"type": "corrected", "scope": "volatile"}, 1, 0),
    "ecc.errors.uncorrected.volatile.total": ("ecc_errors_total", {"type": "uncorrected", "scope": "volatile"}, 1, 0),
    "ecc.errors.corrected.aggregate.total": ("ecc_errors_total", {"type": "corrected", "scope": "aggregate"}, 1, 0),
    "ecc.errors.uncorrected.aggregate.total": ("ecc_errors_total", {"type": "uncorrected", "scope": "aggregate"}, 1, 0),
    "retired_pages.single_bit_ecc.count": ("retired_pages", {"cause": "single_bit"}, 1, 0),
    "retired_pages.double_bit.count": ("retired_pages", {"cause": "double_bit"}, 1, 0),
    "fan.speed": ("fan_ratio", {"fan": "0"}, 0.01, 0.02),
    "clocks_event_reasons_counters.sw_power_cap": ("throttle_seconds_total", {"reason": "sw_power_cap"}, 1e-6, 1.2),
    "clocks_event_reasons_counters.sw_thermal_slowdown": ("throttle_seconds_total", {"reason": "sw_thermal"}, 1e-6, 1.2),
    "clocks_event_reasons_counters.hw_thermal_slowdown": ("throttle_seconds_total", {"reason": "hw_thermal"}, 1e-6, 1.2),
    "clocks_event_reasons_counters.hw_power_brake_slowdown": ("throttle_seconds_total", {"reason": "hw_power_brake"}, 1e-6, 1.2),
    "clocks_event_reasons_counters.sync_boost": ("throttle_seconds_total", {"reason": "sync_boost"}, 1e-6, 1.2),
}


class Smi:
    """nvidia-smi's columns that this release knows."""

    def __init__(self):
        self.program = shutil.which("nvidia-smi")
        self.columns = list(SMI)
        self.refused = []
        while self.program:
            answer = subprocess.run(self.command(), capture_output=True, text=True)
            unknown = re.search(r'Field "([^"]+)" is not a valid field', answer.stdout + answer.stderr)
            if not unknown:
                break
            self.columns.remove(unknown[1])
            self.refused.append(unknown[1])

    def command(self):
        columns = ",".join(["uuid", *self.columns])
        return [self.program, f"--query-gpu={columns}", "--format=csv,noheader,nounits"]

    def read(self):
        """(uuid, column) → value in the exporter's unit, None for what is not supported."""
        if not self.program:
            return {}
        values = {}
        output = subprocess.run(self.command(), capture_output=True, text=True).stdout
        for row in csv.reader(output.splitlines(), skipinitialspace=True):
            for column, text in zip(self.columns, row[1:]):
                try:
                    values[row[0], column] = float(text) * SMI[column][2]
                except ValueError:
                    values[row[0], column] = None
        return values


# Field of nvidia-ml-py → series, labels, unit, scope, tolerance. Drivers renumbered some fields; the package has
# NVIDIA's numbers.
FIELDS = {
    "MEMORY_TEMP": ("temperature_celsius", {"sensor": "memory"}, 1, 0, 1),
    "POWER_INSTANT": ("power_instant_watts", {}, 1e-3, 0, 60),
    "PCIE_COUNT_TX_BYTES": ("pcie_bytes_total", {"direction": "tx"}, 1, 0, 0),
    "PCIE_COUNT_RX_BYTES": ("pcie_bytes_total", {"direction": "rx"}, 1, 0, 0),
    "PCIE_REPLAY_COUNTER": ("pcie_replays_total", {}, 1, 0, 0),
    "PCIE_COUNT_CORRECTABLE_ERRORS": ("pcie_errors_total", {"type": "correctable"}, 1, 0, 0),
    "PCIE_COUNT_RECEIVER_ERROR": ("pcie_errors_total", {"type": "receiver"}, 1, 0, 0),
    "PCIE_COUNT_NAKS_RECEIVED": ("pcie_errors_total", {"type": "nak_received"}, 1, 0, 0),
    "PCIE_COUNT_NAKS_SENT": ("pcie_errors_total", {"type": "nak_sent"}, 1, 0, 0),
    "PCIE_COUNT_BAD_TLP": ("pcie_errors_total", {"type": "bad_tlp"}, 1, 0, 0),
    "PCIE_COUNT_BAD_DLLP": ("pcie_errors_total", {"type": "bad_dllp"}, 1, 0, 0),
    "PCIE_COUNT_NON_FATAL_ERROR": ("pcie_errors_total", {"type": "non_fatal"}, 1, 0, 0),
    "PCIE_COUNT_FATAL_ERROR": ("pcie_errors_total", {"type": "fatal"}, 1, 0, 0),
    "PCIE_COUNT_UNSUPPORTED_REQ": ("pcie_errors_total", {"type": "unsupported_request"}, 1, 0, 0),
    "PCIE_COUNT_LCRC_ERROR": ("pcie_errors_total", {"type": "lcrc"}, 1, 0, 0),
    "PCIE_COUNT_LANE_ERROR": ("pcie_errors_total", {"type": "lane"}, 1, 0, 0),
    "PCIE_L0_TO_RECOVERY_COUNTER": ("pcie_errors_total", {"type": "l0_to_recovery"}, 1, 0, 0),
    "REMAPPED_COR": ("row_remap_rows", {"cause": "corrected"}, 1, 0, 0),
    "REMAPPED_UNC": ("row_remap_rows", {"cause": "uncorrected"}, 1, 0, 0),
    "REMAPPED_PENDING": ("row_remap_pending", {}, 1, 0, 0),
    "REMAPPED_FAILURE": ("row_remap_failed", {}, 1, 0, 0),
    "GET_GPU_RECOVERY_ACTION": ("recovery_action", {}, 1, 0, 0),
    "TEMPERATURE_SHUTDOWN_TLIMIT": ("temperature_margin_limit_celsius", {"limit": "shutdown"}, 1, 0, 0),
    "TEMPERATURE_SLOWDOWN_TLIMIT": ("temperature_margin_limit_celsius", {"limit": "slowdown"}, 1, 0, 0),
    "TEMPERATURE_MEM_MAX_TLIMIT": ("temperature_margin_limit_celsius", {"limit": "memory_max"}, 1, 0, 0),
    "TEMPERATURE_GPU_MAX_TLIMIT": ("temperature_margin_limit_celsius", {"limit": "gpu_max"}, 1, 0, 0),
    "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": ("throttle_seconds_total", {"reason": "sw_thermal"}, 1e-9, 0, 0),
    "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": ("throttle_seconds_total", {"reason": "hw_thermal"}, 1e-9, 0, 0),
    "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": ("throttle_seconds_total", {"reason": "hw_power_brake"}, 1e-9, 0, 0),
    "NVLINK_THROUGHPUT_DATA_TX": ("nvlink_bytes_total", {"direction": "tx"}, 1024, 2**32 - 1, 0),
    "NVLINK_THROUGHPUT_DATA_RX": ("nvlink_bytes_total", {"direction": "rx"}, 1024, 2**32 - 1, 0),
}


class Fields:
    """Field values by NVIDIA's own package for Python, where it is installed."""

    def __init__(self, wanted):
        self.pynvml = None
        if wanted:
            try:
                import pynvml
                pynvml.nvmlInit()
                self.pynvml = pynvml
            except Exception:
                pass

    def read(self, uuid):
        """Field → value in the exporter's unit, None for what is not supported."""
        if not self.pynvml:
            return {}
        handle = self.pynvml.nvmlDeviceGetHandleByUUID(uuid)
        known = {name: entry for name, entry in FIELDS.items() if hasattr(self.pynvml, "NVML_FI_DEV_" + name)}
        asked = [(getattr(self.pynvml, "NVML_FI_DEV_" + name), entry[3]) for name, entry in known.items()]
        answers = self.pynvml.nvmlDeviceGetFieldValues(handle, asked)
        return {name: self.value(answer, known[name][2]) for name, answer in zip(known, answers)}

    def value(self, answer, unit):
        if answer.nvmlReturn != 0:
            return None
        members = ["dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"]
        member = members[answer.valueType]
        if member == "uiVal" and answer.fieldId in self.bytes_over_pcie():
            return None
        return getattr(answer.value, member) * unit

    def bytes_over_pcie(self):
        """Some drivers count these in 32 bits: such a count comes round every tenth of a second and is not exported."""
        return [getattr(self.pynvml, name, None) for name in ("NVML_FI_DEV_PCIE_COUNT_TX_BYTES", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES")]


# --- The exporter ----------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Exporter:
    def __init__(self, program, library, state, flags=()):
        self.address = f"127.0.0.1:{free_port()}"
        self.log = open(os.path.join(state, "exporter.log"), "w+")
        command = [program, f"--web.listen-address={self.address}", f"--nvml.library={library}",
                   f"--state-directory={state}", "--gpu.dcgm-names", *flags]
        self.process = subprocess.Popen(command, stderr=self.log)
        self.seconds = []
        for _ in range(100):
            try:
                self.page()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"gpu-exam: {program} does not answer: {open(self.log.name).read()}")

    def page(self):
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        self.seconds.append(time.monotonic() - begin)
        return text

    def cpu_seconds(self):
        """CPU time of all threads, in seconds, by the kernel's nanosecond clock."""
        total = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
        return total / 1e9

    def memory_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) * 1024

    def events(self):
        """The events so far: the stream stays open for new ones, so this reads until it is silent."""
        lines = []
        try:
            with urllib.request.urlopen(f"http://{self.address}/events?after=0", timeout=2) as answer:
                for line in answer:
                    lines.append(line.decode().strip())
        except TimeoutError:
            pass
        return [line for line in lines if line]

    def end(self):
        self.process.terminate()
        self.process.wait(10)


SERIES = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def parse(page):
    """(name, sorted labels) → value."""
    series = {}
    for line in page.splitlines():
        match = SERIES.match(line)
        if match:
            labels = tuple(sorted(LABEL.findall(match[2] or "")))
            series[match[1], labels] = float(match[3])
    return series


def key(name, uuid, labels):
    return f"takt_gpu_{name}" if not name.startswith("takt_") else name, tuple(sorted({"uuid": uuid, **labels}.items()))


# --- Work for the GPUs -----------------------------------------------------------------------------------------

LOADS = {
    "memory": """
import torch, time
free, total = torch.cuda.mem_get_info()
kept = torch.empty(int(free * 0.9), dtype=torch.uint8, device="cuda"); kept.zero_(); torch.cuda.synchronize()
print("ready", flush=True); time.sleep(600)
""",
    "working": """
import torch
a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda"); b = a.clone()
(a @ b); torch.cuda.synchronize(); print("ready", flush=True)
while True:
    for _ in range(50): c = a @ b
    torch.cuda.synchronize()
""",
    # As NCCL's kernels wait for a late rank: some blocks of 512 threads poll a flag.
    "spinning": """
import torch
try:
    import cupy
    spin = cupy.RawKernel(r'''extern "C" __global__ void spin(volatile int* flag, long long cycles) {
        long long begin = clock64(); while (!*flag && clock64() - begin < cycles); }''', "spin")
    flag = cupy.zeros(1, dtype=cupy.int32)
    once = lambda: (spin((24,), (512,), (flag, cupy.int64(100_000_000))), cupy.cuda.Device().synchronize())
except ImportError:
    once = lambda: (torch.cuda._sleep(100_000_000), torch.cuda.synchronize())
once(); print("ready", flush=True)
while True: once()
""",
    "copying": """
import torch
a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda"); h = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
a.copy_(h); torch.cuda.synchronize(); print("ready", flush=True)
while True:
    a.copy_(h, non_blocking=True); h.copy_(a, non_blocking=True); torch.cuda.synchronize()
""",
}

FAULT = """
import cupy
cupy.RawKernel(r'''extern "C" __global__ void wild(int* p) { p[1ll << 40] = 1; }''', "wild")((1,), (1,), (cupy.zeros(1, dtype=cupy.int32),))
cupy.cuda.Device().synchronize()
"""

RAS = """
import os, socket, time, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
torch.cuda.set_device(0)
dist.init_process_group("nccl"); x = torch.ones(1 << 20, device="cuda")
for _ in range(20): dist.all_reduce(x)
torch.cuda.synchronize(); print("NCCL", ".".join(map(str, torch.cuda.nccl.version())))
for words in ["STATUS", "VERBOSE STATUS", "CLIENT PROTOCOL 2\\nSET FORMAT json\\nVERBOSE STATUS"]:
    print(">>>", words.replace("\\n", " | "))
    try:
        with socket.create_connection(("127.0.0.1", 28028), timeout=5) as ras:
            ras.sendall((words + "\\n").encode()); ras.settimeout(8); begin = time.monotonic()
            while (chunk := ras.recv(65536)): print(chunk.decode(errors="replace"), end="")
            print(f"<<< {time.monotonic() - begin:.3f} s")
    except OSError as error: print("<<<", error)
"""


class Load:
    """A process that works on the GPUs until it is killed, in a cgroup of a Slurm job where that can be made."""

    def __init__(self, name, job=None):
        self.cgroup = job and job_cgroup(job)
        enter = None
        if self.cgroup:
            enter = lambda: open(os.path.join(self.cgroup, "cgroup.procs"), "w").write("0")
        self.process = subprocess.Popen([sys.executable, "-c", LOADS[name]], stdout=subprocess.PIPE, text=True, preexec_fn=enter)
        if self.process.stdout.readline() != "ready\n":
            raise SystemExit(f"gpu-exam: the load {name} did not start")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        if self.cgroup:
            os.rmdir(self.cgroup)


def job_cgroup(job):
    """A cgroup as slurmd makes for a job's step, or None."""
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"):
        path = os.path.join(root, "system.slice/slurmstepd.scope" if root == "/sys/fs/cgroup" else "slurm/uid_0", f"job_{job}", "step_0")
        try:
            os.makedirs(path, exist_ok=True)
            if os.path.exists(os.path.join(path, "cgroup.procs")):
                return path
        except OSError:
            continue
    return None


# --- The examination -------------------------------------------------------------------------------------------


class Phase:
    """What the peers and the exporter said while the GPUs did one thing."""

    def __init__(self, exam, name, seconds):
        self.name = name
        self.peers = {}
        self.pages = []
        self.supported = {}
        end = time.monotonic() + seconds
        asking = threading.Thread(target=self.ask_peers, args=(exam, end))
        asking.start()
        time.sleep(min(1.5, seconds / 4))
        cpu, begin = exam.exporter.cpu_seconds(), time.monotonic()
        scrapes = len(exam.exporter.seconds)
        while time.monotonic() < end - 1:
            self.pages.append(parse(exam.exporter.page()))
            time.sleep(max(0, 1 - exam.exporter.seconds[-1]))
        self.latencies = exam.exporter.seconds[scrapes:]
        self.cpu_share = (exam.exporter.cpu_seconds() - cpu) / (time.monotonic() - begin)
        asking.join()

    def ask_peers(self, exam, end):
        rounds = 0
        while time.monotonic() < end:
            for gpu in exam.gpus:
                for name, value in exam.fields.read(gpu.uuid).items():
                    self.note("nvidia-ml-py", gpu.uuid, name, value)
                for number, check in enumerate(exam.checks):
                    begin = time.monotonic()
                    try:
                        value = check.read(gpu)
                        exam.call_seconds.setdefault(check.series, []).append(time.monotonic() - begin)
                    except NvmlError as error:
                        value = None
                        if error.code != NOT_SUPPORTED:
                            exam.notes.add(f"{self.name}: {error} of the peer")
                    self.note("nvml", gpu.uuid, number, value)
            if rounds % 5 == 0:
                for (uuid, column), value in exam.smi.read().items():
                    self.note("nvidia-smi", uuid, column, value)
            rounds += 1
            time.sleep(0.1)

    def note(self, peer, uuid, check, value):
        seen = self.peers.setdefault((peer, uuid, check), [])
        seen.append(value)

    def mean(self, uuid, name, **labels):
        values = [page[key(name, uuid, labels)] for page in self.pages if key(name, uuid, labels) in page]
        return statistics.fmean(values) if values else None


@dataclasses.dataclass
class Tally:
    """Comparisons of one series with one peer in one phase."""

    compared: int = 0
    absent: int = 0
    differences: list = dataclasses.field(default_factory=list)


class Exam:
    def __init__(self, options):
        self.options = options
        self.nvml = Nvml(options.nvml)
        self.gpus = self.nvml.devices()
        self.smi = Smi() if options.smi else Smi.__new__(Smi)
        if not options.smi:
            self.smi.program, self.smi.columns, self.smi.refused = None, [], []
        self.fields = Fields(options.smi)
        self.call_seconds = {}
        self.checks = nvml_checks()
        self.state = tempfile.mkdtemp(prefix="gpu-exam-")
        self.exporter = Exporter(options.exporter, options.nvml, self.state)
        self.notes = set()
        self.failures = []
        self.lines = []

    def say(self, line=""):
        print(line, flush=True)
        self.lines.append(line)

    def compare(self, phase):
        """Compares each page of the phase with each peer; (peer, series) → tally."""
        tallies = {}
        for (peer, uuid, check), seen in phase.peers.items():
            if peer == "nvml":
                found = self.checks[check]
                name, labels, tolerance = found.series, found.labels, found.tolerance
            elif peer == "nvidia-ml-py":
                name, labels, _, _, tolerance = FIELDS[check]
            else:
                name, labels, _, tolerance = SMI[check]
            series = key(name, uuid, labels)
            tally = tallies.setdefault((peer, series[0]), Tally())
            values = [page.get(series) for page in phase.pages]
            known = [value for value in seen if value is not None]
            where = f"{phase.name}: {series[0]}{dict(series[1])}"
            if not known:
                # nvidia-smi says N/A to more than NVML does: what only it lacks is no difference.
                tally.absent += 1
                if peer == "nvml" and any(value is not None for value in values):
                    tally.differences.append(f"{where}: exported as {values}, NVML does not support it")
                continue
            if any(value is None for value in values):
                tally.differences.append(f"{where}: missing, {peer} says {known[0]}")
                continue
            tally.compared += len(values)
            low, high = min(known) - tolerance, max(known) + tolerance
            # Both divide by a power of ten; the last digit may differ.
            slack = 1e-9 * max(abs(low), abs(high))
            wrong = [value for value in values if not low - slack <= value <= high + slack]
            if wrong:
                tally.differences.append(f"{where}: {wrong[:3]}, {peer} saw {min(known):g} to {max(known):g}")
        return tallies

    def phase(self, name, seconds=None):
        phase = Phase(self, name, seconds or self.options.seconds)
        tallies = self.compare(phase)
        for peer in ("nvml", "nvidia-ml-py", "nvidia-smi"):
            of_peer = [tally for (asked, _), tally in tallies.items() if asked == peer]
            if not of_peer:
                continue
            compared = sum(tally.compared for tally in of_peer)
            differences = [text for tally in of_peer for text in tally.differences]
            self.failures += differences
            pages = sorted(phase.latencies)
            self.say(f"| {name} | {peer} | {compared} | {sum(tally.absent for tally in of_peer)} | {len(differences)} | "
                     f"{1e3 * statistics.median(pages):.1f} / {1e3 * pages[-1]:.1f} | {100 * phase.cpu_share:.2f} % |")
        return phase

    def expect(self, what, is_so, found=""):
        self.say(f"- {'ok' if is_so else '**differs**'}: {what}{': ' + str(found) if found != '' else ''}")
        if not is_so:
            self.failures.append(f"{what}: {found}")


def wait_until(condition, seconds):
    """Seconds until the condition held, or None."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        if condition():
            return time.monotonic() - begin
        time.sleep(0.1)
    return None


def costs(exam, seconds):
    """CPU time of a scrape a second, with and without the collector of GPUs."""
    spent = {}
    for what, flags in [("all collectors", []), ("without nvml", ["--no-collector.nvml"])]:
        exporter = Exporter(exam.options.exporter, exam.options.nvml, tempfile.mkdtemp(dir=exam.state), flags)
        time.sleep(2)
        exporter.page()
        cpu, scrapes = exporter.cpu_seconds(), max(2, int(seconds))
        for _ in range(scrapes):
            time.sleep(1)
            exporter.page()
        spent[what] = 1e3 * (exporter.cpu_seconds() - cpu) / scrapes
        exporter.end()
    exam.say("CPU of a scrape: " + ", ".join(f"{what} {milliseconds:.2f} ms" for what, milliseconds in spent.items()) + ".")


def identity(exam):
    """Names, serials and addresses, which are labels."""
    page = parse(exam.exporter.page())
    infos = {dict(labels)["uuid"]: dict(labels) for (name, labels) in page if name == "takt_gpu_info"}
    exam.expect("the exporter lists the GPUs that NVML lists", set(infos) == {gpu.uuid for gpu in exam.gpus}, len(infos))
    for gpu in exam.gpus:
        info = infos.get(gpu.uuid, {})
        exam.expect(f"model of GPU {gpu.index}", info.get("model") == gpu.name, info.get("model"))
        exam.expect(f"index and minor number of GPU {gpu.index}",
                    (info.get("index"), info.get("minor")) == (str(gpu.index), str(gpu.number("nvmlDeviceGetMinorNumber"))))
        try:
            serial = gpu.text("nvmlDeviceGetSerial")
        except NvmlError:
            serial = ""
        exam.expect(f"serial number of GPU {gpu.index}", info.get("serial", "") == serial, "equal" if serial else "none")
        vbios = {dict(labels)["version"] for (name, labels) in page if name == "takt_gpu_vbios_info" and dict(labels)["uuid"] == gpu.uuid}
        exam.expect(f"VBIOS of GPU {gpu.index}", vbios == {gpu.text("nvmlDeviceGetVbiosVersion")}, *vbios)


def processes(exam, load, job):
    """The load's process is there, with its job; after SIGKILL it and its memory are gone."""
    gpu = exam.gpus[0]
    pid = load.process.pid
    page = parse(exam.exporter.page())
    owned = {name: value for (name, labels), value in page.items()
             if dict(labels).get("uuid") == gpu.uuid and name in ("takt_gpu_processes", "takt_gpu_job_memory_used_bytes")}
    exam.expect("a process that uses the GPU is counted", owned.get("takt_gpu_processes", 0) >= 1, owned.get("takt_gpu_processes"))
    seen = gpu.processes().get(pid)
    exam.say(f"- NVML knows the process by its pid {'' if seen else 'not '}here" + ("" if seen else " (another pid namespace)"))
    if load.cgroup:
        jobs = {dict(labels).get("jobid") for (name, labels) in page if name == "takt_gpu_job_info"}
        exam.expect(f"the GPU belongs to job {job} by its cgroup", str(job) in jobs, jobs)
    used = page[key("memory_used_bytes", gpu.uuid, {})]
    load.kill()
    count = lambda: parse(exam.exporter.page()).get(key("processes", gpu.uuid, {}))
    gone = wait_until(lambda: count() == 0, 10)
    exam.expect("a killed process is gone within 10 s", gone is not None, f"{gone:.1f} s" if gone is not None else count())
    left = parse(exam.exporter.page())[key("memory_used_bytes", gpu.uuid, {})]
    exam.expect("and so is its memory", left < used / 2, f"{used / 2**30:.1f} GiB, then {left / 2**30:.1f} GiB")


def fault(exam):
    """A wild write of a program of ours: the driver reports XID 31, and the exporter must."""
    gpu = exam.gpus[0]
    result = subprocess.run([sys.executable, "-c", FAULT], capture_output=True, text=True)
    counted = lambda: {labels: value for (name, labels), value in parse(exam.exporter.page()).items()
                       if name == "takt_gpu_xid_errors_total" and value > 0}
    seconds = wait_until(counted, 5)
    xids = {(dict(labels)["uuid"], dict(labels)["xid"]) for labels in counted()}
    exam.say(f"- the program ended with {result.returncode}: {result.stderr.strip().splitlines()[-1:]}")
    kernel = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
    lines = [line for line in kernel.splitlines() if "Xid" in line]
    exam.say(f"- kernel log: {lines[-2:]}")
    exam.expect("an XID of this GPU is counted", any(uuid == gpu.uuid for uuid, _ in xids), f"{sorted(xids)} after {seconds}")
    events = [line for line in exam.exporter.events() if f'"xid":"{min(xids)[1]}"' in line] if xids else []
    exam.expect("and an event names the process", any("python" in line for line in events), *events[-1:])


def main():
    parser = argparse.ArgumentParser(prog="gpu-exam.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exporter", default="target/release/takt-exporter", help="the program (default: %(default)s)")
    parser.add_argument("--nvml", default="libnvidia-ml.so.1", help="NVML's library, also for the examiner (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10, help="length of a phase (default: %(default)s)")
    parser.add_argument("--no-smi", dest="smi", action="store_false", help="do not ask nvidia-smi")
    parser.add_argument("--no-load", dest="load", action="store_false", help="leave the GPUs as they are")
    parser.add_argument("--no-fault", dest="fault", action="store_false", help="provoke no XID")
    parser.add_argument("--save", metavar="DIR", help="write the pages of each phase and the figures there")
    options = parser.parse_args()

    exam = Exam(options)
    driver = exam.nvml.text("nvmlSystemGetDriverVersion")
    exam.say(f"{len(exam.gpus)} × {exam.gpus[0].name}, driver {driver}, {time.strftime('%Y-%m-%d')}, {os.uname().release}")
    exam.say()
    identity(exam)
    exam.say()
    exam.say("| phase | peer | values compared | not supported | differences | page p50 / max, ms | CPU at 1 Hz |")
    exam.say("|---|---|---|---|---|---|---|")
    phases = [exam.phase("idle")]
    job = None
    can_load = options.load and subprocess.run([sys.executable, "-c", "import torch; torch.cuda.init()"], capture_output=True).returncode == 0
    if can_load:
        for name in ("memory", "working", "spinning", "copying"):
            load = Load(name, job=4242 if name == "copying" else None)
            time.sleep(3)
            phases.append(exam.phase(name))
            if name != "copying":
                load.kill()
                time.sleep(2)
        exam.say()
        processes(exam, load, 4242)
        if options.fault:
            fault(exam)
        ras = subprocess.run([sys.executable, "-c", RAS], capture_output=True, text=True, timeout=120)
        exam.say("\nNCCL RAS of a process group of one:\n```\n" + ras.stdout + ras.stderr[-500:] + "\n```")
    elif options.load:
        exam.say("\nNo PyTorch with CUDA here: only the phase idle was run.")

    exam.say("\nMeans of a phase, GPU 0:\n")
    figures = [("utilization_ratio", {}), ("power_watts", {}), ("clock_hertz", {"domain": "sm"}), ("memory_used_bytes", {})]
    figures += [("activity_ratio", {"part": part}) for part in
                sorted({dict(labels)["part"] for (name, labels) in phases[-1].pages[-1] if name == "takt_gpu_activity_ratio"})]
    exam.say("| | " + " | ".join(phase.name for phase in phases) + " |")
    exam.say("|---" * (len(phases) + 1) + "|")
    table = {}
    for name, labels in figures:
        means = [phase.mean(exam.gpus[0].uuid, name, **labels) for phase in phases]
        table[" ".join([name, *labels.values()])] = means
        exam.say(f"| {name} {' '.join(labels.values())} | " + " | ".join("" if mean is None else f"{mean:.4g}" for mean in means) + " |")
    names = {name for phase in phases for page in phase.pages for (name, _) in page if name.startswith("takt_gpu_")}
    compared = {check.series for check in exam.checks} | {"takt_gpu_" + entry[0] for entry in [*SMI.values(), *(FIELDS.values() if exam.fields.pynvml else [])]}
    exam.say("\nSlowest readings of NVML, median of one call: " + ", ".join(
        f"{series.removeprefix('takt_gpu_')} {1e3 * seconds:.2f} ms" for seconds, series in
        sorted(((statistics.median(of), series) for series, of in exam.call_seconds.items()), reverse=True)[:8]) + ".")
    durations = {dict(labels)["collector"]: value for (name, labels), value in parse(exam.exporter.page()).items()
                 if name == "node_scrape_collector_duration_seconds"}
    exam.say(f"Collector nvml: {1e3 * durations.get('nvml', 0):.1f} ms, jobs: {1e3 * durations.get('jobs', 0):.1f} ms.")
    costs(exam, options.seconds)
    exam.say(f"\nMemory of the exporter: {exam.exporter.memory_bytes() / 1e6:.1f} MB.")
    exam.say(f"Exported and compared with no peer: {', '.join(sorted(names - compared)) or 'nothing'}.")
    if exam.smi.refused:
        exam.say(f"Unknown to this nvidia-smi: {', '.join(exam.smi.refused)}.")
    for note in sorted(exam.notes):
        exam.say(f"Note: {note}.")
    errors = sorted({(dict(labels).get("call"), dict(labels).get("error"), value) for (name, labels), value in phases[-1].pages[-1].items()
                     if name == "takt_gpu_call_errors_total"})
    exam.say(f"Calls that failed in the exporter: {errors or 'none'}.")
    if options.save:
        os.makedirs(options.save, exist_ok=True)
        with open(os.path.join(options.save, "page.prom"), "w") as file:
            file.write(exam.exporter.page())
        with open(os.path.join(options.save, "figures.json"), "w") as file:
            json.dump({"phases": [phase.name for phase in phases], "means": table}, file, indent=1)
        shutil.copy(exam.exporter.log.name, options.save)
    exam.exporter.end()
    exam.say(f"\n**{len(exam.failures)} differences**")
    for failure in exam.failures:
        exam.say(f"- {failure}")
    if options.save:
        with open(os.path.join(options.save, "exam.md"), "w") as file:
            file.write("\n".join(exam.lines) + "\n")
    return 1 if exam.failures else 0


if __name__ == "__main__":
    sys.exit(main())
