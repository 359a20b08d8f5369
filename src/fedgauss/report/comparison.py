"""A simulated number beside the number it should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedgauss._types import FloatArray


@dataclass(frozen=True)
class Comparison:
    """One quantity, simulated with its Monte-Carlo standard error, exact, and as Gaussian theory approximates it.

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
class Verdict:
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
            f"the largest of {self.n_comparisons} differences is {self.largest:.1f} Monte-Carlo standard errors, and "
            f"chance alone stays below {self.limit:.1f} in about 99 of 100 such simulations"
        )
        return f"Simulation and exact theory {'agree' if self.agrees else 'do not agree'}: {rule}."


def compare(
    name: str, terms: FloatArray, exact: float, approximation: float | None = None, positive: bool = False
) -> Comparison:
    """The mean of one term a replicate, (R,), beside what its expectation should be."""
    error = float(terms.std(ddof=1)) / len(terms) ** 0.5
    return Comparison(name, float(terms.mean()), error, float(exact), approximation, positive)


def product_terms(x: FloatArray, y: FloatArray) -> FloatArray:
    """(x - mean x) (y - mean y) R / (R - 1), (R,): their mean is the sample covariance."""
    return (x - x.mean()) * (y - y.mean()) * len(x) / (len(x) - 1)


def judge(comparisons: Sequence[Comparison], replicates: int, level: float = 0.01) -> Verdict:
    """Compare max |z| with the 1 - level / (2m) quantile of Student's t, Bonferroni's bound for m comparisons."""
    m = len(comparisons)
    limit = float(special.stdtrit(replicates - 1, 1.0 - level / (2 * m)))
    return Verdict(m, float(np.max(np.abs([c.z for c in comparisons]))), limit)
