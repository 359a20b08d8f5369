"""The residuals of a private fit: bounded whatever a row may be, and of known mean and variance under the model.

Of a family there is `root`, of the variance function, by which covariates are multiplied; `terms`, what rows count for
whose residuals are clipped at -clip and clip; and `shift`, what residuals are expected to be where the linear predictor
is another one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from fedgauss import families
from fedgauss._types import FloatArray

_LARGEST = 30.0  # of a linear predictor on the scale of a logarithm: exp(30) stands for any larger mean


class Terms(NamedTuple):
    """What rows count for at a parameter, (n,) each; `residual` alone depends on responses.

    Attributes
    ----------
    residual : ndarray
        (y - mean) / root, clipped, less its expectation.
    reach : ndarray
        The furthest it may be from zero, whatever the response.
    slope : ndarray
        Minus the derivative of the residual's expectation by the linear predictor, over root.
    spread : ndarray
        The variance of the residual.
    """

    residual: FloatArray
    reach: FloatArray
    slope: FloatArray
    spread: FloatArray


@dataclass(frozen=True)
class Gaussian:
    """(y - eta) / scale, clipped: with c where it is, slope P(|Z| < c) and spread E[min(Z^2, c^2)] for a normal Z."""

    scale: float

    def root(self, predictor: FloatArray) -> FloatArray:
        """Of a scale that all rows share."""
        return np.full_like(predictor, 1.0 / self.scale)

    def terms(self, predictor: FloatArray, response: FloatArray, clip: FloatArray) -> Terms:
        """The expectation is zero where errors are symmetric."""
        slope, spread = clipped_normal(clip)
        return Terms(np.clip((response - predictor) / self.scale, -clip, clip), clip, slope, spread)

    def shift(self, predictor: FloatArray, other: FloatArray, clip: FloatArray) -> FloatArray:
        """A straight line, as far as the fit needs it."""
        return clipped_normal(clip)[0] * (other - predictor) / self.scale


@dataclass(frozen=True)
class Binomial:
    """(y - mean) / root of a response of zeros and ones: clipped or not, it is a multiple of this."""

    def root(self, predictor: FloatArray) -> FloatArray:
        """sqrt(mean (1 - mean))."""
        mean = _chance(predictor)
        return np.sqrt(mean * (1.0 - mean))

    def terms(self, predictor: FloatArray, response: FloatArray, clip: FloatArray) -> Terms:
        """The response counts as one where it is one, and as zero elsewhere."""
        mean, root, one = _chance(predictor), self.root(predictor), np.ones_like(predictor)
        return Terms(((response == 1.0) - mean) / root, np.maximum(mean, 1.0 - mean) / root, one, one)

    def shift(self, predictor: FloatArray, other: FloatArray, clip: FloatArray) -> FloatArray:
        """The difference of the means, over root."""
        return (_chance(other) - _chance(predictor)) / self.root(predictor)


@dataclass(frozen=True)
class Poisson:
    """(y - mean) / root clipped, less what it then is on average.

    With l = mean - clip root, h = mean + clip root and c(y) = min(max(y, l), h), for the response that the model says,

        E c(y) = l F(l) + E[y; l < y <= h] + h (1 - F(h)),

    and with squares, or y c(y), in place of c(y) likewise. E[y; y <= m] = mean F(m - 1) and
    E[y (y - 1); y <= m] = mean^2 F(m - 2).
    """

    def root(self, predictor: FloatArray) -> FloatArray:
        """sqrt(mean)."""
        return np.exp(np.clip(predictor, -_LARGEST, _LARGEST) / 2.0)

    def terms(self, predictor: FloatArray, response: FloatArray, clip: FloatArray) -> Terms:
        """Counts below zero count as zero."""
        root, mean, low, high = self._ends(predictor, clip)
        below, inside, above = _three(mean, low, high)
        first = low * below[0] + inside[1] + high * above[0]
        second = low**2 * below[0] + inside[2] + high**2 * above[0]
        product = low * below[1] + inside[2] + high * above[1]
        residual, reach = np.clip(response, low, high) - first, np.maximum(high - first, first - low)
        return Terms(residual / root, reach / root, (product - mean * first) / mean, (second - first**2) / mean)

    def shift(self, predictor: FloatArray, other: FloatArray, clip: FloatArray) -> FloatArray:
        """The difference of expectations of counts that are clipped alike, over root."""
        root, mean, low, high = self._ends(predictor, clip)
        parts = (_three(one, low, high) for one in (self.root(other) ** 2, mean))
        there, here = (low * below[0] + inside[1] + high * above[0] for below, inside, above in parts)
        return (there - here) / root

    def _ends(self, predictor: FloatArray, clip: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        root = self.root(predictor)
        mean = root**2
        return root, mean, np.maximum(mean - clip * root, 0.0), mean + clip * root  # no count is below zero


FAMILIES = ("gaussian", "binomial", "poisson")
PrivateFamily = Gaussian | Binomial | Poisson


def private_name(family: Any) -> str | None:
    """What a family that a model names is called here; None where it cannot be private."""
    if not isinstance(family, str) or family not in families.names():
        return None
    found = families.family(family)
    return next((name for name in FAMILIES if name in (found.name, *found.aliases)), None)


def private_family(name: str, scale: float) -> PrivateFamily:
    """The family of a question; the scale is of residuals of a gaussian one."""
    if name == "gaussian":
        return Gaussian(scale)
    return Binomial() if name == "binomial" else Poisson()


def clipped_normal(clip: Any) -> tuple[Any, Any]:
    """P(|Z| < c) and E[min(Z^2, c^2)] of a normal Z."""
    inside = special.erf(clip / math.sqrt(2.0))
    return inside, inside - clip * np.exp(-(clip**2) / 2.0) * math.sqrt(2.0 / math.pi) + clip**2 * (1.0 - inside)


def _chance(predictor: FloatArray) -> FloatArray:
    return np.asarray(special.expit(np.clip(predictor, -_LARGEST, _LARGEST)))


def _three(mean: FloatArray, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E[y^k; y < l], E[y^k; l <= y <= h] and E[y^k; y > h] for k = 0, 1, 2 and a Poisson response, (3, n) each."""
    below, upto = _partial(np.ceil(low) - 1.0, mean), _partial(np.floor(high), mean)
    return below, upto - below, np.array([np.ones_like(mean), mean, mean + mean**2]) - upto


