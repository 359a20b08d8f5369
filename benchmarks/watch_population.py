"""How often the watch of a population alarms in honest runs, and how soon it sees bad clients.

    OMP_NUM_THREADS=1 python benchmarks/watch_population.py --runs 100 --workers 16        # the table
    OMP_NUM_THREADS=1 python benchmarks/watch_population.py --runs 10 --only "Dirichlet .1"  # some cells

A thousand clients, ten a round, watched by `ClientMonitor` with and without a horizon on the same moves. Bad clients
act from round 101 on. Settings were fixed before they were run for figures; a cell's seed follows from its name and a
stage: 0 is for figures that are told, any other number for development.
"""

from __future__ import annotations

import argparse
import platform
import time
import zlib
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from cross_device import Attack, Federation, Round, Runs
from scipy.stats import beta

import fedgauss as fg

CHUNK = 5  # runs side by side
ROUNDS, ONSET = 200, 101
SOON, LATE = 10, 50  # rounds after the onset within which an alarm counts
SETTINGS = {
    "momentum, Dirichlet .5": {},
    "momentum, Dirichlet .1": {"dirichlet": 0.1},
    "Adam": {"optimiser": "adam", "rate": 0.003},
    "cosine rate": {"cosine": True, "rate": 0.05},
    "clip and noise": {"clip": 0.3, "noise": 0.5},
    "unlike sizes": {"images": (10, 300)},
    "warm-up": {"warm": 30},
    "season": {"season": 40},
    "blobs": {"data": "blobs"},
    "SGD, Dirichlet .1": {"optimiser": "sgd", "rate": 0.1, "dirichlet": 0.1},
}
ATTACKED = ("momentum, Dirichlet .5", "momentum, Dirichlet .1", "Adam")


class Cell(NamedTuple):
    """One setting under one attack."""

    name: str
    federation: Federation
    attack: Attack


class Watched(NamedTuple):
    """One run: its first alarms, and what the last verdict with a horizon said."""

    alarms: tuple[int, int]  # with a horizon and without; 0 for none
    onset: int
    share: float
    named: int
    wrong: int


def cells() -> Iterator[Cell]:
    """Honest runs, then bad ones."""
    for name, options in SETTINGS.items():
        yield Cell(f"honest: {name}", Federation(rounds=ROUNDS, **options), Attack())  # type: ignore[arg-type]
    for name in ATTACKED:
        federation = Federation(rounds=ONSET + LATE - 1, **SETTINGS[name])  # type: ignore[arg-type]
        for share in (0.2, 0.05, 0.01):
            for attack in ("flip", "sign", "backdoor"):
                yield Cell(f"{attack}, {share:.0%}: {name}", federation, Attack(attack, share, ONSET))


def watched(job: tuple[Cell, int, int, int]) -> list[Watched]:
    """A chunk of runs of one cell."""
    cell, chunk, runs, stage = job
    seed = zlib.crc32(f"{cell.name}, {chunk}, {stage}".encode())
    monitors = [
        [fg.ClientMonitor(horizon=horizon, seed=chunk, population=True) for horizon in (cell.federation.rounds, None)]
        for _ in range(runs)
    ]
    first = np.zeros((runs, 2), dtype=int)
    last: list[Any] = [None] * runs
    bad: list[set[int]] = [set() for _ in range(runs)]
    for number, seen in enumerate(Runs(cell.federation, cell.attack, runs, seed), 1):
        for run, (horizon, without) in enumerate(monitors):
            _one(seen, run, number, (horizon, without), first, last)
            bad[run] |= set(seen.who[run][seen.bad[run]].tolist())
    found = []
    for run in range(runs):
        verdict = last[run]
        names = set() if verdict is None else set(verdict.suspects)
        onset, share = (0, 0.0) if verdict is None else (verdict.onset, verdict.share)
        alarms = (int(first[run, 0]), int(first[run, 1]))
        found.append(Watched(alarms, onset, share, len(names), len(names - bad[run])))
    return found


