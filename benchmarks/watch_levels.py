"""False alarms and power of the watch of clients on the cells of `watch_settings.py`.

    PYTHONPATH=src python benchmarks/watch_levels.py --runs 100 --workers 16
    PYTHONPATH=src python benchmarks/watch_levels.py --only "clip 0.5" --only "plain:" --runs 20 --stage 1
    PYTHONPATH=src python benchmarks/watch_levels.py --list

A cell is run whose name begins with what `--only` says. Needs NumPy and SciPy. Runs are watched to their first alarm
from the onset on; stage 0 are the runs that figures are told of, other stages are for development.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a process a core
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import platform
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers have another path

from watch_runs import Round, Runs
from watch_settings import Cell, cells

from fedgauss.detect.clients.directions import Directions
from fedgauss.detect.clients.features import FEATURES, Feature, Moves
from fedgauss.detect.clients.groups import chance
from fedgauss.detect.clients.naming import named
from fedgauss.detect.clients.sketch import Sketch
from fedgauss.detect.clients.watch import ClientWatch, joined
from fedgauss.detect.spending import spent

ALPHA = 0.05
RATE = 0.05  # of wrong names
CHUNK = 10  # runs that a process trains together
WITHIN = 5  # rounds


class Outcome(NamedTuple):
    """Of one run, watched to its first alarm from the onset on."""

    alarm: int  # the round; 0 for none
    early: bool  # whether there was one before the onset
    named: tuple[int, ...]
    onset: int


class Server:
    """What a server with a client monitor does with the uploads of R runs."""

    def __init__(self, cell: Cell, n_runs: int, features: tuple[Feature, ...] = FEATURES) -> None:
        self.watch, self.weighted = ClientWatch(n_runs, cell.federation.clients, features), cell.weighted
        self.directions = [Directions(Sketch(8192, 0), self.watch.features) for _ in range(n_runs)]

    def observe(self, seen: Round) -> Moves:
        """What the watch is given."""
        rounds = []
        for directions, who, uploads, examples in zip(self.directions, *seen, strict=True):
            weights = dict(zip(who.tolist(), examples.tolist(), strict=True)) if self.weighted else None
            numbers = {k: k for k in range(self.watch.values.shape[1])}
            compared, short = directions.compared(dict(zip(who.tolist(), uploads, strict=True)), numbers, weights)
            rounds.append(compared.moves(who, self.watch.features))
            directions.grow(len(numbers), uploads.shape[1])
            directions.turn(who, short)
        return joined(rounds)


def outcomes(
    cell: Cell, chunk: int, n_runs: int, stage: int, features: tuple[Feature, ...] = FEATURES
) -> list[Outcome]:
    """Of some runs of a cell."""
    federation, onset = cell.federation, cell.attack.onset if cell.attack.bad else 1
    runs = Runs(federation, cell.wire, cell.attack, n_runs, cell.seed(chunk, stage))
    server = Server(cell, n_runs, features)
    watch, horizon = server.watch, max(federation.rounds, 80)
    alarm, early = np.zeros(n_runs, int), np.zeros(n_runs, bool)
    who: list[Any] = [None] * n_runs
    for number, seen in enumerate(runs, 1):
        p, jumped = watch.update(server.observe(seen))
        smallest = chance(watch, np.where(alarm[:, None] > 0, np.nan, p))  # after an alarm nothing more is asked
        stands_out = (smallest <= spent(ALPHA, horizon, number)) & (alarm == 0)
        early |= stands_out & (number < onset)
        new = stands_out & (number >= onset)
        for run in np.flatnonzero(new):
            alarm[run] = number
            who[run] = named(watch, int(run), RATE)
        watch.forget(jumped & ~new)
        if (alarm > 0).all():
            break
    return [
        Outcome(int(a), bool(e), *((w.clients, w.onset) if w else ((), 0)))
        for a, e, w in zip(alarm, early, who, strict=True)
    ]


def limits(count: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's at 95 %."""
    low = stats.beta.ppf(0.025, count, of - count + 1) if count else 0.0
    high = stats.beta.ppf(0.975, count + 1, of - count) if count < of else 1.0
    return float(low), float(high)


def row_of(cell: Cell, found: list[Outcome]) -> dict[str, Any]:
    """A line of the table."""
    bad, n = cell.attack.bad, len(found)
    row: dict[str, Any] = {"cell": cell.name, "runs": n}
    if not bad:
        count = sum(o.alarm > 0 for o in found)
        accused = sum(len(o.named) for o in found)
        rounds = [o.alarm for o in found if o.alarm]
        return row | {"alarms": count, "limits": limits(count, n), "accused": accused, "rounds": rounds}
    seen = [o for o in found if o.alarm]
    soon = sum(o.alarm < cell.attack.onset + WITHIN for o in seen)
    right = sum(k < bad for o in seen for k in o.named)
    wrong = sum(k >= bad for o in seen for k in o.named)
    return row | {
        "soon": soon, "limits": limits(soon, n), "ever": len(seen), "early": sum(o.early for o in found),
        "bad named": right, "of": bad * len(seen), "wrong names": wrong,
        "runs with a wrong name": sum(any(k >= bad for k in o.named) for o in seen),
        "onset right": sum(o.onset == cell.attack.onset for o in seen),
        "delay": float(np.median([o.alarm - cell.attack.onset + 1 if o.alarm else np.inf for o in found])),
    }  # fmt: skip


def sentence(row: dict[str, Any], seconds: float) -> str:
    """A row in words."""
    low, high = row["limits"]
    if "alarms" in row:
        at = f" in rounds {row['rounds'][:8]}" if row["rounds"] else ""
        return (
            f"{row['cell']:<44}{row['alarms']:>4} of {row['runs']} alarm ({low:.3f}, {high:.3f}){at} [{seconds:.0f} s]"
        )
    return (
        f"{row['cell']:<44}{row['soon']:>4} of {row['runs']} soon ({low:.2f}, {high:.2f}), ever {row['ever']}, "
        f"named {row['bad named']} of {row['of']}, wrong {row['wrong names']}, delay {row['delay']:g}, "
        f"early {row['early']} [{seconds:.0f} s]"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--only", action="append")
    parser.add_argument("--honest", action="store_true", help="cells in which nobody is bad")
    parser.add_argument("--stage", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/watch_levels.json"))
    given = parser.parse_args()
    chosen = [
        cell
        for cell in cells()
        if (not given.only or any(cell.name.startswith(only) for only in given.only))
        and not (given.honest and cell.attack.bad)
    ]
    if given.list:
        print("\n".join(cell.name for cell in chosen))
        return
    rows = []
    context = get_context("spawn")
    with ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        parts: dict[str, list[list[Outcome] | None]] = {}
        waiting = {}
        began = time.perf_counter()
        for cell in chosen:
            n_runs = given.runs or cell.runs
            sizes = [min(CHUNK, n_runs - first) for first in range(0, n_runs, CHUNK)]
            parts[cell.name] = [None] * len(sizes)
            for chunk, size in enumerate(sizes):
                waiting[pool.submit(outcomes, cell, chunk, size, given.stage)] = (cell, chunk)
        for done in as_completed(waiting):
            cell, chunk = waiting[done]
            parts[cell.name][chunk] = done.result()
            if all(part is not None for part in parts[cell.name]):
                rows.append(row_of(cell, [outcome for part in parts[cell.name] for outcome in part or ()]))
                print(sentence(rows[-1], time.perf_counter() - began), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    about = {"stage": given.stage, "python": platform.python_version(), "numpy": np.__version__, "alpha": ALPHA}
    given.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
