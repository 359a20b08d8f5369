"""What the demonstration shows, as numbers that a sentence can quote."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.demo.run import DemoResult, FromStart
from fedgauss.report.figures import Ellipse


@dataclass(frozen=True)
class Ratio:
    """tr(S^-1 Var) / d, a variance over its theory S averaged over directions: simulated, its error, and exact."""

    simulated: float
    error: float
    exact: float


def ratio(points: FloatArray, exact: FloatArray, theory: FloatArray) -> Ratio:
    """The simulated covariance of `points` (R, d) and its exact value, each over `theory` (d, d)."""
    count, dim = points.shape
    offset = points - points.mean(axis=0)
    terms = np.einsum("ri,ri->r", offset, np.linalg.solve(theory, offset.T).T) * count / (count - 1) / dim
    error = float(terms.std(ddof=1)) / count**0.5
    return Ratio(float(terms.mean()), error, float(np.trace(np.linalg.solve(theory, exact))) / dim)


def ratios(result: DemoResult, to_limit: bool) -> list[Ratio]:
    """At each checkpoint, the variance of sqrt(n) (Ybar_n - theta*) from the optimum over Sigma_n or Sigma/K."""
    return [
        ratio(
            result.scaled(result.from_optimum, i),
            result.exact_n[n],
            result.limit if to_limit else result.sigma_n[n],
        )
        for i, n in enumerate(result.setup.checkpoints)
    ]


def ellipses(result: DemoResult, part: FromStart) -> list[Ellipse]:
    """95 % ellipses for sqrt(n) (Ybar_n - theta*): the exact law, and N(0, Sigma_n) and N(0, Sigma/K)."""
    n, zero = result.setup.n_steps, np.zeros_like(result.optimum)
    center = n**0.5 * (part.exact.mean_average[-1] - result.optimum)
    return [
        Ellipse("exact", "exact", center, n * part.exact.cov_average[-1]),
        Ellipse("$\\Sigma_n$", "finite", zero, result.sigma_n[n], line="--"),
        Ellipse("$\\Sigma/K$", "limit", zero, result.limit, line=":"),
    ]


def coverage(result: DemoResult, part: FromStart) -> list[float]:
    """The share of the runs that each of `ellipses` holds."""
    return [ellipse.share(result.scaled(part)) for ellipse in ellipses(result, part)]


def share_in_band(part: FromStart) -> float:
    """The share of simulated Y_t, over kept runs, steps and coordinates, within two exact standard deviations."""
    return float(np.mean(np.abs(part.simulated.paths - part.exact.mean) <= 2 * part.exact.sd))


def removed_by_mixing(result: DemoResult) -> tuple[float, float]:
    """The share of |Theta_t (I - J)|_F, in root mean square, that the first and the last mixing remove."""
    size = np.sqrt(result.from_optimum.simulated.square_disagreement)
    tau = result.setup.sync_every
    last = len(size) - len(size) % tau
    first_share, last_share = (1.0 - size[t - 1] / size[t - 2] for t in (tau, last))
    return float(first_share), float(last_share)
