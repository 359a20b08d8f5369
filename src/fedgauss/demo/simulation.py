"""The simulated half of the demonstration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.demo.setup import Setup
from fedgauss.engine import observers
from fedgauss.engine.simulate import simulate

_BLOCKS = (250, 2000)  # the fewest and the most replicates between two reports of progress


@dataclass(frozen=True)
class Simulated:
    """Local SGD from one start, R times.

    averages                    Ybar_n at each checkpoint                      (R, checkpoints, d)
    last                        Y_n                                            (R, d)
    paths                       Y_t of the first replicates                    (some, n, d)
    square_disagreement         |Theta_t (I - J)|_F^2, mean over replicates    (n,)
    square_disagreement_error   the Monte-Carlo standard error of that mean    (n,)
    """

    averages: FloatArray
    last: FloatArray
    paths: FloatArray
    square_disagreement: FloatArray
    square_disagreement_error: FloatArray


def simulate_from(setup: Setup, start: FloatArray, tick: Callable[[int, int], None]) -> Simulated:
    """Run blocks of replicates of one size, so that they share a compilation; `tick(done, total)` counts them.

    Each block has a seed of its own. What grows with n is kept for the first block only, or summed over all.
    """
    r, n = setup.replicates, setup.n_steps
    fewest, most = _BLOCKS
    n_blocks = -(-r // min(most, max(fewest, r // 64)))
    size = -(-r // n_blocks)
    watch = [
        observers.at(setup.checkpoints, observers.Average()),
        observers.at(range(1, n + 1), observers.Disagreement()),
        observers.path(),
    ]
    averages, last, paths = [], [], np.empty((0, n, setup.problem.dim))
    sums = np.zeros((2, n))
    for block in range(n_blocks):
        tick(block, n_blocks)
        runs = simulate(
            setup.problem,
            setup.network,
            setup.steps,
            n,
            sync_every=setup.sync_every,
            replicates=size,
            seed=(setup.seed << 32) + block,
            start=start,
            observe=watch,
            progress=False,
        )
        used = slice(min(size, r - block * size))
        averages.append(runs.average_at[used])
        last.append(runs.last[used])
        squares = runs.disagreement_at[used].astype(np.float64) ** 2
        sums += squares.sum(axis=0), (squares**2).sum(axis=0)
        if block == 0:
            paths = runs.path[used]
    tick(n_blocks, n_blocks)
    mean, mean_square = sums / r
    error = np.sqrt(np.maximum(mean_square - mean**2, 0.0) / (r - 1))
    return Simulated(_join(averages), _join(last), paths.astype(np.float64), mean, error)


def _join(parts: list[FloatArray]) -> FloatArray:
    return np.concatenate(parts).astype(np.float64)
