"""Exact moments of regression gradients under a Gaussian design, by quadrature.

With x ~ N(0, H) the residual r depends on x through u = x'theta and v = x'beta alone. So every moment is a
Gaussian integral in one or two dimensions: x splits into the part that carries (u, v) and an independent rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.problems.base import Moments

if TYPE_CHECKING:
    from fedgauss.problems.families import Family


class Rule(NamedTuple):
    """Nodes and weights (N,) for N(0, 1), exact up to a largest standard deviation of the predictors."""

    nodes: FloatArray
    weights: FloatArray
    largest_signal: float


def _rule(nodes: FloatArray, weights: FloatArray, largest_signal: float) -> Rule:
    return Rule(nodes, weights / weights.sum(), largest_signal)


# Sigmoids have poles near the real axis once their argument varies much, where Gauss-Hermite rules lose all digits; the
# trapezoidal rule keeps six up to a standard deviation of 20. Exponentials grow, and want nodes far out.
_NODES = np.linspace(-8.5, 8.5, 201)
TRAPEZOID = _rule(_NODES, np.exp(-(_NODES**2) / 2), 20.0)
GAUSS_HERMITE = _rule(*np.polynomial.hermite_e.hermegauss(80), np.inf)


def quadrature_moments(
    family: Family, theta: FloatArray, coefficients: FloatArray, design_cov: FloatArray
) -> Moments | None:
    """Gradient, Hessian and gradient covariance of every client's risk at `theta` (d,)."""
    if not has_closed_form(family, theta, coefficients, design_cov):
        return None
    clients = [_client_moments(family, theta, beta, cov) for beta, cov in zip(coefficients, design_cov, strict=True)]
    return Moments(*(np.stack(part) for part in zip(*clients, strict=True)))


def has_closed_form(family: Family, theta: FloatArray, coefficients: FloatArray, design_cov: FloatArray) -> bool:
    """Whether moments at `theta` are exact, to the precision of the quadrature."""
    if family.residual_moments(np.zeros(1), np.zeros(1)) is None:
        return False
    if family.quadrature.largest_signal == np.inf:
        return True
    everyone = np.broadcast_to(theta, coefficients.shape)
    signals = [np.einsum("ki,kij,kj->k", b, design_cov, b).max() for b in (coefficients, everyone)]
    return bool(max(signals) <= family.quadrature.largest_signal**2)


def _client_moments(
    family: Family, theta: FloatArray, beta: FloatArray, cov: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    root = np.linalg.cholesky(cov)
    # Columns of `plane` are orthonormal and span root'theta and root'beta; coordinates are standard normal.
    plane, _ = np.linalg.qr(np.stack([root.T @ theta, root.T @ beta], axis=1))
    axes, mass = _grid(family.quadrature, plane.shape[1])
    moments = family.residual_moments((root.T @ theta) @ plane @ axes, (root.T @ beta) @ plane @ axes)
    assert moments is not None
    mean, square, slope = moments

    def second_moment(factor: FloatArray) -> FloatArray:
        """E[factor x x'] from its part in the plane and the independent complement."""
        total = float(mass @ factor)
        inside = np.einsum("n,in,jn->ij", mass * factor, axes, axes)
        both = total * (np.eye(len(theta)) - plane @ plane.T) + plane @ inside @ plane.T
        return root @ both @ root.T

    gradient = root @ plane @ (axes @ (mass * mean))
    return gradient, second_moment(slope), second_moment(square) - np.outer(gradient, gradient)


def _grid(rule: Rule, dim: int) -> tuple[FloatArray, FloatArray]:
    """Nodes (dim, N) and masses (N,) for a standard normal vector."""
    grids = np.meshgrid(*[rule.nodes] * dim)
    masses = np.meshgrid(*[rule.weights] * dim)
    return np.stack([g.ravel() for g in grids]), np.prod([m.ravel() for m in masses], axis=0)
