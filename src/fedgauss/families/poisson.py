"""Poisson regression: responses are counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, xlogy

from fedgauss._namespaces import numpy_for
from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import register, require
from fedgauss.families.glm import GeneralisedLinear
from fedgauss.families.quadrature import GAUSS_HERMITE, ResidualMoments

if TYPE_CHECKING:
    from fedgauss._random import Noise


@register
@dataclass(frozen=True)
class Poisson(GeneralisedLinear):
    """Counts: with the log link the loss exp(eta) - y eta."""

    link: str = "log"

    name = "poisson"
    needs = "counts"
    separated = "zero counts"
    signal = 0.3  # counts grow exponentially
    quadrature = GAUSS_HERMITE

    canonical = "log"
    links = ("log", "identity")
    mean_range = (0.0, np.inf)

    def variance(self, mean: JaxArray) -> JaxArray:
        """mu."""
        return mean

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """One."""
        return np.ones_like(mean)

    def loss(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """mu - y log(mu)."""
        eta = predictor[0]
        if self.link == "log":
            return np.exp(eta) - response * eta
        mu = self._inside(self.mean(eta))
        return mu - xlogy(response, mu)

    def log_likelihood(self, predictor: FloatArray, response: FloatArray, dispersion: FloatArray | float) -> FloatArray:
        """That of a Poisson law."""
        return -self.loss(predictor, response) - gammaln(response + 1.0)

    def deviance(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """2 (y log(y / mu) - y + mu)."""
        return 2.0 * (xlogy(response, response) - response + self.loss(predictor, response))

    def steepness(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """exp(eta), and at least y / 4: a step towards a large count meets the curvature there, not that here."""
        return numpy_for(predictor).maximum(self.mean(predictor), response / 4.0)

    def check_response(self, response: FloatArray) -> None:
        """Counts are whole and not negative."""
        counts = (response >= 0) & (response == np.floor(response))
        fix = "Use family='linear' for other data?"
        require(counts, response, "poisson responses must be counts 0, 1, 2, ...", fix)

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Rows with a count hold the direction fast; it may only lead rows without one further down."""
        return [np.where(response > 0, 0.0, -1.0)]

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Poisson with mean exp(eta)."""
        return noise.poisson(self.mean(predictor[0]))

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[exp(s)] = exp(variance / 2); for the log link alone."""
        if self.link != self.canonical:
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
        return self.mean(theta_var / 2), self.mean(beta_var / 2)

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments | None:
        """Mean and variance of y are both exp(v); for the log link alone."""
        if self.link != self.canonical:
            return None
        p, q = np.exp(u), np.exp(v)
        return ResidualMoments(p - q, (p - q) ** 2 + q, p)
