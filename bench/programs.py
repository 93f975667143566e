"""Finds the programs that are measured beside takt."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def current(name, variable):
    """The program that the environment variable names, or that scripts/peers.sh builds, else the installed one."""
    if os.environ.get(variable):
        return os.environ[variable]
    built = subprocess.run([ROOT / "scripts" / "peers.sh", name], stdout=subprocess.PIPE, text=True)
    if built.returncode:
        return name
    return str(max(pathlib.Path(built.stdout.strip()).glob(f"{name}-[0-9]*"), default=name))
