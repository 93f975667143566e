"""Compares figures with the recorded ones (`recorded.json`) and prints regressions of more than a tenth.

RECORD=1 writes the figures there instead. Ratios to a peer in the same run are recorded where there are any: they depend least on
the machine.
"""

import json
import os
import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "recorded.json"


def check(bench, figures):
    """`figures`: name to number; smaller is better. Returns the number of regressions."""
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    if os.environ.get("RECORD"):
        known[bench] = {name: round(value, 3) for name, value in figures.items()}
        FILE.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        return 0
    regressions = 0
    for name, value in figures.items():
        before = known.get(bench, {}).get(name)
        if before is not None and value > 1.1 * before:
            regressions += 1
            print(f"REGRESSION {bench}: {name} is {value:.3g}, recorded is {before:.3g}")
    return regressions
