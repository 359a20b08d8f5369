"""Exact moments of regression gradients under a Gaussian design.

With x ~ N(0, H) the residual r depends on x through u = x'theta and v = x'beta alone. So every moment is a
two-dimensional Gaussian integral: x = L z with z split into the plane that carries (u, v) and its complement.
"""

from __future__ import annotations

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.problems.base import Moments
from fedgauss.problems.families import Family, Linear

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_FIRST, _SECOND = (grid.ravel() for grid in np.meshgrid(_NODES, _NODES))
_MASS = np.outer(_WEIGHTS, _WEIGHTS).ravel() / _WEIGHTS.sum() ** 2


def regression_moments(
    family: Family, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
) -> Moments | None:
    """Gradient, Hessian and gradient covariance of every client's risk at `theta` (d,)."""
    if isinstance(family, Linear):
        return _linear_moments(theta, coefficients, noise_var, design_cov)
    if family.residual_moments(np.zeros(1), np.zeros(1), 1.0) is None:
        return None
    clients = [
        _client_moments(family, theta, beta, float(np.sqrt(variance)), cov)
        for beta, variance, cov in zip(coefficients, noise_var, design_cov, strict=True)
    ]
    return Moments(*(np.stack(part) for part in zip(*clients, strict=True)))


def _linear_moments(theta: FloatArray, beta: FloatArray, noise_var: FloatArray, cov: FloatArray) -> Moments:
    """With delta = theta - beta_k: H delta, H, and (sigma^2 + delta'H delta) H + H delta delta' H."""
    gradient = np.einsum("kij,kj->ki", cov, theta - beta)
    scale = noise_var + np.einsum("ki,ki->k", theta - beta, gradient)
    return Moments(gradient, cov, scale[:, None, None] * cov + np.einsum("ki,kj->kij", gradient, gradient))


def _client_moments(
    family: Family, theta: FloatArray, beta: FloatArray, noise_sd: float, cov: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    root = np.linalg.cholesky(cov)
    # Columns of `plane` are orthonormal and span root'theta and root'beta; coordinates are standard normal.
    plane, _ = np.linalg.qr(np.stack([root.T @ theta, root.T @ beta], axis=1))
    rank = plane.shape[1]
    axes = np.stack([_FIRST, _SECOND][:rank])
    mass = _MASS
    u, v = (root.T @ theta) @ plane @ axes, (root.T @ beta) @ plane @ axes
    moments = family.residual_moments(u, v, noise_sd)
    assert moments is not None
    mean, square, slope = moments

    def second_moment(factor: FloatArray) -> FloatArray:
        """E[factor x x'] from its part in the plane and the independent complement."""
        total = float(mass @ factor)
        inside = np.einsum("n,in,jn->ij", mass * factor, axes, axes)
        whole = total * (np.eye(len(theta)) - plane @ plane.T) + plane @ inside @ plane.T
        return root @ whole @ root.T

    gradient = root @ plane @ (axes @ (mass * mean))
    return gradient, second_moment(slope), second_moment(square) - np.outer(gradient, gradient)
