"""How cost grows with replicates, clients, dimension and length of run, on all cores."""

from __future__ import annotations

import resource
import sys
from functools import partial
from typing import Any

import common
from common import Figure, Say

MEBIBYTE = 2**20


def time_jobs(jobs: list[dict[str, int]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each job after compilation: the least of several rounds, jobs in turn within each."""
    calls = [job_on_ring(**job) for job in jobs]
    for call in calls:
        call()
    times = [[common.seconds(call) for call in calls] for _ in range(rounds)]
    return {"seconds": [min(of_one) for of_one in zip(*times, strict=True)]}


def job_on_ring(n_clients: int, dim: int, replicates: int, n_steps: int, sync_every: int) -> Any:
    """FRand-eff of any size, to be called."""
    import fedgauss as fg

    problem = fg.problems.random_effects(n_clients, dim, seed=1907)
    return partial(common.simulate_on_ring, problem, replicates, n_steps, sync_every)


def peak_memory(n_steps: int) -> dict[str, int]:
    """Bytes at most resident during the base job with this many steps.

    Linux lets a new process inherit its parent's peak; that of `run.py` is far smaller, as it never loads JAX.
    """
    common.base_job(n_steps=n_steps)
    unit = 1 if sys.platform == "darwin" else 1024
    return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def timed(jobs: list[dict[str, int]], rounds: int) -> list[float]:
    """`time_jobs` in a fresh process."""
    return common.fresh("growth", "time_jobs", {"jobs": jobs, "rounds": rounds})["seconds"]


def in_replicates(say: Say) -> list[Figure]:
    """R from a thousand to a hundred thousand."""
    sizes = (1_000, 10_000, 100_000)
    say("R = 1,000 to 100,000")
    shared = {"n_clients": 10, "dim": 2, "n_steps": 100, "sync_every": 20}
    times = timed([{"replicates": size, **shared} for size in sizes], rounds=5)
    found = [Figure(f"R = {r:,} (n = 100, K = 10, d = 2)", s, "s") for r, s in zip(sizes, times, strict=True)]
    per_replicate = times[-1] / times[0] / (sizes[-1] / sizes[0])
    return [*found, Figure("cost of a replicate, R = 100,000 over R = 1,000", per_replicate, "x")]


def in_clients(say: Say) -> list[Figure]:
    """K from ten to ten thousand on a sparse ring."""
    sizes = (10, 100, 1_000, 10_000)
    say("K = 10 to 10,000 on a ring")
    shared = {"dim": 2, "replicates": 100, "n_steps": 50, "sync_every": 5}
    times = timed([{"n_clients": size, **shared} for size in sizes], rounds=9)
    found = [Figure(f"K = {k:,} (n = 50, d = 2, R = 100)", s, "s") for k, s in zip(sizes, times, strict=True)]
    return [*found, Figure("K = 10,000 over K = 1,000", times[3] / times[2], "x", "<= 15")]


def in_dimension(say: Say) -> list[Figure]:
    """The dimension from two to sixty-four."""
    sizes = (2, 4, 8, 16, 32, 64)
    say("d = 2 to 64")
    shared = {"n_clients": 10, "replicates": 1_000, "n_steps": 100, "sync_every": 20}
    times = timed([{"dim": size, **shared} for size in sizes], rounds=7)
    found = [Figure(f"d = {d} (n = 100, K = 10, R = 1,000)", s, "s") for d, s in zip(sizes, times, strict=True)]
    per_normal = times[-1] / times[0] / ((sizes[-1] + 1) / (sizes[0] + 1))
    return [*found, Figure("cost of a normal drawn, d = 64 over d = 2", per_normal, "x")]


def in_steps(say: Say) -> list[Figure]:
    """Memory for a thousand steps and for a hundred thousand: folds keep it flat."""
    lengths = (1_000, 100_000)
    peaks = []
    for n_steps in lengths:
        say(f"n = {n_steps:,}, peak memory")
        peaks.append(common.fresh("growth", "peak_memory", {"n_steps": n_steps})["bytes"] / MEBIBYTE)
    quantity = "peak memory, n = {:,} (K = 10, d = 2, R = 1,000)"
    found = [Figure(quantity.format(n), peak, "MiB") for n, peak in zip(lengths, peaks, strict=True)]
    return [*found, Figure("peak memory, n = 100,000 over n = 1,000", peaks[1] / peaks[0], "x", "<= 1.1")]


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    return [*in_replicates(say), *in_clients(say), *in_dimension(say), *in_steps(say)]
