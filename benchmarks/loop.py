"""The engine against a plain Python loop over runs, steps and clients, on one core."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
from common import Figure, Say

NOTEBOOKS = ((300, 10), (500, 50))


def plain_loop(runs: int, seed: int) -> np.ndarray[Any, Any]:
    """The base job as a notebook writes it: one gradient of one client at a time. Returns Ybar_n, (runs, d)."""
    import fedgauss as fg

    problem = fg.problems.random_effects(common.N_CLIENTS, common.DIM, seed=1907)
    mixing = fg.networks.ring(common.N_CLIENTS).matrix
    generator = np.random.default_rng(seed)
    noise_sd = np.sqrt(problem.noise_var)
    averages = np.zeros((runs, common.DIM))
    for run in range(runs):
        theta = np.zeros((common.DIM, common.N_CLIENTS))
        for t in range(1, common.N_STEPS + 1):
            eta = 0.3 * t**-0.75
            for k in range(common.N_CLIENTS):
                x = generator.standard_normal(common.DIM)
                y = x @ problem.coefficients[k] + noise_sd[k] * generator.standard_normal()
                theta[:, k] = theta[:, k] - eta * (x @ theta[:, k] - y) * x
            if t % common.SYNC_EVERY == 0:
                theta = theta @ mixing
            averages[run] += theta.mean(axis=1) / common.N_STEPS
    return averages


def measure(runs: int, repeats: int) -> dict[str, Any]:
    """Seconds for all replicates: of the engine, and of the loop scaled up from `runs` of them."""
    common.base_job()  # compiles
    engine, loop = [], []
    for seed in range(1, repeats + 1):
        engine.append(common.seconds(partial(common.base_job, seed=seed)))
        loop.append(common.seconds(partial(plain_loop, runs, seed)) * common.REPLICATES / runs)
    return {"engine": engine, "loop": loop}


def at_sizes_of_notebooks(repeats: int) -> dict[str, Any]:
    """Seconds of 1,000 runs at the sizes (n, K) at which the paper's notebooks were timed."""
    import fedgauss as fg

    times = {}
    for n_steps, n_clients in NOTEBOOKS:
        problem = fg.problems.random_effects(n_clients, common.DIM, seed=1907)
        job = partial(common.simulate_on_ring, problem, common.REPLICATES, n_steps, common.SYNC_EVERY)
        job()  # compiles
        times[f"n = {n_steps}, K = {n_clients}"] = min(common.seconds(job) for _ in range(repeats))
    return times


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say("engine and plain loop in turn, one core")
    result = common.fresh("loop", "measure", {"runs": 4, "repeats": 9}, one_core=True)
    engine, loop = common.spread(result["engine"]), common.spread(result["loop"])
    say("engine at the sizes of the paper's notebooks, all cores")
    sizes = common.fresh("loop", "at_sizes_of_notebooks", {"repeats": 15})
    return [
        Figure("plain loop, 1,000 runs (scaled up from 4), minimum of 9", loop[0], "s"),
        Figure("engine, 1,000 runs, minimum of 9", engine[0], "s"),
        Figure("loop over engine, minima", loop[0] / engine[0], "x", ">= 300"),
        Figure("loop over engine, medians", loop[1] / engine[1], "x", ">= 300"),
        *(
            Figure(f"engine, a run of 1,000, {size}", 1e3 * time / common.REPLICATES, "ms")
            for size, time in sizes.items()
        ),
    ]
