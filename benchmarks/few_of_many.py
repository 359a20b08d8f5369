"""A few of many clients a round: processor time where those present alone are computed, and where everybody is.

    PJRT_NPROC=1 OMP_NUM_THREADS=1 python benchmarks/few_of_many.py

Both are the same run. Everybody is computed where clients may start apart, which a start for each of them allows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import fedgauss as fg

REPEATS = 4  # the first compiles
SMALL = ((9, 3, 2, 4096), (10, 5, 2, 4096), (100, 50, 2, 512))  # clients, present, parameters, runs
LARGE = ((100, 10, 2, 1024), (1000, 10, 2, 64), (1000, 10, 10, 64))


def seconds(problem: fg.problems.Problem, n_steps: int, **more: Any) -> float:
    """The least processor time of a run with a server, without compilation."""
    steps, network = np.full(n_steps, 0.01), fg.networks.complete(problem.n_clients)
    taken = []
    for seed in range(REPEATS):
        began = time.process_time()
        fg.simulate(problem, network, steps, n_steps, seed=seed, progress=False, **more)
        taken.append(time.process_time() - began)
    return min(taken[1:])


def main() -> None:
    """Both ways for several sizes, and a round of very many clients."""
    for n_clients, present, dim, runs in (*SMALL, *LARGE):
        problem = fg.problems.random_effects(n_clients, dim, seed=1)
        for tau in (5, 20):
            more = {"sync_every": tau, "participation": present, "replicates": runs}
            few, everybody = (seconds(problem, 500, start=np.zeros(s), **more) for s in (dim, (n_clients, dim)))
            print(f"{present} of {n_clients} clients, {dim} parameters, {runs} runs, rounds of {tau} steps: ", end="")
            print(f"{few:.3f} s and {everybody:.3f} s, {everybody / few:.1f} times")
    n_clients, dim, rounds = 100_000, 100, 100
    rows = np.random.default_rng(0).standard_normal((n_clients, dim))
    problem = fg.problems.from_arrays(rows, rows[:, 0], np.arange(n_clients), order="replacement")
    one = seconds(problem, 5 * rounds, sync_every=5, participation=10) / rounds
    print(f"10 of {n_clients:,} clients, {dim} parameters, rounds of 5 steps: {1e3 * one:.2f} ms a round")


if __name__ == "__main__":
    main()
