"""Several passes over the same rows, for data too small for one: run on until the order of the rows hardly matters.

After each pass steps are whitened afresh with that pass's mean Hessian; the index t of eta_t runs on, so steps shrink.
The estimate is the mean of the averages of the last half of the passes. No more rows are seen than there are: errors
are those of the sandwich A^-1 V A^-1 with the true number of rows, and what is left of the order in which rows were
read, the optimisation error, is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.engine.simulate import simulate
from fedgauss.inference.passes import LastClients, Pass, Schedule, inverse
from fedgauss.inference.summaries import ClientSums, summaries
from fedgauss.inference.whitened import run_whitened, window_eta
from fedgauss.networks import Network
from fedgauss.problems.base import Problem
from fedgauss.problems.preconditioned import Preconditioned


class Passes(NamedTuple):
    """The average of each pass, (P, d), and the last pass itself."""

    averages: FloatArray
    last: Pass

    @property
    def kept(self) -> FloatArray:
        """The averages of the last half of the passes."""
        return self.averages[len(self.averages) // 2 :]

    @property
    def params(self) -> FloatArray:
        """Their mean, (d,)."""
        return self.kept.mean(axis=0)

    @property
    def sandwich(self) -> FloatArray:
        """A^-1 V_K A^-1 / n of the last pass, in which every row was read once; (d, d)."""
        bread = np.linalg.inv(self.last.hessian[0])
        return bread @ self.last.noise_cov[0] @ bread / len(self.last.schedule.eta)

    @property
    def optimisation(self) -> FloatArray:
        """The covariance of the mean of the kept averages about where they go, (d, d).

        By how they vary; of two passes one is kept, and how far it went from the other stands for it.
        """
        if len(self.kept) > 1:
            return np.atleast_2d(np.cov(self.kept.T)) / len(self.kept)
        change = self.averages[-1] - self.averages[-2]
        return np.outer(change, change)

    @property
    def gap(self) -> FloatArray:
        """How far the estimate still is from where the mean gradient of the last pass vanishes, (d,): a Newton step.

        Clients gave their mean gradients at places of their own, theta_k: with their Hessians these are moved to the
        estimate. It holds the start that is not forgotten and the drift between mixings alike.
        """
        known, weights = self.last.summaries, self.last.weights
        moved = known.gradients[0] + np.einsum("kij,kj->ki", known.hessians[0], self.params - known.places[0])
        return np.linalg.solve(self.last.hessian[0], weights @ moved)


def run_passes(
    rows_of: Callable[[int], Problem],
    network: Network,
    n_steps: int,
    sync_every: int,
    passes: int,
    *,
    seed: int = 0,
    start: FloatArray | None = None,
    progress: bool | None = None,
) -> Passes:
    """`passes` passes of n steps each; rows_of(i) is the problem of pass i, with its rows in an order of their own."""
    options: Any = {"sync_every": sync_every, "seed": seed, "progress": progress}
    first = rows_of(0)
    whole = run_whitened(first, network, n_steps, start=start, observe=[LastClients()], every=1, **options)
    averages = [whole.runs.average[0]]
    for i in range(1, passes):
        eta = window_eta(np.arange(i * n_steps + 1.0, (i + 1) * n_steps + 1.0), first.dim)
        matrix = inverse(whole.hessian)
        problem = Preconditioned(rows_of(i), matrix[0], eta, "capped")
        watch = [ClientSums(1), LastClients()]
        runs = simulate(problem, network, eta, n_steps, start=whole.runs.last_clients, observe=watch, **options)
        plan = Schedule(eta, 0)
        whole = Pass(runs, summaries(runs.observed), matrix, matrix, whole.hessian, plan, whole.weights, whole.start)
        averages.append(runs.average[0])
    return Passes(np.asarray(averages, dtype=float), whole)
