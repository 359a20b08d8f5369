"""Several passes over the same rows, for data too small for one: until the order of the rows hardly matters.

After each pass steps are whitened again with that pass's mean Hessian; the index t of eta_t runs on, so steps shrink.
The estimate is the mean of the averages of the last half of the passes. Reading rows again adds no information: errors
are those of the sandwich A^-1 V A^-1 with the true number of rows, plus the optimisation error, which is what the order
of the rows still contributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.engine.simulate import simulate
from fedgauss.inference.client_sums import ClientSums, client_statistics
from fedgauss.inference.passes import LastClients, Pass, StepPlan, inverse
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

        From their variation; with two passes their squared difference is used.
        """
        if len(self.kept) > 1:
            return np.atleast_2d(np.cov(self.kept.T)) / len(self.kept)
        change = self.averages[-1] - self.averages[-2]
        return np.outer(change, change)

    @property
    def gap(self) -> FloatArray:
        """The Newton step from the zero of the last pass's mean gradient to the estimate, (d,).

        It contains whatever is left of the start and the drift between mixings alike.
        """
        pulls = self.last.clients.gradients_at(self.params)
        return np.linalg.solve(self.last.hessian[0], self.last.weights @ pulls)


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
    last = run_whitened(first, network, n_steps, start=start, observe=[LastClients()], every=1, **options)
    averages = [last.runs.average[0]]
    for i in range(1, passes):
        eta = window_eta(np.arange(i * n_steps + 1.0, (i + 1) * n_steps + 1.0), first.dim)
        matrix = inverse(last.hessian)
        problem = Preconditioned(rows_of(i), matrix[0], eta, "capped")
        watch = [ClientSums(1), LastClients()]
        runs = simulate(problem, network, eta, n_steps, start=last.runs.last_clients, observe=watch, **options)
        clients, plan = client_statistics(runs.observed), StepPlan(eta, 0)
        last = Pass(runs, clients, matrix, matrix, last.hessian, plan, last.weights, last.start)
        averages.append(runs.average[0])
    return Passes(np.asarray(averages, dtype=float), last)
