"""Exact moments of regression gradients under a Gaussian design.

With x ~ N(0, H) the residual r depends on x through u = x'theta and v = x'beta alone. So every moment is a
Gaussian integral in one or two dimensions: x splits into the part that carries (u, v) and an independent rest.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erf

from fedgauss._types import FloatArray
from fedgauss.problems.base import Moments
from fedgauss.problems.families import Family, Huber, Linear, Poisson

_LARGEST_SIGNAL = 20.0  # standard deviation of a predictor up to which the trapezoidal rule keeps six digits


def regression_moments(
    family: Family, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
) -> Moments | None:
    """Gradient, Hessian and gradient covariance of every client's risk at `theta` (d,)."""
    if not has_closed_form(family, theta, coefficients, design_cov):
        return None
    if isinstance(family, Linear):
        return _linear_moments(theta, coefficients, noise_var, design_cov)
    if isinstance(family, Huber):
        return _huber_moments(family, theta, coefficients, noise_var, design_cov)
    clients = [_client_moments(family, theta, beta, cov) for beta, cov in zip(coefficients, design_cov, strict=True)]
    return Moments(*(np.stack(part) for part in zip(*clients, strict=True)))


def has_closed_form(family: Family, theta: FloatArray, coefficients: FloatArray, design_cov: FloatArray) -> bool:
    """Whether moments at `theta` are exact, to the precision of the quadrature."""
    if isinstance(family, Linear | Poisson):
        return True
    if isinstance(family, Huber):
        return family.df is None
    if family.residual_moments(np.zeros(1), np.zeros(1)) is None:
        return False
    everyone = np.broadcast_to(theta, coefficients.shape)
    signals = [np.einsum("ki,kij,kj->k", b, design_cov, b).max() for b in (coefficients, everyone)]
    return bool(max(signals) <= _LARGEST_SIGNAL**2)


def _linear_moments(theta: FloatArray, beta: FloatArray, noise_var: FloatArray, cov: FloatArray) -> Moments:
    """With delta = theta - beta_k: H delta, H, and (sigma^2 + delta'H delta) H + H delta delta' H."""
    gradient = np.einsum("kij,kj->ki", cov, theta - beta)
    scale = noise_var + np.einsum("ki,ki->k", theta - beta, gradient)
    return Moments(gradient, cov, scale[:, None, None] * cov + np.einsum("ki,kj->kij", gradient, gradient))


def _huber_moments(
    family: Huber, theta: FloatArray, beta: FloatArray, noise_var: FloatArray, cov: FloatArray
) -> Moments:
    """The residual before clipping is r ~ N(0, v), v = delta'H delta + sigma^2, and x = (H delta / v) r + rest.

    So E[g(r) x x'] = E[g] H + (E[g r^2] / v - E[g]) H delta delta' H / v, with g the indicator of |r| < c for the
    Hessian and the clipped residual squared for the noise; both need only truncated normal moments.
    """
    pull = np.einsum("kij,kj->ki", cov, theta - beta)
    v = np.maximum(noise_var + np.einsum("ki,ki->k", theta - beta, pull), 1e-300)
    c = family.threshold
    a = np.minimum(c / np.sqrt(v), 1e3)
    density = 2.0 * np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
    inside = erf(a / np.sqrt(2))  # E[1], E[r^2] and E[r^4] over |r| < c
    second = v * (inside - a * density)
    fourth = v**2 * (3 * inside - (a**3 + 3 * a) * density)
    outer = np.einsum("ki,kj->kij", pull, pull)

    def second_moment(mean: FloatArray, with_square: FloatArray) -> FloatArray:
        return mean[:, None, None] * cov + ((with_square / v - mean) / v)[:, None, None] * outer

    gradient = inside[:, None] * pull
    square = second_moment(second + c**2 * (1 - inside), fourth + c**2 * (v - second))
    return Moments(gradient, second_moment(inside, second), square - np.einsum("ki,kj->kij", gradient, gradient))


def _client_moments(
    family: Family, theta: FloatArray, beta: FloatArray, cov: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    root = np.linalg.cholesky(cov)
    # Columns of `plane` are orthonormal and span root'theta and root'beta; coordinates are standard normal.
    plane, _ = np.linalg.qr(np.stack([root.T @ theta, root.T @ beta], axis=1))
    axes, mass = _rule(family, plane.shape[1])
    moments = family.residual_moments((root.T @ theta) @ plane @ axes, (root.T @ beta) @ plane @ axes)
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


def _rule(family: Family, dim: int) -> tuple[FloatArray, FloatArray]:
    """Nodes (dim, N) and masses (N,) for a standard normal vector.

    Exponentials grow, and want Gauss-Hermite nodes far out; sigmoids have poles, and want the trapezoidal rule.
    """
    if isinstance(family, Poisson):
        nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    else:
        nodes = np.linspace(-8.5, 8.5, 201)
        weights = np.exp(-(nodes**2) / 2)
    weights = weights / weights.sum()
    grids = np.meshgrid(*[nodes] * dim)
    masses = np.meshgrid(*[weights] * dim)
    return np.stack([g.ravel() for g in grids]), np.prod([m.ravel() for m in masses], axis=0)
