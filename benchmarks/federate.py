"""`fedgauss federate` from start to end: seconds, rounds, the memory of a site, and what masks cost.

By itself: python benchmarks/federate.py. Sites are processes of federate_site.py, which write down what they used.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np
import pandas as pd

COLUMNS = 20
REPEATS = 4
MANY = ("100,000 rows, 20 columns, 8 sites", 100_000, 8)
FEW = ("1,000 rows, 20 columns, 3 sites", 1_000, 3)


class Cost(NamedTuple):
    """Of one command, all of its processes together but for the largest site's memory."""

    wall: float  # seconds
    cpu: float  # seconds
    rounds: int
    site_mb: float


def write_tables(folder: Path, rows: int, sites: int) -> None:
    """A CSV file for each site: a binary outcome, twenty covariates, one of them text."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=(rows, COLUMNS - 1))
    ward = rng.choice(["east", "north", "west"], rows)
    signal = -0.5 + x @ rng.normal(0, 0.2, COLUMNS - 1) + 0.3 * (ward == "west")
    frame = pd.DataFrame({f"x{j}": x[:, j] for j in range(COLUMNS - 1)}).assign(
        ward=ward, died=(rng.random(rows) < 1 / (1 + np.exp(-signal))).astype(int)
    )
    for k in range(sites):
        frame[k::sites].to_csv(folder / f"site{k}.csv", index=False)


def federate(folder: Path, sites: int, *options: str) -> Cost:
    """One run of the command, with bytecode as an installation has it."""
    site = Path(__file__).with_name("federate_site.py")
    command = [sys.executable, "-m", "fedgauss", "federate", "--target", "died", "--family", "binomial", *options]
    for k in range(sites):
        own = f"{sys.executable} {site} {folder / f'used{k}.json'} {folder / f'site{k}.csv'}"
        command += ["--site", f"site{k}={own}"]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    done = subprocess.run([*command, "--out", str(folder / "fit")], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = [json.loads((folder / f"used{k}.json").read_text()) for k in range(sites)]
    rounds = json.loads((folder / "fit" / "fit.json").read_text())["statistics"]["rounds"]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, rounds, max(one["mb"] for one in used))


def best(folder: Path, sites: int, *options: str) -> Cost:
    """Of several runs the quickest: the first compiles bytecode, and other work only ever adds."""
    return min((federate(folder, sites, *options) for _ in range(REPEATS)), key=lambda cost: cost.wall)


def figures(say: common.Say) -> list[common.Figure]:
    """Both sizes, masked and not."""
    found = []
    for (name, rows, sites), limit in ((MANY, 12), (FEW, 5)):
        say(name)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_tables(folder, rows, sites)
            plain, masked = best(folder, sites), best(folder, sites, "--masked")
        found += [
            common.Figure(f"{name}: wall", plain.wall, "s", f"at most {limit}"),
            common.Figure(f"{name}: CPU of all processes", plain.cpu, "s"),
            common.Figure(f"{name}: rounds", plain.rounds, "", "at most 20"),
            common.Figure(f"{name}: memory of a site", plain.site_mb, "MB", "at most 250"),
            common.Figure(f"{name}: masked, wall", masked.wall, "s"),
            common.Figure(f"{name}: masked, CPU", masked.cpu, "s"),
            common.Figure(f"{name}: masked, memory of a site", masked.site_mb, "MB", "at most 250"),
            common.Figure(f"{name}: masked / not", masked.wall / plain.wall, "times", "at most 1.5"),
        ]
    return [*found, common.Figure("load of the machine", os.getloadavg()[1])]


if __name__ == "__main__":
    print("load:", *os.getloadavg())
    for figure in figures(print):
        print(f"{figure.quantity:<60} {figure.value:8.3g} {figure.unit} {figure.goal}")
