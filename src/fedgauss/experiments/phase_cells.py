"""d_c-dagger over n and K from runs that start at the optimum, and how it scales with n."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.design import Design
from fedgauss.sweep.cell import Row


@dataclass(frozen=True)
class PhaseCell:
    """Runs with K clients under each of several beta, looked at after each of the listed steps, against N(0, Sigma/K).

    One run passes through every n, so that distances at two n are correlated; the slope of log distance on log n
    is therefore a row of its own, with an error that counts the correlation. Let seeds differ between values of K:
    then points at two K are independent. The beta of the design is not used.
    """

    result: str
    design: Design
    betas: tuple[float, ...]
    steps: tuple[int, ...]
    replicates: int
    seed: int = 0

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws, of which all beta share one set."""
        shared = 0.6 + 0.4 * len(self.betas)
        return shared * max(self.steps) * self.design.n_clients * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"phase {self.design.n_clients} {self.replicates} {len(self.steps)} {len(self.betas)}"

    def run(self) -> list[Row]:
        """For each beta a row for each listed step, and one for the slope on log n."""
        from fedgauss.engine.observers import Average, at
        from fedgauss.engine.together import Setting, simulate_together
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance

        problem, network, reading = self.design.problem(), self.design.network, self.design.reading
        settings = [
            Setting(
                problem,
                network,
                replace(self.design, beta=beta).schedule,
                self.design.sync_every,
                reading.phase,
                reading.theta_0(),
                [at(self.steps, Average())],
            )
            for beta in self.betas
        ]
        together = simulate_together(
            settings, max(self.steps), replicates=self.replicates, seed=self.seed, progress=False
        )
        lin = linearize(problem)
        scale = np.sqrt(self.steps)[:, None]
        white = np.linalg.inv(np.linalg.cholesky(limit_covariance(lin))).T
        rows: list[Row] = []
        for beta, runs in zip(self.betas, together, strict=True):
            rows += self._rows(beta, (scale * (runs.average_at.astype(float) - lin.optimum)) @ white)
        return rows

    def _rows(self, beta: float, z: FloatArray) -> list[Row]:
        """From standardised averages (R, steps, d)."""
        from fedgauss.theory.distances import ball_distance
        from fedgauss.theory.rates import berry_esseen_limit

        k, dim = self.design.n_clients, z.shape[2]
        base: Row = {
            "result": self.result,
            "reading": self.design.reading.name,
            "curve": f"beta={beta}",
            "draw": self.design.draw,
            "K": k,
            "beta": beta,
            "replicates": self.replicates,
        }
        rows: list[Row] = []
        for i, n in enumerate(self.steps):
            ball = ball_distance(z[:, i], np.zeros(dim), np.eye(dim), 1.0)
            rows.append(
                base
                | {
                    "measure": "distance",
                    "n": n,
                    "estimate": ball.estimate,
                    "error": ball.standard_error,
                    "floor": ball.floor,
                    "printed": berry_esseen_limit(n, k, beta, "printed").total,
                    "corrected": berry_esseen_limit(n, k, beta, "corrected").total,
                }
            )
        slope, error = slope_on_log_n(np.array(self.steps, dtype=float), np.linalg.norm(z, axis=2).T)
        return [*rows, base | {"measure": "slope on log n", "estimate": slope, "error": error}]


def slope_on_log_n(n: FloatArray, lengths: FloatArray) -> tuple[float, float]:
    """The least-squares slope of log d_j on log n_j and its standard error; lengths (m, R), a row for each n.

    d_j = |F_R(x_j) - F(x_j)| at the x_j where the sup is attained, with F that of |Z|, Z ~ N(0, I_2). To first order
    d_j varies as the share of runs below x_j does, so Cov(d_i, d_j) is that of two such shares over the same runs.
    """
    count = lengths.shape[1]
    ranks = np.arange(count)
    distances, below = [], []
    for row in lengths:
        theory = 1.0 - np.exp(-(np.sort(row) ** 2) / 2)
        gaps = np.stack([(ranks + 1) / count - theory, ranks / count - theory])  # just after and just before a run
        side, where = np.unravel_index(np.argmax(np.abs(gaps)), gaps.shape)
        distances.append(abs(gaps[side, where]))
        below.append(np.sign(gaps[side, where]) * (row <= np.sort(row)[where]))
    d = np.array(distances)
    log_n = np.log(n) - np.log(n).mean()
    weights = log_n / (log_n**2).sum()
    gradient = weights / d
    error = np.sqrt(gradient @ np.cov(np.array(below, dtype=float)) @ gradient / count)
    return float(weights @ np.log(d)), float(error)
