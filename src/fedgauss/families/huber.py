"""Huber regression: squared loss near the centre, absolute loss in the tails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erf

from fedgauss._linearization import Moments
from fedgauss._namespaces import numpy_for, special_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import AdditiveNoise
from fedgauss.families.registry import register

_BEYOND = 0.05
_NARROWEST, _USUAL = 0.2, 2.0  # thresholds in median absolute deviations of the response


@register
@dataclass(frozen=True)
class Huber(AdditiveNoise):
    """Huber loss: squared up to `threshold`, linear beyond; y = eta + noise as in `Linear`."""

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
        """Eta - y, clipped at the threshold."""
        return numpy_for(predictor).clip(predictor - response, -self.threshold, self.threshold)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """Half the squared residual up to the threshold c, c |r| - c^2 / 2 beyond."""
        size = np.abs(predictor[0] - response)
        inside = np.minimum(size, self.threshold)
        return inside * (size - inside / 2.0)

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """One inside the threshold c, and c / (20 |r|) beyond, where the loss has no second derivative.

        With zero there a step would be Newton's, which few rows inside make wild or impossible; with c / |r| it would
        be that of reweighted least squares, which always climbs but slowly. A twentieth is nearly Newton's at the
        optimum, and at most a few halvings from the other far from it.
        """
        size = np.abs(predictor - response)
        return np.where(size < self.threshold, 1.0, _BEYOND * self.threshold / np.maximum(size, self.threshold))

    def curvature(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """One inside the threshold, zero beyond."""
        return (np.abs(predictor - response) < self.threshold).astype(float)

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

    def rescaled(self, scale: float) -> Huber:
        """The threshold is in the units of the response."""
        return replace(self, threshold=self.threshold / scale)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """Grad F_k = P(|r| < c) H (theta - beta) with r ~ N(0, gap_var + noise_var)."""
        if self.df is not None:
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
        spread = numpy_for(gap_var).sqrt(2.0 * (gap_var + noise_sd**2))
        inside = special_for(spread).erf(self.threshold / spread)
        return inside, inside

    def moments(
        self, theta: FloatArray, coefficients: FloatArray, noise_var: FloatArray, design_cov: FloatArray
    ) -> Moments | None:
        """The residual before clipping is r ~ N(0, v), v = delta'H delta + sigma^2, and x = (H delta / v) r + rest.

        So E[g(r) x x'] = E[g] H + (E[g r^2] / v - E[g]) H delta delta' H / v, with g the indicator of |r| < c for the
        Hessian and the clipped residual squared for the noise; both need only truncated normal moments.
        """
        if self.df is not None:
            return None
        pull = np.einsum("kij,kj->ki", design_cov, theta - coefficients)
        v = np.maximum(noise_var + np.einsum("ki,ki->k", theta - coefficients, pull), 1e-300)
        c = self.threshold
        a = np.minimum(c / np.sqrt(v), 1e3)
        density = 2.0 * np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
        inside = erf(a / np.sqrt(2))  # E[1], E[r^2] and E[r^4] over |r| < c
        second = v * (inside - a * density)
        fourth = v**2 * (3 * inside - (a**3 + 3 * a) * density)
        outer = np.einsum("ki,kj->kij", pull, pull)

        def second_moment(mean: FloatArray, with_square: FloatArray) -> FloatArray:
            return mean[:, None, None] * design_cov + ((with_square / v - mean) / v)[:, None, None] * outer

        gradient = inside[:, None] * pull
        square = second_moment(second + c**2 * (1 - inside), fourth + c**2 * (v - second))
        return Moments(gradient, second_moment(inside, second), square - np.einsum("ki,kj->kij", gradient, gradient))
