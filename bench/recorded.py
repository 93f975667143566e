"""Compares figures with the recorded ones (`recorded.json`) and prints regressions of more than a tenth.

RECORD=1 writes the figures there instead. Ratios to a peer in the same run are recorded where there are any: they depend least on
the machine. Times are recorded on an idle machine only: if the load was LOAD or more when the bench began, figures without `CPU` in
their name are left out.
"""

import json
import os
import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "recorded.json"

# Load of an idle machine, over a minute.
LOAD = 0.5

load_before = os.getloadavg()[0]


def check(bench, figures):
    """`figures`: name to number; smaller is better. Returns the number of regressions."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("RECORD"):
        if load_before >= LOAD:
            print(f"The load was {load_before:.1f} at the start, so only figures of CPU time are recorded.")
            figures = {name: value for name, value in figures.items() if "CPU" in name}
        known[bench] = {name: round(value, 3) for name, value in figures.items()}
        FILE.write_text(json.dumps(known, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
        return 0
    regressions = 0
    compared = 0
    for name, value in figures.items():
        before = known.get(bench, {}).get(name)
        compared += before is not None
        if before is not None and value > 1.1 * before:
            regressions += 1
            print(f"REGRESSION {bench}: {name} is {value:.3g}, recorded is {before:.3g}")
    print(f"{compared} figures of '{bench}' compared with recorded ones, {regressions} regressions")
    return regressions
