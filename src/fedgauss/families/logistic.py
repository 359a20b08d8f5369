"""Logistic regression: responses 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, gammaln, xlog1py, xlogy

from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import is_number, register, require
from fedgauss.families.glm import GeneralisedLinear
from fedgauss.families.quadrature import TRAPEZOID, ResidualMoments
from fedgauss.families.rows import Rows

if TYPE_CHECKING:
    from fedgauss._random import Noise


@register
@dataclass(frozen=True)
class Logistic(GeneralisedLinear):
    """Binary responses: with the logit link the loss log(1 + exp(eta)) - y eta, y in {0, 1}.

    For an exact fit y may also be k successes of n trials, in two columns.
    """

    link: str = "logit"

    name = "logistic"
    aliases = ("binomial", "logit")
    needs = "0 and 1"
    n_classes = 2
    canonical = "logit"
    links = ("logit", "probit", "cloglog")
    mean_range = (0.0, 1.0)
    beside = "trials"

    def variance(self, mean: JaxArray) -> JaxArray:
        """mu (1 - mu), of one trial."""
        return mean * (1.0 - mean)

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """1 - 2 mu."""
        return 1.0 - 2.0 * mean

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """-y log(mu) - (1 - y) log(1 - mu)."""
        eta = predictor[0]
        if self.link == "logit":
            return np.logaddexp(0.0, eta) - response * eta
        mu = self._inside(self.mean(eta))
        return -xlogy(response, mu) - xlog1py(1.0 - response, -mu)

    def deviance(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """2 (y log(y / mu) + (1 - y) log((1 - y) / (1 - mu)))."""
        perfect = xlogy(response, response) + xlogy(1.0 - response, 1.0 - response)
        return 2.0 * (perfect + self.loss(predictor, response))

    def rows(self, rows: Rows, beside: FloatArray | None) -> Rows:
        """Successes of trials are a share of successes that counts for as many rows."""
        if beside is None:
            return rows
        k, n = rows.response, beside
        choices = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)  # the logarithm of n over k
        constant = float(np.sum(rows.weights * choices))
        return rows._replace(response=k / n, weights=rows.weights * n, constant=constant)

    def read(self, target: str, values: FloatArray, levels: Sequence[Any] | None) -> FloatArray:
        """0 and 1, or false and true. Two other values are easily made so, and the message says how."""
        if levels is None or not all(map(is_number, levels)):
            seen = [int(v) if v == int(v) else v for v in np.unique(values).tolist()] if levels is None else levels
            if len(seen) == 2 and set(seen) != {0, 1}:
                raise ValueError(
                    f"the target {target!r} must be 0 or 1 for family {self.name!r}; it has {seen[0]!r} and "
                    f"{seen[1]!r}. Use frame[{target!r}] == {seen[1]!r} as the target, or write 0 and 1 in the file?"
                )
        return super().read(target, values, levels)

    def check_response(self, response: FloatArray) -> None:
        """Labels are 0 or 1."""
        require(
            np.isin(response, (0.0, 1.0)),
            response,
            "logistic responses must be 0 or 1",
            "Recode labels; for proportions give counts of successes, and trials=.",
        )

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Ones on one side, zeros on the other."""
        return [np.where(response > 0, 1.0, -1.0)]

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Bernoulli with success probability sigmoid(eta)."""
        return (noise.uniform(1)[0] < self.mean(predictor[0])).astype(predictor.dtype)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[sigmoid'(s)] for s ~ N(0, variance), by the trapezoidal rule; for the logit link alone."""
        if self.link != self.canonical:
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
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

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments | None:
        """Y is Bernoulli with probability sigmoid(v); for the logit link alone."""
        if self.link != self.canonical:
            return None
        p, q = expit(u), expit(v)
        return ResidualMoments(p - q, p**2 - 2 * p * q + q, p * (1 - p))
