"""Generalised linear models: a link, a variance function, and what an exact fit needs follows from the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.special

from fedgauss._types import FloatArray, JaxArray
from fedgauss.families.base import Family
from fedgauss.families.same_bits import on_grid

_ROOT_TAU = float(np.sqrt(2.0 * np.pi))


class Link(NamedTuple):
    """How the mean of a response follows the linear predictor, mu = h(eta)."""

    mean: Callable[[Any], Any]  # mu = h(eta)
    slope: Callable[[Any], Any]  # h'(eta)
    bend: Callable[[Any], Any]  # h''(eta)
    predictor: Callable[[Any], Any]  # eta = h^-1(mu)


def _links(xp: ModuleType, special: ModuleType) -> dict[str, Link]:
    """Links by name, made of NumPy's functions and SciPy's, or of JAX's."""

    def logit_slope(eta: Any) -> Any:
        p = special.expit(eta)
        return p * (1.0 - p)

    def density(eta: Any) -> Any:
        return xp.exp(-(eta**2) / 2.0) / _ROOT_TAU

    def cloglog_slope(eta: Any) -> Any:
        return xp.exp(eta - xp.exp(eta))

    return {
        "identity": Link(lambda eta: eta, xp.ones_like, xp.zeros_like, lambda mu: mu),
        "log": Link(xp.exp, xp.exp, xp.exp, xp.log),
        "logit": Link(
            special.expit, logit_slope, lambda eta: logit_slope(eta) * (1.0 - 2.0 * special.expit(eta)), special.logit
        ),
        "probit": Link(special.ndtr, density, lambda eta: -eta * density(eta), special.ndtri),
        "cloglog": Link(
            lambda eta: -xp.expm1(-xp.exp(eta)), cloglog_slope, lambda eta: cloglog_slope(eta) * (1.0 - xp.exp(eta)),
            lambda mu: xp.log(-xp.log1p(-mu)),
        ),
        "inverse": Link(
            lambda eta: 1.0 / eta, lambda eta: -(eta**-2.0), lambda eta: 2.0 * eta**-3.0, lambda mu: 1.0 / mu
        ),
    }  # fmt: skip


LINKS = _links(np, scipy.special)


@cache
def _links_of_jax() -> dict[str, Link]:
    import jax.numpy
    from jax.scipy import special

    return _links(jax.numpy, special)


class GeneralisedLinear(Family):
    """A family with mean mu = h(eta) and variance phi V(mu).

    The loss has the derivative -(y - mu) h'(eta) / V(mu) in eta, and the expected second derivative h'(eta)^2 / V(mu).
    With the link for which h' = V they are mu - y and V(mu). Subclasses have a field `link` with a usual value.

    Attributes
    ----------
    canonical : str
        The link for which h' = V; empty where none of `links` is (the inverse link of a gamma law has h' = -V).
    mean_range : tuple of float
        Ends of that range.
    """

    canonical: ClassVar[str] = ""
    mean_range: ClassVar[tuple[float, float]] = (-np.inf, np.inf)
    link: str

    def __post_init__(self) -> None:
        if self.link not in self.links:
            few = self.links[0] if len(self.links) == 1 else f"one of {', '.join(self.links)}"
            raise ValueError(f"the link of family {self.name!r} must be {few}; got {self.link!r}.")

    def with_link(self, link: str) -> Self:
        """The same family with another link."""
        return replace(self, link=link)  # type: ignore[type-var]

    def describe(self) -> str:
        """With a link other than the usual one."""
        return self.name if self.link == self.links[0] else f"{self.name} ({self.link} link)"

    def mean(self, predictor: JaxArray) -> JaxArray:
        """h(eta)."""
        return self._link(predictor).mean(predictor)

    def variance(self, mean: JaxArray) -> JaxArray:
        """V(mu)."""
        raise NotImplementedError

    def variance_slope(self, mean: FloatArray) -> FloatArray:
        """V'(mu)."""
        raise NotImplementedError

    def residual(self, predictor: JaxArray, response: JaxArray) -> JaxArray:
        """-(y - mu) h'(eta) / V(mu)."""
        mean = self.mean(predictor)
        if self.link == self.canonical:
            return mean - response
        inside = self._inside(mean)
        return (inside - response) * self._link(predictor).slope(predictor) / self.variance(inside)

    def weight(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """h'(eta)^2 / V(mu)."""
        slope = self._link(predictor).slope(predictor)
        return slope if self.link == self.canonical else slope**2 / self.variance(self._inside(self.mean(predictor)))

    def curvature(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """h'^2 / V + (mu - y) (h'' / V - h'^2 V' / V^2): what it is, not what is expected of it."""
        if self.link == self.canonical:
            return self.weight(predictor, response)
        mean, slope = self._inside(self.mean(predictor)), self._link(predictor).slope(predictor)
        v = self.variance(mean)
        bend = self._link(predictor).bend(predictor) - slope**2 * self.variance_slope(mean) / v
        return (slope**2 + (mean - response) * bend) / v

    def pearson(self, predictor: FloatArray, response: FloatArray) -> FloatArray:
        """(y - mu)^2 / V(mu)."""
        mean = self._inside(self.mean(predictor[0]))
        return np.asarray((response - mean) ** 2 / self.variance(mean))

    def start(self, totals: FloatArray, n_rows: int) -> FloatArray:
        """The predictor of the mean response, on a grid where it is more than arithmetic."""
        mean = np.asarray(totals, dtype=float) / n_rows
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.asarray(self._link(mean).predictor(mean))
        if not np.all(np.isfinite(found)):
            raise ValueError(
                f"the {self.link} link must be able to give the mean response; that of all rows is {mean.flat[0]:g}. "
                "Use another link."
            )
        return found if self.link in ("identity", "inverse") else on_grid(found)

    def sizes(self, response: FloatArray) -> tuple[float, float]:
        """Those of the predictor of the mean response, where the link leaves units to it."""
        if self.link not in ("identity", "inverse"):
            return 1.0, 1.0
        predictor = abs(float(self._link(response).predictor(response.mean())))
        return predictor, 1.0 / predictor

    def _link(self, array: JaxArray) -> Link:
        """The link for an array of NumPy or of JAX."""
        return (LINKS if isinstance(array, np.ndarray | float) else _links_of_jax())[self.link]

    def _inside(self, mean: JaxArray) -> JaxArray:
        """The mean, kept off the ends of its range, where the variance vanishes."""
        room = np.finfo(mean.dtype).eps
        low, high = self.mean_range
        return mean.clip(low + room, high - room)
