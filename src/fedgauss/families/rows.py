"""The rows of one site, and the sums over them that an exact fit adds up over sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray


class NoFiniteEstimate(ValueError):
    """The log-likelihood rises for ever in some direction, or is flat there."""


class Rows(NamedTuple):
    """What one site has, in the units of the fit."""

    x: FloatArray  # (n, p), the column of ones among them
    response: FloatArray  # (n,), or (n, 2) for times with events
    offset: FloatArray | float = 0.0  # (n,), added to every predictor
    weights: FloatArray | float = 1.0  # (n,), what each row counts for
    clusters: IntArray | None = None  # (n,), the cluster of each row
    constant: float = 0.0  # part of the log-likelihood that depends on no parameter

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.x)


class Score(NamedTuple):
    """At one parameter, over rows; those of several sites are added."""

    log_likelihood: float  # up to a constant
    score: FloatArray  # its gradient, (d,)


class Sums(NamedTuple):
    """The same with the information."""

    log_likelihood: float  # up to a constant
    score: FloatArray  # its gradient, (d,)
    information: FloatArray  # the expected value of minus its second derivative, (d, d)


class Goodness(NamedTuple):
    """How well a parameter fits, over rows; those of several sites are added."""

    log_likelihood: float
    deviance: float
    pearson: float  # the sum of (y - mu)^2 / V(mu)


class Ask(NamedTuple):
    """A question about the rows at one parameter.

    Attributes
    ----------
    kind : {"score", "sums", "final", "parts", "goodness", "own"}
        The log-likelihood and its score; these and the information; how well the parameter fits, the score and `parts`;
        parts alone; how well it fits; the site's own estimate, by scoring from the parameter.
    theta : (d,) ndarray
        The parameter.
    dispersion : float
        Of "goodness".
    parts : tuple of str
        Of "final": "information", "observed" (minus the second derivative of the log-likelihood), and squared scores
        "squares.rows", "squares.clusters" (and their number, "squares.n_clusters"), "squares.sites".
    compared : tuple of int
        Of "final": parameters of which it is asked how far sites' own estimates lie apart; none where empty.
    beside : Ask, optional
        Another question of the same round; its numbers have "beside." before their names.
    """

    kind: str
    theta: FloatArray
    dispersion: float = 1.0
    parts: tuple[str, ...] = ()
    compared: tuple[int, ...] = ()
    beside: Ask | None = None


def blocks_of(matrices: Sequence[FloatArray]) -> FloatArray:
    """A matrix with these square ones along its diagonal. (scipy.linalg takes long to load, and sites must not.)"""
    ends = np.cumsum([len(matrix) for matrix in matrices])
    whole = np.zeros((ends[-1], ends[-1]))
    for matrix, end in zip(matrices, ends, strict=True):
        own = slice(end - len(matrix), end)
        whole[own, own] = matrix
    return whole
