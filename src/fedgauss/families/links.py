"""Links: how the mean of a response follows the linear predictor, mu = h(eta)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._namespaces import numpy_for, special_for

_ROOT_TAU = float(np.sqrt(2.0 * np.pi))


class Link(NamedTuple):
    """A link by name. The functions take arrays of NumPy or of JAX."""

    name: str
    mean: Callable[[Any], Any]  # mu = h(eta)
    slope: Callable[[Any], Any]  # h'(eta)
    bend: Callable[[Any], Any]  # h''(eta)
    predictor: Callable[[Any], Any]  # eta = h^-1(mu)


def _logit_slope(eta: Any) -> Any:
    p = special_for(eta).expit(eta)
    return p * (1.0 - p)


def _normal_density(eta: Any) -> Any:
    return numpy_for(eta).exp(-(eta**2) / 2.0) / _ROOT_TAU


def _cloglog_slope(eta: Any) -> Any:
    exp = numpy_for(eta).exp
    return exp(eta - exp(eta))


def _exp(eta: Any) -> Any:
    return numpy_for(eta).exp(eta)


IDENTITY = Link(
    "identity",
    lambda eta: eta,
    lambda eta: numpy_for(eta).ones_like(eta),
    lambda eta: numpy_for(eta).zeros_like(eta),
    lambda mu: mu,
)
LOG = Link("log", _exp, _exp, _exp, lambda mu: numpy_for(mu).log(mu))
LOGIT = Link(
    "logit",
    lambda eta: special_for(eta).expit(eta),
    _logit_slope,
    lambda eta: _logit_slope(eta) * (1.0 - 2.0 * special_for(eta).expit(eta)),
    lambda mu: special_for(mu).logit(mu),
)
PROBIT = Link(
    "probit",
    lambda eta: special_for(eta).ndtr(eta),
    _normal_density,
    lambda eta: -eta * _normal_density(eta),
    lambda mu: special_for(mu).ndtri(mu),
)
CLOGLOG = Link(
    "cloglog",
    lambda eta: -numpy_for(eta).expm1(-_exp(eta)),
    _cloglog_slope,
    lambda eta: _cloglog_slope(eta) * (1.0 - _exp(eta)),
    lambda mu: numpy_for(mu).log(-numpy_for(mu).log1p(-mu)),
)
INVERSE = Link(
    "inverse",
    lambda eta: 1.0 / eta,
    lambda eta: -(eta**-2.0),
    lambda eta: 2.0 * eta**-3.0,
    lambda mu: 1.0 / mu,
)
LINKS = {link.name: link for link in (IDENTITY, LOG, LOGIT, PROBIT, CLOGLOG, INVERSE)}


def link_named(name: str) -> Link:
    """The link with this name."""
    return LINKS[_checks.one_of("link", name, LINKS)]
