"""Rules for integrals over Gaussian covariates, and what is integrated: the moments of a residual."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray


class ResidualMoments(NamedTuple):
    """Given the predictors u = x'theta and v = x'beta: E[r], E[r^2] and E[dr/du] of the residual r."""

    mean: FloatArray
    square: FloatArray
    slope: FloatArray


class Rule(NamedTuple):
    """Nodes and weights (N,) for N(0, 1), exact up to a largest standard deviation of the predictors."""

    nodes: FloatArray
    weights: FloatArray
    largest_signal: float

    def grid(self, dim: int) -> tuple[FloatArray, FloatArray]:
        """Nodes (dim, N) and masses (N,) for a standard normal vector."""
        grids = np.meshgrid(*[self.nodes] * dim)
        masses = np.meshgrid(*[self.weights] * dim)
        return np.stack([g.ravel() for g in grids]), np.prod([m.ravel() for m in masses], axis=0)


def _rule(nodes: FloatArray, weights: FloatArray, largest_signal: float) -> Rule:
    return Rule(nodes, weights / weights.sum(), largest_signal)


# Sigmoids have poles near the real axis once their argument varies much, where Gauss-Hermite rules lose all digits; the
# trapezoidal rule keeps six up to a standard deviation of 20. Exponentials grow, and want nodes far out.
_NODES = np.linspace(-8.5, 8.5, 201)
TRAPEZOID = _rule(_NODES, np.exp(-(_NODES**2) / 2), 20.0)
GAUSS_HERMITE = _rule(*np.polynomial.hermite_e.hermegauss(80), np.inf)
