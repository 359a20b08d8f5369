"""Simulated numbers compared with what they should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedgauss._types import FloatArray

_CHI2_95 = 5.991464547107979  # the 95 % quantile of chi-squared with two degrees of freedom: -2 log 0.05


@dataclass(frozen=True)
class Comparison:
    """One quantity, simulated with its Monte Carlo standard error, exact, and as Gaussian theory approximates it.

    `positive` quantities, such as variances, are compared on a logarithmic scale: their estimates are skewed, and
    a small one comes with a small error.
    """

    name: str
    simulated: float
    error: float
    exact: float
    approximation: float | None = None
    positive: bool = False

    @property
    def z(self) -> float:
        """(simulated - exact) / error, or log(simulated / exact) / (error / simulated): near N(0, 1) if all is well."""
        if self.positive:
            return math.log(self.simulated / self.exact) * self.simulated / self.error
        return (self.simulated - self.exact) / self.error


@dataclass(frozen=True)
class ZCheck:
    """Whether the largest of m differences is one that m true hypotheses would show."""

    n_comparisons: int
    largest: float
    limit: float

    @property
    def agrees(self) -> bool:
        """max |z| <= limit."""
        return self.largest <= self.limit

    def __str__(self) -> str:
        rule = (
            f"the largest of {self.n_comparisons} differences is {self.largest:.1f} Monte Carlo standard errors, and "
            f"chance alone stays below {self.limit:.1f} in about 99 of 100 such simulations"
        )
        return f"Simulation and exact theory {'agree' if self.agrees else 'do not agree'}: {rule}."


@dataclass(frozen=True)
class Ellipse:
    """The set (x - center)' cov^-1 (x - center) <= 5.99, which holds 95 % of N(center, cov)."""

    label: str
    role: str  # of the palette
    center: FloatArray
    cov: FloatArray
    line: str = "-"

    def share(self, points: FloatArray) -> float:
        """The share of points inside."""
        return float(np.mean(_squared_distances(points - self.center, self.cov) <= _CHI2_95))

    @property
    def outline(self) -> FloatArray:
        """Points on the boundary, (m, 2)."""
        angle = np.linspace(0.0, 2.0 * np.pi, 181)
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return self.center + _CHI2_95**0.5 * circle @ np.linalg.cholesky(self.cov).T


def compare(
    name: str, terms: FloatArray, exact: float, approximation: float | None = None, positive: bool = False
) -> Comparison:
    """Compare the mean of one term a replicate, (R,), with its exact expectation."""
    error = float(terms.std(ddof=1)) / len(terms) ** 0.5
    return Comparison(name, float(terms.mean()), error, float(exact), approximation, positive)


def product_terms(x: FloatArray, y: FloatArray) -> FloatArray:
    """(x - mean x) (y - mean y) R / (R - 1), (R,): their mean is the sample covariance."""
    return (x - x.mean()) * (y - y.mean()) * len(x) / (len(x) - 1)


def variance_ratio(points: FloatArray, exact: FloatArray, theory: FloatArray) -> Comparison:
    """tr(S^-1 Var) / d, a variance relative to its theory S averaged over directions.

    Parameters
    ----------
    points : array (R, d)
        The simulated points whose variance is taken.
    exact, theory : array (d, d)
        Its exact value, and S.
    """
    count, dim = points.shape
    terms = _squared_distances(points - points.mean(axis=0), theory) * count / (count - 1) / dim
    return compare("variance / theory", terms, mean_ratio(exact, theory), positive=True)


def mean_ratio(cov: FloatArray, theory: FloatArray) -> float:
    """tr(S^-1 C) / d."""
    return float(np.trace(np.linalg.solve(theory, cov))) / len(cov)


def check_z(comparisons: Sequence[Comparison], replicates: int, level: float = 0.01) -> ZCheck:
    """Compare max |z| with the 1 - level / (2m) quantile of Student's t, Bonferroni's bound for m comparisons."""
    m = len(comparisons)
    limit = float(special.stdtrit(replicates - 1, 1.0 - level / (2 * m)))
    return ZCheck(m, float(np.max(np.abs([c.z for c in comparisons]))), limit)


def _squared_distances(offsets: FloatArray, cov: FloatArray) -> FloatArray:
    """x' cov^-1 x for each row x of `offsets`."""
    return np.einsum("ri,ri->r", offsets, np.linalg.solve(cov, offsets.T).T)
