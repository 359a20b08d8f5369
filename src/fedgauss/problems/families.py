"""How a response follows a linear predictor: the one-dimensional part of a regression.

A family turns the predictors eta = x'theta, (C, K, R) with C outputs (one, except one-versus-rest), and the
responses y, (K, R), into residuals: the derivative of the loss in eta. The gradient is then x times residual.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import expit

from fedgauss import _checks
from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray

# The trapezoidal rule for N(0, 1). Sigmoids have poles near the real axis once their argument varies much, where
# Gauss-Hermite rules lose all digits; this one keeps six up to a standard deviation of 20.
_NODES = np.linspace(-8.5, 8.5, 201)
_WEIGHTS = np.exp(-(_NODES**2) / 2) / np.exp(-(_NODES**2) / 2).sum()


class ResidualMoments(NamedTuple):
    """Given the predictors u = x'theta and v = x'beta: E[r], E[r^2] and E[dr/du] of the residual r."""

    mean: FloatArray
    square: FloatArray
    slope: FloatArray


class Family(abc.ABC):
    """The contract. `noise_sd` (K,) is the scale of additive noise, for the families that have one."""

    n_outputs: int = 1

    @abc.abstractmethod
    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Draw responses (K, R) given the true predictors (C, K, R)."""

    @abc.abstractmethod
    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """The derivative of the loss in each predictor, (C, K, R)."""

    def steepness(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """The second derivative of the loss in each predictor, (C, K, R), or what a step should take it for."""
        ones = jnp.ones_like(predictor)
        return jax.jvp(lambda eta: self.residual(eta, response), (predictor,), (ones,))[1]

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """(a, b) with grad F_k(theta) = H (a theta - b beta) under x ~ N(0, H), by Stein's identity.

        `theta_var`, `beta_var` and `gap_var` are theta'H theta, beta'H beta and (theta-beta)'H(theta-beta).
        """
        raise NotImplementedError(f"{self} has no closed-form mean gradient; estimate it by simulation instead.")

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments | None:
        """Conditional moments of the residual given (u, v), for families where they determine its law."""
        return None

    def check_response(self, response: FloatArray) -> None:  # noqa: B027 - most families take any number
        """Raise when a response cannot come from this family."""


@dataclass(frozen=True)
class Linear(Family):
    """Squared loss (eta - y)^2 / 2; y = eta + noise, Gaussian or Student-t with `df` of the same variance."""

    df: float | None = None

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """y = eta + noise_sd * (standardised noise)."""
        return predictor[0] + noise_sd[:, None] * _standard_noise(noise, self.df)

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """Eta - y."""
        return predictor - response

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """Grad F_k = H (theta - beta)."""
        return jnp.ones_like(theta_var), jnp.ones_like(theta_var)


@dataclass(frozen=True)
class Logistic(Family):
    """Logistic loss log(1 + exp(eta)) - y eta with y in {0, 1}."""

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Bernoulli with success probability sigmoid(eta)."""
        return (noise.uniform(1)[0] < jax.nn.sigmoid(predictor[0])).astype(predictor.dtype)

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """Sigmoid(eta) - y."""
        return jax.nn.sigmoid(predictor) - response

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[sigmoid'(s)] for s ~ N(0, variance), by Gauss-Hermite quadrature."""

        def mean_slope(variance: JaxArray) -> JaxArray:
            nodes, weights = jnp.asarray(_NODES, variance.dtype), jnp.asarray(_WEIGHTS, variance.dtype)
            sd = jnp.sqrt(variance + 1e-12)  # the square root has a derivative at zero then

            def add_node(i: JaxArray, total: JaxArray) -> JaxArray:
                p = jax.nn.sigmoid(sd * nodes[i])
                return total + weights[i] * p * (1.0 - p)

            return lax.fori_loop(0, len(_NODES), add_node, jnp.zeros_like(variance))

        return mean_slope(theta_var), mean_slope(beta_var)

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments:
        """Y is Bernoulli with probability sigmoid(v)."""
        p, q = expit(u), expit(v)
        return ResidualMoments(p - q, p**2 - 2 * p * q + q, p * (1 - p))

    def check_response(self, response: FloatArray) -> None:
        """Labels are 0 or 1."""
        _require(np.isin(response, (0.0, 1.0)), response, "logistic responses must be 0 or 1", "Recode the labels?")


@dataclass(frozen=True)
class Poisson(Family):
    """Poisson loss exp(eta) - y eta with y a count."""

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is Poisson with mean exp(eta)."""
        return _poisson_quantile(noise.uniform(1)[0], jnp.exp(predictor[0]))

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """exp(eta) - y."""
        return jnp.exp(predictor) - response

    def steepness(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """exp(eta), and y / 4 at least: a step towards a large count meets the curvature there, not that here."""
        return jnp.maximum(jnp.exp(predictor), response / 4.0)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """E[exp(s)] = exp(variance / 2)."""
        return jnp.exp(theta_var / 2), jnp.exp(beta_var / 2)

    def residual_moments(self, u: FloatArray, v: FloatArray) -> ResidualMoments:
        """Mean and variance of y are both exp(v)."""
        p, q = np.exp(u), np.exp(v)
        return ResidualMoments(p - q, (p - q) ** 2 + q, p)

    def check_response(self, response: FloatArray) -> None:
        """Counts are whole and not negative."""
        counts = (response >= 0) & (response == np.floor(response))
        _require(
            counts,
            response,
            "poisson responses must be counts 0, 1, 2, ...",
            "Use family='linear' for other data?",
        )


@dataclass(frozen=True)
class Huber(Family):
    """Huber loss: squared up to `threshold`, linear beyond; y = eta + noise as in `Linear`."""

    threshold: float = 1.345
    df: float | None = None

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """y = eta + noise_sd * (standardised noise)."""
        return predictor[0] + noise_sd[:, None] * _standard_noise(noise, self.df)

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """Eta - y, clipped at the threshold."""
        return jnp.clip(predictor - response, -self.threshold, self.threshold)

    def slopes(self, theta_var: JaxArray, beta_var: JaxArray, gap_var: JaxArray, noise_sd: JaxArray) -> tuple:
        """Grad F_k = P(|r| < c) H (theta - beta) with r ~ N(0, gap_var + noise_var)."""
        if self.df is not None:
            return super().slopes(theta_var, beta_var, gap_var, noise_sd)
        inside = lax.erf(self.threshold / jnp.sqrt(2.0 * (gap_var + noise_sd**2)))
        return inside, inside


@dataclass(frozen=True)
class OneVersusRest(Family):
    """`n_outputs` logistic losses side by side, each class against all others; y is a class number."""

    n_outputs: int = 2

    def respond(self, predictor: JaxArray, noise: Noise, noise_sd: JaxArray) -> JaxArray:
        """Y is class c with probability softmax(eta)_c."""
        cumulative = jnp.cumsum(jax.nn.softmax(predictor, axis=0), axis=0)
        drawn = (noise.uniform(1)[0] > cumulative).sum(axis=0)
        return jnp.minimum(drawn, self.n_outputs - 1).astype(predictor.dtype)

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """Sigmoid(eta_c) - 1{y = c}."""
        classes = lax.broadcasted_iota(predictor.dtype, (self.n_outputs, 1, 1), 0)
        return jax.nn.sigmoid(predictor) - (response == classes)

    def check_response(self, response: FloatArray) -> None:
        """Classes are numbered from 0."""
        valid = np.isin(response, np.arange(self.n_outputs))
        rule = f"one-versus-rest responses must be classes 0 to {self.n_outputs - 1}"
        _require(valid, response, rule, "Number the classes from 0, or set n_classes.")


def family(name: str, n_classes: int | None = None) -> Family:
    """The family with this name, for data sets."""
    _checks.one_of("family", name, ["linear", "logistic", "poisson", "huber", "one_versus_rest"])
    if name == "one_versus_rest":
        return OneVersusRest(_checks.whole("n_classes", n_classes, at_least=2))
    simple: dict[str, type[Family]] = {
        "linear": Linear,
        "logistic": Logistic,
        "poisson": Poisson,
        "huber": Huber,
    }
    return simple[name]()


def check_df(df: float | None) -> float | None:
    """Degrees of freedom for which a variance exists."""
    if df is None:
        return None
    return _checks.real("df", df, above=2.0, fix="Student-t noise needs df > 2 to have a variance.")


def _standard_noise(noise: Noise, df: float | None) -> JaxArray:
    """Noise (K, R) with mean 0 and variance 1: normal, or Student-t by Bailey's polar formula (1994)."""
    if df is None:
        return noise.normal(1)[0]
    u, v = noise.uniform(2)
    student = jnp.sqrt(df * jnp.expm1(-2.0 / df * jnp.log(u))) * jnp.cos(2.0 * np.pi * v)
    return student * np.sqrt((df - 2.0) / df).astype(np.float32)


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


def _require(valid: np.ndarray, response: FloatArray, rule: str, fix: str) -> None:
    if not np.all(valid):
        row = int(np.argmin(valid))
        raise ValueError(f"{rule}; row {row} is {response[row]:g}. {fix}")
