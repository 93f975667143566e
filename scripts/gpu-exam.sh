#!/bin/sh
# Compares takt-exporter with NVML and nvidia-smi on this machine's GPUs: idle, full memory, work, spinning, a killed
# process. Prints a table in Markdown; exits 1 if a reading differs. Needs python3 only; with PyTorch it makes the load.
# Changes no setting of a GPU. `scripts/gpu-exam.sh --help` lists the options.
set -eu
exec python3 "$(dirname "$0")/gpu_exam.py" "$@"
