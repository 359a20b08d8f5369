"""Huber regression: squared loss near the centre, absolute loss in the tails, and smooth between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedgauss._linearization import Moments
from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import AdditiveNoise, register

_NODES = np.linspace(-1.0, 1.0, 201)  # of the rule for integrals, in units of its range
_FAR = 8.5  # standard deviations, where the range ends
_NARROWEST, _USUAL = 0.2, 2.0  # thresholds in median absolute deviations of the response


@register
@dataclass(frozen=True)
class Huber(AdditiveNoise):
    """A smooth form of Huber's loss, c^2 (sqrt(1 + (r / c)^2) - 1) with threshold c; y = eta + noise as in `Linear`.

    It is r^2 / 2 for small residuals and c |r| - c^2 for large ones (Charbonnier's or "pseudo-Huber" loss). Its
    derivative r / sqrt(1 + (r / c)^2) is bounded by c as Huber's clipped residual is, without corners: at a corner a
    row's weight jumps, and two rounds on either side of it would tell of that row. At the usual threshold 1.345 and
    standard normal noise the efficiency is .954, and Huber's is .950.
    """

    threshold: float = 1.345
    df: float | None = None

    name = "huber"
    model_errors = "none"

    @property
    def needs(self) -> str:  # type: ignore[override]
        """In units of the threshold."""
        widest = self.threshold / _NARROWEST
        return f"numbers whose median absolute deviation is at most {widest:.4g}, for its threshold {self.threshold:g}"

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """(eta - y) / sqrt(1 + ((eta - y) / c)^2)."""
        away, c = predictor - response, self.threshold
        return c * away / numpy_for(away).hypot(c, away)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """r^2 / (1 + sqrt(1 + (r / c)^2)), which is c^2 (sqrt(1 + (r / c)^2) - 1) with all digits."""
        away, c = predictor[0] - response, self.threshold
        return away * (away / (1.0 + np.hypot(1.0, away / c)))

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """1 / sqrt(1 + (r / c)^2), the weight of reweighted least squares, whose steps always climb.

        The second derivative itself is its cube: far from the optimum, where few rows have any, steps by it are wild.
        """
        return np.asarray(1.0 / np.hypot(1.0, (predictor - response) / self.threshold))

    def curvature(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """(1 + (r / c)^2)^(-3/2)."""
        return np.asarray(np.hypot(1.0, (predictor - response) / self.threshold) ** -3.0)

    def describe(self) -> str:
        """With the threshold in the units of the response."""
        return f"huber (threshold {self.threshold:g})"

    def read(self, target: str, values: FloatArray, levels: Sequence[Any] | None) -> FloatArray:
        """Refuse a threshold far below the spread: hardly a row would lie inside it, and the Hessian all but vanish."""
        response = super().read(target, values, levels)
        spread = float(np.median(np.abs(response - np.median(response)))) if len(response) else 0.0
        if self.threshold < _NARROWEST * spread:
            raise ValueError(
                f"the threshold of family 'huber' must be at least {_NARROWEST:g} of the median absolute deviation of "
                f"the target; it is {self.threshold:g}, and that of {target!r} is {spread:.3g}. Measure the target in "
                f"other units, or use family=families.Huber({_USUAL * spread:.2g})."
            )
        return response

    def sizes(self, response: FloatArray) -> tuple[float, float]:
        """The threshold, unless most rows lie within it."""
        return (min(self.threshold, float(np.std(response))),) * 2

    def rescaled(self, scale: float) -> Huber:
        """The threshold is in the units of the response."""
        return replace(self, threshold=self.threshold / scale)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """Grad F_k = E[(1 + (r / c)^2)^(-3/2)] H (theta - beta) with r ~ N(0, gap_var + noise_var)."""
        if self.df is not None:
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
        from jax import lax

        jnp = numpy_for(gap_var)
        spread = jnp.sqrt(gap_var + noise_sd**2) / self.threshold
        nodes = jnp.asarray(_NODES, spread.dtype)

        def add_node(i: JaxArray, total: JaxArray) -> JaxArray:
            away, mass = _node(nodes[i], spread)
            return total + mass / jnp.hypot(1.0, away) ** 3

        inside = lax.fori_loop(0, len(_NODES), add_node, jnp.zeros_like(spread))
        return inside, inside

    def moments(
        self, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
    ) -> Moments | None:
        """The residual of the response is r ~ N(0, v), v = delta'H delta + sigma^2, and x = (H delta / v) r + rest.

        So E[g(r) x x'] = E[g] H + (E[g r^2] / v - E[g]) H delta delta' H / v, with g the second derivative of the loss
        for the Hessian and its first derivative squared for the noise.
        """
        if self.df is not None:
            return None
        pull = np.einsum("kij,kj->ki", design_cov, theta - coefficients)
        v = np.maximum(noise_var + np.einsum("ki,ki->k", theta - coefficients, pull), 1e-300)
        c = self.threshold
        away, mass = _node(_NODES[:, None], np.sqrt(v) / c)  # (N, K)
        square = (c * away) ** 2
        slope, size = (1.0 + away**2) ** -1.5, square / (1.0 + away**2)
        outer = np.einsum("ki,kj->kij", pull, pull)

        def second_moment(factor: FloatArray) -> FloatArray:
            mean, with_square = (mass * factor).sum(axis=0), (mass * factor * square).sum(axis=0)
            return mean[:, None, None] * design_cov + ((with_square / v - mean) / v)[:, None, None] * outer

        gradient = (mass * slope).sum(axis=0)[:, None] * pull
        return Moments(
            gradient, second_moment(slope), second_moment(size) - np.einsum("ki,kj->kij", gradient, gradient)
        )


def _node(node: JaxArray, spread: JaxArray) -> tuple[JaxArray, JaxArray]:
    """Where a node of the trapezoidal rule lies, and its mass, for r / c ~ N(0, spread^2).

    In t with r / c = sinh(t) the derivatives of the loss are powers of cosh(t), so the rule converges whether the
    spread is far above one or far below.
    """
    np_or_jax = numpy_for(spread)
    largest = np_or_jax.arcsinh(_FAR * spread)
    away = np_or_jax.sinh(largest * node)
    density = np_or_jax.exp(-((away / spread) ** 2) / 2.0) / (spread * np.sqrt(2.0 * np.pi))
    return away, density * np_or_jax.hypot(1.0, away) * largest * (2.0 / (len(_NODES) - 1))
