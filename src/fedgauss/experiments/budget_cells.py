"""The distance of a run to its Gaussian law, measured again with each error term taken out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.design import Design
from fedgauss.sweep.cell import Row

if TYPE_CHECKING:
    from fedgauss.theory.decomposition import ErrorTerms

# Taken out in this order. What is left of all is W, the noise at the optimum.
_REMOVED = (("D_1", "start"), ("D_3", "drift"), ("D_2", "curvature"), ("D_4", "moving"))
STAGES = ("all", "without D_1", "without D_1, D_3", "without D_1, D_3, D_2", "W")


@dataclass(frozen=True)
class BudgetCell:
    """Runs of one design, taken apart: sqrt(n) Sigma_n^-1/2 (Ybar_n - theta*) = W + D_1 + D_2 + D_3 + D_4.

    Each stage is compared with N(0, Sigma_n) and with N(0, Sigma/K); the same runs serve all. The distance of W to
    N(0, Sigma_n) is Monte-Carlo error and what the gradient noise itself lacks of normality; its distance to
    N(0, Sigma/K) is, besides, what n has left of the gap between the two covariances.
    """

    result: str
    curve: str
    design: Design
    n_steps: int
    replicates: int
    seed: int = 0

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws; the mean gradient of logistic clients takes a quadrature in every step."""
        factor = 20.0 if self.design.clients == "logistic" else 1.5
        return factor * self.n_steps * self.design.n_clients * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        kind = {"random effects": "unit", "logistic": "logistic"}.get(self.design.clients, "general")
        return f"budget {kind} {self.design.n_clients} {self.replicates}"

    def run(self) -> list[Row]:
        """A row for each stage and covariance, with `estimate`; and one for each term, with its lengths."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import average_covariance, limit_covariance
        from fedgauss.theory.decomposition import error_terms
        from fedgauss.theory.distances import ball_distance, half_space_distance

        design, problem = self.design, self.design.problem()
        terms = error_terms(
            problem,
            design.network,
            design.schedule,
            self.n_steps,
            sync_every=design.sync_every,
            sync_phase=design.reading.phase,
            replicates=self.replicates,
            seed=self.seed,
            start=design.reading.theta_0(),
            progress=False,
        )
        lin = linearize(problem)
        finite, limit = average_covariance(lin, design.schedule, self.n_steps), limit_covariance(lin)
        root, zero = _root(finite), np.zeros(lin.dim)
        rows: list[Row] = []
        for stage, z in zip(STAGES, _stages(terms), strict=True):
            for name, cov in (("Sigma_n", finite), ("Sigma/K", limit)):
                ball = ball_distance(z @ root, zero, cov, 1.0)
                found: Row = {"estimate": ball.estimate, "error": ball.standard_error, "floor": ball.floor}
                if name == "Sigma_n":
                    half = half_space_distance(z, zero, np.eye(lin.dim), 1.0, directions=8)
                    found |= {"half_spaces": half.estimate, "half_spaces_floor": half.floor}
                rows.append(self._row("distance", stage) | {"covariance": name} | found)
        for name, mean, size in terms.rows()[:5]:
            rows.append(self._row("length", name.split()[0]) | {"mean": mean, "rms": size})
        return rows

    def _row(self, measure: str, term: str) -> Row:
        return {
            "result": self.result,
            "reading": self.design.reading.name,
            "curve": self.curve,
            "clients": self.design.clients,
            "draw": self.design.draw,
            "n": self.n_steps,
            "K": self.design.n_clients,
            "beta": self.design.beta,
            "replicates": self.replicates,
            "measure": measure,
            "term": term,
        }


def _stages(terms: ErrorTerms) -> Iterator[FloatArray]:
    """The left side, then what is left of it as terms are taken out one after another."""
    rest = terms.left
    yield rest
    for _, name in _REMOVED:
        rest = rest - getattr(terms, name)
        yield rest


def _root(cov: FloatArray) -> FloatArray:
    """The symmetric square root."""
    values, vectors = np.linalg.eigh(cov)
    return (vectors * np.sqrt(values)) @ vectors.T