def _one(seen: Round, run: int, number: int, both: tuple[Any, Any], first: Any, last: list[Any]) -> None:
    """Both monitors on the same moves."""
    horizon, without = both
    verdict = horizon.update(dict(zip(seen.who[run].tolist(), seen.moves[run], strict=True)), model=seen.model[run])
    other = without.update(horizon.compared)
    for place, one in enumerate((verdict, other)):
        if one.alarm and not first[run, place]:
            first[run, place] = number
    if verdict.alarm and verdict.population is not None:
        last[run] = verdict.population


def interval(hits: int, runs: int) -> str:
    """A share and its Clopper-Pearson limits at 99 %."""
    low = beta.ppf(0.005, hits, runs - hits + 1) if hits else 0.0
    high = beta.ppf(0.995, hits + 1, runs - hits) if hits < runs else 1.0
    return f"{hits / runs:.2f} ({low:.2f} to {high:.2f})"


def row(cell: Cell, runs: list[Watched]) -> str:
    """What a table says of a cell."""
    count = len(runs)
    alarms = np.array([run.alarms for run in runs])
    if not cell.attack.share:
        return " | ".join([cell.name, *(interval(int((alarms[:, k] > 0).sum()), count) for k in (0, 1))])
    parts = [cell.name]
    for k in (0, 1):
        after = alarms[:, k] - ONSET
        early = ((alarms[:, k] > 0) & (after < 0)).sum()
        parts += [interval(int(((after >= 0) & (after < within)).sum()), count) for within in (SOON, LATE)]
        parts[-1] += f", before the onset {early}"
    right = [run for run in runs if run.alarms[0] >= ONSET]
    if right:
        named, wrong = sum(run.named for run in right), sum(run.wrong for run in right)
        onsets = np.array([run.onset for run in right]) - ONSET
        parts.append(f"share {np.mean([run.share for run in right]):.3f}, named {named}, wrong {wrong}")
        parts.append(f"onset {np.median(onsets):+.0f}, later than it was in {(onsets > 0).mean():.2f}")
    return " | ".join(parts)


def memory() -> None:
    """Names, bytes and milliseconds with 100,000 names that were seen once."""
    import tracemalloc

    from fedgauss.detect.clients.population import Population

    rng = np.random.default_rng(0)
    population = Population([0.01] * 6)
    taken: dict[int, float] = {}
    tracemalloc.start()
    for number in range(1, 1_013):
        rows = rng.normal(size=(100, 6))
        began = time.perf_counter()
        population.update([f"device-{number}-{k}" for k in range(100)], rows)
        taken[number] = time.perf_counter() - began
    held = population.sightings
    table = held.keys.nbytes + held.last.nbytes
    everything = tracemalloc.get_traced_memory()[0] / 1e6
    print(f"{len(held):,} names of {table / len(held):.0f} bytes; {everything:.1f} MB in all")
    early, late = (1e3 * float(np.median([taken[k] for k in range(a, a + 50)])) for a in (150, 960))
    print(f"100 clients a round: {early:.1f} ms a round at 15,000 names, {late:.1f} ms at 100,000 (traced)")


def main() -> None:
    """The table, cell by cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="", help="words that a cell's name must have")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--stage", type=int, default=1, help="0 for figures that are told")
    parser.add_argument("--memory", action="store_true", help="memory and time with 100,000 names instead")
    asked = parser.parse_args()
    print(f"fedgauss {fg.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, stage {asked.stage}")
    if asked.memory:
        memory()
        return
    print("honest: alarms with a horizon of 200 and without, at alpha .05")
    print(
        f"bad: alarms within {SOON} and {LATE} rounds with a horizon of 150, and the same without, share, names, onset"
    )
    with get_context("spawn").Pool(asked.workers) as pool:
        for cell in cells():
            if asked.only not in cell.name:
                continue
            began = time.perf_counter()
            sizes = [min(CHUNK, asked.runs - at) for at in range(0, asked.runs, CHUNK)]
            jobs = [(cell, chunk, size, asked.stage) for chunk, size in enumerate(sizes)]
            runs = [run for part in pool.imap(watched, jobs) for run in part]
            print(f"{row(cell, runs)} | {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
