"""Distances without Monte-Carlo error: the Gaussian law with the run's exact mean and covariance, against theory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.design import Design
from fedgauss.sweep.cell import Row


@dataclass(frozen=True)
class MomentsCell:
    """The ball distance between N(b, S) and the two Gaussian laws of theory, after each of the listed steps.

    b and S are the mean and the covariance of sqrt(n) (Ybar_n - theta*), by the exact recursion. A run is not quite
    Gaussian, so its own distance may differ from this one; a trend of this one, in K or in n, has no noise in it.
    """

    result: str
    curve: str
    design: Design
    steps: tuple[int, ...]

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws of a simulation that would take as long: the recursion moves K^2 numbers a step."""
        return float(max(self.steps) * (5e3 + 6 * self.design.n_clients**2))

    @property
    def group(self) -> str:
        """Nothing is compiled."""
        return "moments"

    def run(self) -> list[Row]:
        """A row for each listed step and each covariance."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import average_covariance, limit_covariance
        from fedgauss.theory.exact import exact_path

        design, problem = self.design, self.design.problem()
        lin = linearize(problem)
        path = exact_path(
            problem,
            design.network,
            design.schedule,
            max(self.steps),
            design.sync_every,
            np.zeros(lin.dim) if design.reading.start == "zeros" else lin.optimum,
            sync_phase=design.reading.phase,
        )
        rows: list[Row] = []
        for n in self.steps:
            mean, cov = n**0.5 * (path.mean_average[n - 1] - lin.optimum), n * path.cov_average[n - 1]
            sigma_n = average_covariance(lin, design.schedule, n)
            for name, theory in (("Sigma_n", sigma_n), ("Sigma/K", limit_covariance(lin))):
                rows.append(
                    {
                        "result": self.result,
                        "reading": design.reading.name,
                        "curve": self.curve,
                        "clients": design.clients,
                        "draw": design.draw,
                        "n": n,
                        "K": design.n_clients,
                        "beta": design.beta,
                        "measure": "exact moments",
                        "term": "all",
                        "covariance": name,
                        "estimate": gaussian_ball_distance(mean, cov, theory),
                        "error": 0.0,
                        "variance_ratio": float(np.trace(np.linalg.solve(theory, cov))) / lin.dim,
                    }
                )
        return rows


def gaussian_ball_distance(mean: FloatArray, cov: FloatArray, theory: FloatArray) -> float:
    """sup_x |P(|theory^-1/2 X| <= x) - (1 - exp(-x^2 / 2))| for X ~ N(mean, cov) in the plane.

    The density of the length is that of X in polar coordinates, averaged over the angle; the trapezoidal rule gives
    it to about 1e-5.
    """
    white = np.linalg.inv(np.linalg.cholesky(theory))
    center, spread = white @ mean, white @ cov @ white.T
    angle = np.linspace(0.0, 2.0 * np.pi, 128, endpoint=False)
    low, high = np.sqrt(np.linalg.eigvalsh(spread))
    reach = float(np.linalg.norm(center)) + 8.0 * max(1.0, float(high))
    x = np.linspace(0.0, reach, 1 + int(100.0 * reach / min(1.0, float(low))))
    points = x[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) - center
    square = np.einsum("xai,xai->xa", points @ np.linalg.inv(spread), points)
    density = x * np.exp(-square / 2).mean(axis=1) / np.sqrt(np.linalg.det(spread))
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return float(np.abs(share - (1.0 - np.exp(-(x**2) / 2))).max())
