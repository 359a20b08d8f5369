"""The two kinds of computation behind the paper's results: distances to a Gaussian law, and quantiles of U_n.

A cell is a frozen dataclass of plain values. It runs by itself, anywhere, and gives rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgauss import approx, networks, step_sizes
from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.engine.observers import Average, Last, Norm, at, sup_partial_sum
from fedgauss.engine.simulate import simulate
from fedgauss.experiments.cell import Row
from fedgauss.experiments.readings import Reading
from fedgauss.problems.linearize import linearize
from fedgauss.step_sizes import StepSizes
from fedgauss.theory.covariances import average_covariance, limit_covariance
from fedgauss.theory.distances import ball_distance, half_space_distance, max_relative_quantile_gap

Statistic = Literal["average over Sigma_n", "average over Sigma/K", "last over Sigma_n"]

LEVELS = tuple(float(level) for level in np.round(np.arange(0.02, 0.99, 0.02), 2))
APPROXIMATIONS = ("Aggr-GA", "Client-GA", "f-CLT")


@dataclass(frozen=True)
class DistanceCell:
    """Runs of one setting, and the ball distance after each of the listed steps.

    statistic   what is compared: sqrt(n) (Ybar_n - theta*) scaled by Sigma_n or by Sigma/K; or, as one published
                program does, sqrt(n) (Y_n - theta*) of the last iterate scaled by the Sigma_n of the average
    point       where the result stands in its table or figure: row or curve, and column or abscissa
    """

    result: str
    reading: Reading
    draw: int
    curve: str
    column: Literal["n", "K"]
    n_clients: int
    sync_every: int
    gamma: float
    rho: float | None  # None: the ring
    eta0: float
    beta: float
    steps: tuple[int, ...]
    replicates: int
    statistic: Statistic = "average over Sigma_n"
    seed: int = 0

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws, to start long cells first."""
        return float(max(self.steps) * self.n_clients * self.replicates)

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"distance {self.n_clients} {self.replicates} {len(self.steps)}"

    def run(self) -> list[Row]:
        """A row for each listed step."""
        problem = self.reading.problem(self.n_clients, self.gamma, self.draw)
        schedule = step_sizes.polynomial(self.eta0, self.beta)
        runs = simulate(
            problem,
            networks.ring(self.n_clients) if self.rho is None else networks.lazy(self.n_clients, self.rho),
            schedule,
            max(self.steps),
            sync_every=self.sync_every,
            sync_phase=self.reading.phase,
            replicates=self.replicates,
            seed=self.seed,
            start=self.reading.theta_0(),
            observe=[at(self.steps, Average()), at(self.steps, Last())],
            progress=False,
        )
        iterates = runs.last_at if self.statistic.startswith("last") else runs.average_at
        lin = linearize(problem)
        return [self._row(n, iterates[:, i], lin, schedule) for i, n in enumerate(sorted(self.steps))]

    def _row(self, n: int, sample: FloatArray, lin: Linearization, schedule: StepSizes) -> Row:
        limit = self.statistic == "average over Sigma/K"
        cov = limit_covariance(lin) if limit else average_covariance(lin, schedule, n)
        ball = ball_distance(sample, lin.optimum, cov, n**0.5)
        half = half_space_distance(sample, lin.optimum, cov, n**0.5, directions=8)
        return {
            "result": self.result,
            "reading": self.reading.name,
            "draw": self.draw,
            "curve": self.curve,
            "x": n if self.column == "n" else self.n_clients,
            "n": n,
            "K": self.n_clients,
            "estimate": ball.estimate,
            "error": ball.standard_error,
            "low": ball.interval[0],
            "high": ball.interval[1],
            "floor": ball.floor,
            "half_spaces": half.estimate,
            "replicates": self.replicates,
        }


@dataclass(frozen=True)
class QuantileCell:
    """U_n of local SGD and of its three approximations: quantiles, and their largest relative gap Q.

    norm         of U_n for local SGD; the approximations use the Euclidean norm
    index_shift  the approximations step by eta_{t + shift}, as one published program does
    """

    result: str
    reading: Reading
    draw: int
    curve: str
    n_clients: int
    sync_every: int
    gamma: float
    eta0: float
    beta: float
    n_steps: int
    replicates: int
    norm: Norm = "euclidean"
    index_shift: int = 0
    seed: int = 0

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws; Client-GA costs as much as the run itself."""
        return 2.0 * self.n_steps * self.n_clients * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"quantile {self.n_clients} {self.replicates}"

    def run(self) -> list[Row]:
        """For each approximation: Q, Q trimmed to [.05, .95], and pairs of quantiles."""
        problem = self.reading.problem(self.n_clients, self.gamma, self.draw)
        lin, ring = linearize(problem), networks.ring(self.n_clients)
        schedule = step_sizes.polynomial(self.eta0, self.beta)
        shifted = step_sizes.polynomial(self.eta0, self.beta, shift=float(self.index_shift))
        size = self.replicates
        runs = simulate(
            problem,
            ring,
            schedule,
            self.n_steps,
            sync_every=self.sync_every,
            sync_phase=self.reading.phase,
            seed=self.seed,
            start=self.reading.theta_0(),
            observe=[sup_partial_sum(lin.optimum, self.norm)],
            progress=False,
            replicates=size,
        )
        watch = [sup_partial_sum(np.zeros(lin.dim))]
        n, tau = self.n_steps, self.sync_every
        others = {
            "Aggr-GA": approx.aggregated(lin, shifted, n, seed=self.seed + 1, observe=watch, replicates=size),
            "Client-GA": approx.client(
                lin, ring, shifted, n, sync_every=tau, seed=self.seed + 2, observe=watch, replicates=size
            ),
            "f-CLT": approx.brownian(lin, n, seed=self.seed + 3, observe=watch, replicates=size),
        }
        u = runs.sup_partial_sum.astype(float)
        rows: list[Row] = []
        for name, other in others.items():
            rows += self._rows(name, u, other.sup_partial_sum.astype(float))
        return rows

    def _rows(self, name: str, u: FloatArray, g: FloatArray) -> list[Row]:
        base: Row = {
            "result": self.result,
            "reading": self.reading.name,
            "draw": self.draw,
            "curve": self.curve,
            "approximation": name,
            "K": self.n_clients,
            "replicates": self.replicates,
        }
        rng = np.random.default_rng([self.seed, self.draw])
        rows: list[Row] = []
        for measure, trim in (("Q", 0.0), ("Q trimmed", 0.05)):
            value = max_relative_quantile_gap(u, g, trim=trim)
            again = [
                max_relative_quantile_gap(rng.choice(u, len(u)), rng.choice(g, len(g)), trim=trim) for _ in range(50)
            ]
            rows.append(base | {"measure": measure, "estimate": value, "error": float(np.std(again, ddof=1))})
        for level, q, r in zip(LEVELS, np.quantile(u, LEVELS), np.quantile(g, LEVELS), strict=True):
            rows.append(base | {"measure": "quantile", "x": level, "reference": float(q), "estimate": float(r)})
        return rows
