"""The runs on which detectors are compared: the base setting, honest and attacked, as a server or a client sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import fedgauss as fg
from fedgauss.detect.innovations import innovations
from fedgauss.detect.watch import rounds_to_drop

Array = np.ndarray[Any, Any]

N_STEPS, N_CLIENTS, SYNC_EVERY = 500, 10, 20
STEPS = fg.step_sizes.polynomial(0.3, 0.75)


@dataclass(frozen=True)
class Stream:
    """R runs as a detector sees them: one vector at each of J times, unit variance under the null where whitened."""

    values: Array  # (R, J, d): whitened innovations, or iterates
    means: Array  # (R, all rounds, d): Y after every round, from which the default computes its own
    every: int  # steps between two values
    dropped: int  # rounds at the beginning without a value

    def __len__(self) -> int:
        return len(self.values)

    @property
    def ends(self) -> Array:
        """The step at the end of each value's round, (J,)."""
        return self.every * (self.dropped + 1 + np.arange(self.values.shape[1]))

    def first_step(self, before: Array | int) -> Array:
        """The first step of the value that has this many values before it."""
        return self.every * (self.dropped + np.asarray(before)) + 1


def linear(shift: float = 0.0, noise: Array | float = 1.0) -> Any:
    """Random-effects regression, d = 2; the first half of the clients shifted by `shift` in each coordinate.

    `noise` multiplies the standard deviations of the clients' errors.
    """
    offsets = np.random.default_rng(1907).standard_normal((N_CLIENTS, 2))
    half = np.arange(N_CLIENTS) < N_CLIENTS // 2
    noise_var = (noise * np.resize([1.0, 2.0, 3.0, 4.0, 5.0], N_CLIENTS)) ** 2
    return fg.problems.linear(np.array([2.0, -3.0]) + offsets + shift * half[:, None], noise_var)


def simulate(shift: float, after: int, runs: int, seed: int) -> Array:
    """Y after each step, (R, n, d), of runs that are attacked from step after + 1 on; shift 0 for honest ones."""
    return paths(fg.problems.change_at(linear(), linear(shift), after + 1) if shift else linear(), runs, seed)


def paths(problem: Any, runs: int, seed: int) -> Array:
    """Y after each step, (R, n, d)."""
    return fg.simulate(
        problem,
        fg.networks.ring(N_CLIENTS),
        STEPS,
        N_STEPS,
        sync_every=SYNC_EVERY,
        replicates=runs,
        seed=seed,
        start=fg.near_optimum(0.25),
        keep="path",
        progress=False,
    ).path


def whitened(path: Array, every: int) -> Stream:
    """Innovations of blocks of `every` steps times the root of their weight; the default's first b0 rounds dropped."""
    parts = innovations(fg.linearize(linear()), STEPS)
    means = path[:, every - 1 :: every].astype(float)
    values = []
    dropped = rounds_to_drop(every)
    for j in range(dropped, means.shape[1]):
        block = parts.block(every * j, every * (j + 1))
        values.append(np.sqrt(block.weight) * parts.whiten(block, means[:, j - 1].T, means[:, j].T).T)
    return Stream(np.stack(values, axis=1), means, every, dropped)


def raw(path: Array, scale: Array) -> Stream:
    """Iterates after each round in units of `scale`, for the same rounds as the innovations."""
    means = path[:, SYNC_EVERY - 1 :: SYNC_EVERY].astype(float)
    dropped = rounds_to_drop(SYNC_EVERY)
    return Stream(means[:, dropped:] / scale, means, SYNC_EVERY, dropped)
