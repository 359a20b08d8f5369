"""Gamma regression: positive responses whose standard deviation grows with their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import register, require
from fedgauss.families.glm import GeneralisedLinear
from fedgauss.families.quadrature import GAUSS_HERMITE, ResidualMoments

if TYPE_CHECKING:
    from fedgauss._random import Noise


@register
@dataclass(frozen=True)
class Gamma(GeneralisedLinear):
    """Positive responses with mean mu and variance phi mu^2: the loss y / mu + log(mu).

    The usual link is the logarithm, for which coefficients are ratios of means and every predictor is allowed. The
    canonical link is the inverse, up to its sign. Simulated responses have phi = 1: they are exponential.
    """

    link: str = "log"

    name = "gamma"
    needs = "positive numbers"
    links = ("log", "identity", "inverse")
    mean_range = (0.0, np.inf)
    has_dispersion = True
    signal = 0.3
    quadrature = GAUSS_HERMITE

    def variance(self, mean: JaxArray) -> JaxArray:
        """mu^2."""
        return mean**2

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """2 mu."""
        return 2.0 * mean

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """Y / mu + log(mu)."""
        mu = self._inside(self.mean(predictor[0]))
        return response / mu + np.log(mu)

    def log_likelihood(self, predictor: FloatArray, response: FloatArray, dispersion: FloatArray | float) -> FloatArray:
        """That of a gamma law with shape 1 / phi."""
        shape = 1.0 / np.asarray(dispersion)
        rest = shape * np.log(shape * response) - np.log(response) - gammaln(shape)
        return np.asarray(rest - shape * self.loss(predictor, response))

    def deviance(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """2 (y / mu - 1 - log(y / mu))."""
        return 2.0 * (self.loss(predictor, response) - 1.0 - np.log(response))

    def check_response(self, response: FloatArray) -> None:
        """Responses are positive."""
        fix = "Leave out zeros, or model them apart; for counts use family='poisson'."
        require(response > 0, response, "gamma responses must be positive", fix)

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is exponential with mean mu."""
        u = noise.uniform(1)[0]
        return -self.mean(predictor[0]) * numpy_for(u).log(u)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[x (1 - exp(x'(beta - theta)))] = exp(gap_var / 2) H (theta - beta), with the log link."""
        if self.link != "log":
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
        growth = numpy_for(gap_var).exp(gap_var / 2.0)
        return growth, growth

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments | None:
        """With the log link r = 1 - q E, with q = exp(v - u) and E standard exponential."""
        if self.link != "log":
            return None
        q = np.exp(v - u)
        return ResidualMoments(1.0 - q, 1.0 - 2.0 * q + 2.0 * q**2, q)

    def _inside(self, mean: JaxArray) -> JaxArray:
        """The mean, where its square neither vanishes nor overflows: with some links it may come out negative."""
        least = np.finfo(mean.dtype).tiny ** (1.0 / 3.0)
        return mean.clip(least, 1.0 / least)
