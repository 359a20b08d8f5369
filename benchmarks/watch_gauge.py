"""What `verdict.would_see` says beside what is seen then: twenty settings, frozen before any was run.

    python benchmarks/watch_gauge.py --runs 200 --workers 16       # all
    python benchmarks/watch_gauge.py --runs 24 --only "local noise" # some

Each run is honest for some rounds and is asked then what it would see. From that past it goes on six times, with one,
two and a third of its clients sending the opposite, or twice as much before clip and noise, for five rounds. A row has
the mean of what was said, the share of runs in which there was an alarm, its standard error, and the gap.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

from watch_changes import Changing
from watch_runs import Attack, Federation, Wire

ROUNDS = 5
CHUNK = 8  # runs in a job
ALPHA, HORIZON = 0.05, 100


class Setting(NamedTuple):
    """Who trains, what is sent of it, and after how many rounds it is asked."""

    federation: Federation
    wire: Wire = Wire()
    after: int = 30
    horizon: int | None = HORIZON


F, S, ALIKE = Federation, Setting, float("inf")
SETTINGS = {
    "plain": S(F()),
    "Dirichlet .1": S(F(dirichlet=0.1)),
    "alike": S(F(dirichlet=ALIKE)),
    "Adam": S(F(adam=True, rate=0.005)),
    "SGD": S(F(momentum=0.0, rate=0.5)),
    "six clients": S(F(clients=6)),
    "30 clients": S(F(clients=30)),
    "early": S(F(), after=14),
    "late, no horizon": S(F(), after=60, horizon=None),
    "clip 1.6": S(F(), Wire(clip=1.6)),
    "clip .8": S(F(), Wire(clip=0.8)),
    "clip .4, alike": S(F(dirichlet=ALIKE), Wire(clip=0.4)),
    "local noise .005": S(F(), Wire(clip=1.0, local_noise=0.005)),
    "local noise .015": S(F(), Wire(clip=1.0, local_noise=0.015)),
    "local noise .05": S(F(), Wire(clip=1.0, local_noise=0.05)),
    "local noise .05, alike": S(F(dirichlet=ALIKE), Wire(clip=1.0, local_noise=0.05)),
    "half of ten": S(F(present=5), after=40),
    "a third of 30": S(F(clients=30, present=10), after=50),
    "20 of 100": S(F(clients=100, present=20), after=70),
    "half of 20, local noise .015": S(F(clients=20, present=10), Wire(clip=1.0, local_noise=0.015), after=40),
}
ACTS = {"sign flip": ("sign", 1.0), "doubling": ("doubling", 2.0)}


def chunk(name: str, n_runs: int, seed: int) -> list[dict[str, Any]]:
    """Of one run each: what was said and what was seen, by kind and number of bad clients."""
    import fedgauss as fg

    federation, wire, after, horizon = SETTINGS[name]
    runs = Changing(federation, wire, Attack(), n_runs, seed)
    clip = wire.clip if np.isfinite(wire.clip) else None
    noise = wire.local_noise * wire.clip if wire.local_noise else None
    monitors = [fg.ClientMonitor(ALPHA, horizon, seed=seed + i, clip=clip, noise=noise) for i in range(n_runs)]
    verdicts = [None] * n_runs
    for _ in range(after):
        verdicts = [monitor.update(u) for monitor, u in zip(monitors, runs.rows(), strict=True)]
    honest = [i for i, v in enumerate(verdicts) if not v.alarm]  # a false alarm is another matter
    began = time.process_time()
    said = {i: verdicts[i].would_see for i in honest}
    seconds = (time.process_time() - began) / max(len(honest), 1)
    rows = []
    for kind, act in ACTS.items():
        for bad in said[honest[0]].sign_flip if honest else ():
            seen = alarms(runs.split(act[0], bad, act[1]), monitors)
            for i in honest:
                chances = said[i].sign_flip if kind == "sign flip" else said[i].doubling
                rows.append({"kind": kind, "bad": bad, "said": chances[bad], "seen": bool(seen[i]), "s": seconds})
    return rows


def alarms(runs: Changing, monitors: list[Any]) -> np.ndarray:
    """In which runs there is an alarm within five rounds."""
    monitors, seen = copy.deepcopy(monitors), np.zeros(runs.n_runs, dtype=bool)
    for _ in range(ROUNDS):
        rows = runs.rows()
        seen = np.array([s or monitor.update(u).alarm for s, monitor, u in zip(seen, monitors, rows, strict=True)])
    return seen


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means by setting, kind and number of bad clients."""
    found = []
    for key in dict.fromkeys((row["setting"], row["kind"], row["bad"]) for row in rows):
        each = [row for row in rows if (row["setting"], row["kind"], row["bad"]) == key]
        seen = float(np.mean([row["seen"] for row in each]))
        said = None if each[0]["said"] is None else float(np.mean([row["said"] for row in each]))
        error = (max(seen * (1 - seen), 0.25 / len(each)) / len(each)) ** 0.5
        gap = None if said is None else said - seen
        found.append(
            dict(zip(("setting", "kind", "bad"), key, strict=True))
            | {"runs": len(each), "said": said, "seen": seen, "error": error, "gap": gap}
            | {"within": None if gap is None else abs(gap) <= 0.1 + 2 * error, "seconds": each[0]["s"]}
        )
    return found


def main() -> None:
    """One table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--only", help="settings whose name holds this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    names = [given.only] if given.only in SETTINGS else [name for name in SETTINGS if (given.only or "") in name]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        jobs = []
        for name in names:
            place = list(SETTINGS).index(name)
            for first in range(0, given.runs, CHUNK):
                seed = 1_000_000 * given.seed + 10_000 * place + first
                jobs.append((name, pool.submit(chunk, name, min(CHUNK, given.runs - first), seed)))
        for name in names:
            mine = [row for label, job in jobs if label == name for row in job.result()]
            rows += [{"setting": name, **row} for row in mine]
            for line in table([row for row in rows if row["setting"] == name]):
                said = "unknown" if line["said"] is None else f"{line['said']:.2f}"
                print(
                    f"{name:30} {line['kind']:10} by {line['bad']:2}: said {said}, seen {line['seen']:.2f} "
                    f"± {line['error']:.2f} of {line['runs']} runs{'' if line['within'] else '  <--'}"
                    f"  ({line['seconds']:.2f} s)",
                    flush=True,
                )
    found = [line for line in table(rows) if line["gap"] is not None]
    for kind in ACTS:
        gaps = [line["gap"] for line in found if line["kind"] == kind]
        within = sum(line["within"] for line in found if line["kind"] == kind)
        print(f"{kind}: {within} of {len(gaps)} within .1 and two errors; too high by {max(gaps):.2f} at most")
    if given.out:
        given.out.write_text(json.dumps(table(rows), indent=1))


if __name__ == "__main__":
    main()
