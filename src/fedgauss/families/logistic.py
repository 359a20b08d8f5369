"""Logistic regression: responses 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, logit

from fedgauss._namespaces import numpy_for, special_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import TRAPEZOID, Family, ResidualMoments, is_number, register, require

if TYPE_CHECKING:
    from fedgauss._random import Noise


@register
@dataclass(frozen=True)
class Logistic(Family):
    """Logistic loss log(1 + exp(eta)) - y eta with y in {0, 1}."""

    name = "logistic"
    aliases = ("binomial",)
    needs = "0 and 1"
    n_classes = 2

    def mean(self, predictor: JaxArray) -> JaxArray:
        """Sigmoid(eta)."""
        return special_for(predictor).expit(predictor)

    def read(self, target: str, values: FloatArray, levels: Sequence[Any] | None) -> FloatArray:
        """0 and 1, or false and true. Two other values are easily made so, and the message says how."""
        if levels is None or not all(map(is_number, levels)):
            seen = [int(v) if v == int(v) else v for v in np.unique(values).tolist()] if levels is None else levels
            if len(seen) == 2 and set(seen) != {0, 1}:
                raise ValueError(
                    f"the target {target!r} must be 0 or 1 for family {self.name!r}; it has {seen[0]!r} and "
                    f"{seen[1]!r}. Use frame[{target!r}] == {seen[1]!r} as the target?"
                )
        return super().read(target, values, levels)

    def check_response(self, response: FloatArray) -> None:
        """Labels are 0 or 1."""
        require(np.isin(response, (0.0, 1.0)), response, "logistic responses must be 0 or 1", "Recode the labels?")

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The logit of the share of ones."""
        return np.asarray(logit(totals / n_rows))

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Ones on one side, zeros on the other."""
        return [np.where(response > 0, 1.0, -1.0)]

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Bernoulli with success probability sigmoid(eta)."""
        return (noise.uniform(1)[0] < self.mean(predictor[0])).astype(predictor.dtype)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[sigmoid'(s)] for s ~ N(0, variance), by the trapezoidal rule."""
        from jax import lax

        jnp = numpy_for(theta_var)

        def mean_slope(variance: JaxArray) -> JaxArray:
            nodes, weights = (jnp.asarray(part, variance.dtype) for part in TRAPEZOID[:2])
            sd = jnp.sqrt(variance + 1e-12)  # the square root has a derivative at zero then

            def add_node(i: JaxArray, total: JaxArray) -> JaxArray:
                p = self.mean(sd * nodes[i])
                return total + weights[i] * p * (1.0 - p)

            return lax.fori_loop(0, len(nodes), add_node, jnp.zeros_like(variance))

        return mean_slope(theta_var), mean_slope(beta_var)

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments:
        """Y is Bernoulli with probability sigmoid(v)."""
        p, q = expit(u), expit(v)
        return ResidualMoments(p - q, p**2 - 2 * p * q + q, p * (1 - p))
