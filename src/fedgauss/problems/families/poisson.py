"""Poisson regression: responses are counts."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.families.base import GAUSS_HERMITE, Family, ResidualMoments, register, require


@register
@dataclass(frozen=True)
class Poisson(Family):
    """Poisson loss exp(eta) - y eta with y a count."""

    name = "poisson"
    needs = "counts"
    separated = "zero counts"
    signal = 0.3  # counts grow exponentially
    quadrature = GAUSS_HERMITE

    def mean(self, predictor: JaxArray) -> JaxArray:
        """exp(eta)."""
        return jnp.exp(predictor)

    def steepness(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """exp(eta), and at least y / 4: a step towards a large count meets the curvature there, not that here."""
        return jnp.maximum(jnp.exp(predictor), response / 4.0)

    def check_response(self, response: FloatArray) -> None:
        """Counts are whole and not negative."""
        counts = (response >= 0) & (response == np.floor(response))
        fix = "Use family='linear' for other data?"
        require(counts, response, "poisson responses must be counts 0, 1, 2, ...", fix)

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The logarithm of the mean count."""
        return np.asarray(np.log(totals / n_rows))

    def sides(self, response: FloatArray) -> list[FloatArray]:
        """Rows with a count hold the direction fast; it may only lead rows without one further down."""
        return [np.where(response > 0, 0.0, -1.0)]

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Poisson with mean exp(eta)."""
        return _poisson_quantile(noise.uniform(1)[0], jnp.exp(predictor[0]))

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[exp(s)] = exp(variance / 2)."""
        return jnp.exp(theta_var / 2), jnp.exp(beta_var / 2)

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments:
        """Mean and variance of y are both exp(v)."""
        p, q = np.exp(u), np.exp(v)
        return ResidualMoments(p - q, (p - q) ** 2 + q, p)


def _poisson_quantile(u: JaxArray, mean: JaxArray) -> JaxArray:
    """The Poisson quantile at u, by summing the distribution up to it.

    exp(-mean) leaves float32 near mean 87, so above 64 the quantile is the second-order Cornish-Fisher one.
    """
    small = jnp.minimum(mean, 64.0)

    def unreached(count: JaxArray, mass: JaxArray, cdf: JaxArray) -> JaxArray:
        # Past the mean, stop where rounding no longer lets the sum grow: it may stay just below u for ever.
        following = mass * small / (count + 1.0)
        return (u > cdf) & ((cdf + following > cdf) | (count < small))

    def unfinished(state: tuple) -> JaxArray:
        return jnp.any(unreached(*state))

    def add_next(state: tuple) -> tuple:
        count, mass, cdf = state
        following = mass * small / (count + 1.0)
        more = unreached(count, mass, cdf)
        return (
            jnp.where(more, count + 1.0, count),
            jnp.where(more, following, mass),
            jnp.where(more, cdf + following, cdf),
        )

    first = jnp.exp(-small)
    exact = lax.while_loop(unfinished, add_next, (jnp.zeros_like(u), first, first))[0]
    z = np.sqrt(2.0).astype(np.float32) * lax.erf_inv(2.0 * u - 1.0)
    expanded = jnp.floor(mean + jnp.sqrt(mean) * z + (z**2 - 1.0) / 6.0 + 0.5)
    return jnp.where(mean > 64.0, jnp.maximum(expanded, 0.0), exact)