def _partial(upto: FloatArray, mean: FloatArray) -> FloatArray:
    """E[y^k; y <= m] for k = 0, 1, 2 and a Poisson response, (3, n); m is whole, and -1 where there is none."""
    some = upto >= 0.0
    at = np.where(some, np.exp(special.xlogy(upto, mean) - mean - special.gammaln(np.maximum(upto, 0.0) + 1.0)), 0.0)
    none = np.where(some, special.pdtr(np.maximum(upto, 0.0), mean), 0.0)
    one_less = none - at
    two_less = np.where(upto >= 1.0, one_less - at * upto / mean, 0.0)
    return np.array([none, mean * one_less, mean**2 * two_less + mean * one_less])


def start(name: str, slopes: FloatArray, mean: float) -> tuple[FloatArray, float, float]:
    """From a straight line through responses (of zeros and ones, or counts) to that of the family.

    The slopes, the predictor at the mean, and the standard deviation of a response there; 1 for a gaussian one.
    """
    if name == "gaussian":
        return slopes, mean, 1.0
    per = mean * (1.0 - mean) if name == "binomial" else mean
    middle = math.log(mean / (1.0 - mean)) if name == "binomial" else math.log(mean)
    return slopes / per, round(middle * 2**20) / 2**20, math.sqrt(per)  # logarithms differ in a last bit
