"""The bias that client drift leaves in the average when client Hessians differ, exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedgauss.experiments.design import Design
from fedgauss.sweep.cell import Row


@dataclass(frozen=True)
class MeanCell:
    """|sqrt(n) (Sigma/K)^-1/2 E(Ybar_n - theta*)| for several draws of linear clients, by the mean recursion.

    From the optimum all of it is the mean of D_3. Theorem 2.1 bounds D_3 by a multiple of sqrt(K) n^(1/2-beta).
    """

    result: str
    curve: str
    design: Design
    n_steps: int
    draws: int

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws of a simulation that would take as long."""
        return float(self.draws * self.n_steps * (3e3 + 10 * self.design.n_clients))

    @property
    def group(self) -> str:
        """Nothing is compiled."""
        return "moments"

    def run(self) -> list[Row]:
        """A row for each draw."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance
        from fedgauss.theory.exact import mean_recursion

        rows: list[Row] = []
        for draw in range(self.draws):
            design = replace(self.design, draw=draw)
            problem = design.problem()
            lin = linearize(problem)
            start = np.zeros(lin.dim) if design.reading.start == "zeros" else lin.optimum
            phase = design.reading.phase
            means = mean_recursion(
                problem, design.network, design.schedule, self.n_steps, design.sync_every, start, phase
            )
            bias = means.mean_average - lin.optimum
            square = self.n_steps * bias @ np.linalg.solve(limit_covariance(lin), bias)
            rows.append(
                {
                    "result": self.result,
                    "reading": design.reading.name,
                    "curve": self.curve,
                    "clients": design.clients,
                    "draw": draw,
                    "n": self.n_steps,
                    "K": design.n_clients,
                    "measure": "exact mean",
                    "estimate": float(np.sqrt(square)),
                    "error": 0.0,
                }
            )
        return rows
