"""How cost grows with replicates, clients, dimension and length of run, on all cores."""

from __future__ import annotations

import resource
import sys
from typing import Any

import common
from common import Figure, Say

MEBIBYTE = 2**20


def time_job(n_clients: int, dim: int, replicates: int, n_steps: int, sync_every: int, repeats: int) -> dict[str, Any]:
    """Seconds of one call after compilation, the least of `repeats`."""
    import fedgauss as fg

    problem = fg.problems.random_effects(n_clients, dim, seed=1907)

    def call() -> Any:
        return common.simulate_on_ring(problem, replicates, n_steps, sync_every)

    call()
    return {"seconds": common.best(call, repeats)}


def peak_memory(n_steps: int) -> dict[str, Any]:
    """Bytes at most resident during the base job with this many steps.

    Linux lets a new process inherit its parent's peak; that of `run.py` is far smaller, as it never loads JAX.
    """
    common.base_job(n_steps=n_steps)
    unit = 1 if sys.platform == "darwin" else 1024
    return {"bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit}


def in_replicates(say: Say) -> list[Figure]:
    """R from a thousand to a hundred thousand."""
    found = []
    for replicates, repeats in ((1_000, 7), (10_000, 3), (100_000, 1)):
        say(f"R = {replicates:,}")
        job = {"n_clients": 10, "dim": 2, "replicates": replicates, "n_steps": 500, "sync_every": 20}
        time = common.fresh("growth", "time_job", repeats=repeats, **job)["seconds"]
        found.append(Figure(f"R = {replicates:,} (n = 500, K = 10, d = 2)", time, "s"))
    per_replicate = (found[-1].value / 100_000) / (found[0].value / 1_000)
    return [*found, Figure("cost of a replicate, R = 100,000 over R = 1,000", per_replicate, "x")]


def in_clients(say: Say) -> list[Figure]:
    """K from ten to ten thousand on a sparse ring."""
    found = {}
    for n_clients, repeats in ((10, 7), (100, 7), (1_000, 7), (10_000, 3)):
        say(f"K = {n_clients:,}")
        job = {"n_clients": n_clients, "dim": 2, "replicates": 100, "n_steps": 50, "sync_every": 5}
        found[n_clients] = common.fresh("growth", "time_job", repeats=repeats, **job)["seconds"]
    times = [Figure(f"K = {k:,} on a ring (n = 50, R = 100, d = 2)", s, "s") for k, s in found.items()]
    return [*times, Figure("K = 10,000 over K = 1,000", found[10_000] / found[1_000], "x", "<= 15")]


def in_dimension(say: Say) -> list[Figure]:
    """D from two to sixty-four."""
    found = []
    for dim in (2, 4, 8, 16, 32, 64):
        say(f"d = {dim}")
        job = {"n_clients": 10, "dim": dim, "replicates": 1_000, "n_steps": 100, "sync_every": 20}
        time = common.fresh("growth", "time_job", repeats=5, **job)["seconds"]
        found.append(Figure(f"d = {dim} (n = 100, K = 10, R = 1,000)", time, "s"))
    per_number = (found[-1].value / 65) / (found[0].value / 3)
    return [*found, Figure("cost of a normal drawn, d = 64 over d = 2", per_number, "x")]


def in_steps(say: Say) -> list[Figure]:
    """Memory for a thousand steps and for a hundred thousand: folds keep it flat."""
    found = {}
    for n_steps in (1_000, 100_000):
        say(f"n = {n_steps:,}, peak memory")
        found[n_steps] = common.fresh("growth", "peak_memory", n_steps=n_steps)["bytes"] / MEBIBYTE
    peaks = [Figure(f"peak memory, n = {n:,} (K = 10, d = 2, R = 1,000)", m, "MiB") for n, m in found.items()]
    return [*peaks, Figure("peak memory, n = 100,000 over n = 1,000", found[100_000] / found[1_000], "x", "<= 1.1")]


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    return [*in_replicates(say), *in_clients(say), *in_dimension(say), *in_steps(say)]
