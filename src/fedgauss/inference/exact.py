"""The exact fit: scoring to the maximum, then one round for errors and tests. All that is asked of sites adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from scipy.special import chdtrc

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Goodness, Rows, Sums
from fedgauss.inference.errors import Squares, squares_of
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.scoring import NoFiniteEstimate, inverse, scored

_ROWS_A_PARAMETER = 5  # of a site whose own estimate is compared with those of the others
_LEAST = -1e150  # a log-likelihood below all others
Added = TypeVar("Added", bound=tuple)


class Apart(NamedTuple):
    """How far sites' own estimates e_k lie apart, with weights W_k, their inverse covariances; these add up."""

    square: float  # sum_k e_k'W_k e_k
    pull: FloatArray  # sum_k W_k e_k, (d,)
    weight: FloatArray  # sum_k W_k, (d, d)
    sites: float  # how many could be compared

    def test(self) -> ChiSquared | None:
        """Cochran's Q of all parameters at once; None where fewer than two sites can be compared."""
        try:
            together = inverse(self.weight) if self.sites >= 2 else None
        except NoFiniteEstimate:  # columns that are all but collinear
            together = None
        if together is None:
            return None
        statistic = self.square - float(self.pull @ together @ self.pull)
        dof = int(self.sites - 1) * len(self.pull)
        return ChiSquared(max(0.0, statistic), dof, float(chdtrc(dof, max(0.0, statistic))))


class Final(NamedTuple):
    """What errors and tests need at the estimate; those of several sites are added."""

    observed: FloatArray  # minus the second derivative of the log-likelihood, (d, d)
    squares: Squares
    goodness: Goodness  # at dispersion 1
    apart: Apart


class Sites(Protocol):
    """Where the rows are: each call is a round, and its reply the total over all sites."""

    def sums(self, theta: FloatArray) -> Sums:
        """For scoring."""

    def final(self, theta: FloatArray) -> Final:
        """At the estimate."""

    def goodness(self, theta: FloatArray, dispersion: float) -> Goodness:
        """With this dispersion."""

    def own(self, start: FloatArray) -> list[Own]:
        """Each site's own estimate, by scoring from the start; empty where sites keep them to themselves."""


class Own(NamedTuple):
    """A site's own estimate with its covariance; None where its rows alone are too few, or have no finite one."""

    theta: FloatArray | None  # (d,)
    cov: FloatArray | None  # (d, d)


class Exact(NamedTuple):
    """An exact fit in the units of its rows."""

    theta: FloatArray  # (d,)
    information: FloatArray  # (d, d), with the penalty; expected or observed, as the family's model errors are
    observed: FloatArray  # the same from the data themselves
    squares: Squares
    dispersion: float
    goodness: Goodness
    null: Goodness  # of the model without covariates
    apart: Apart
    rounds: int


def exact_fit(
    sites: Sites,
    family: Family,
    start: FloatArray,
    null: Sequence[int],
    n_rows: int,
    ridge: FloatArray | None = None,
    check: Callable[[FloatArray], None] = lambda information: None,
    begin: FloatArray | None = None,
    steps: int | None = None,
) -> Exact:
    """Fit by scoring.

    Parameters
    ----------
    sites : Sites
        Where the rows are.
    family : Family
        With the number of classes that the response has.
    start : (d,) ndarray
        Near the model without covariates.
    null : sequence of int
        The parameters of that model; empty where it has none.
    n_rows : int
        Of all sites.
    ridge : (d,) ndarray, optional
        Penalties, in the units of the rows.
    check : callable, optional
        Is given the information at the start, (d, d), and raises where nothing can be fitted.
    begin, steps : (d,) ndarray and int, optional
        Where to begin and how many steps to take, in place of all steps from the model without covariates.
    """

    def ask(theta: FloatArray) -> Sums:
        return family.steadied(theta, sites.sums(theta))

    first = ask(start)
    check(first.information)
    alone = scored(ask, start, null, first=first)
    if begin is None:
        end = scored(ask, alone.theta, ridge=ridge, first=alone.sums)
    else:
        end = scored(ask, begin, ridge=ridge, steps=steps)
    final, without = sites.final(end.theta), sites.goodness(alone.theta, 1.0)
    goodness, dispersion, rounds = final.goodness, 1.0, alone.rounds + end.rounds + 3
    if family.has_dispersion:  # likelihoods at a dispersion of each model's own
        dispersion = goodness.pearson / max(1, n_rows - len(start))
        goodness = _at_its_dispersion(sites, family, end.theta, goodness, n_rows, len(start))
        without, rounds = _at_its_dispersion(sites, family, alone.theta, without, n_rows, len(null)), rounds + 2
    penalty = 0.0 if ridge is None else np.diag(ridge)
    information = end.sums.information if family.model_errors == "expected" else final.observed + penalty
    return Exact(
        end.theta, information, final.observed + penalty, final.squares, dispersion, goodness, without, final.apart,
        rounds,
    )  # fmt: skip


def _at_its_dispersion(
    sites: Sites, family: Family, theta: FloatArray, found: Goodness, n_rows: int, dim: int
) -> Goodness:
    """The same with the log-likelihood at the dispersion that follows from its own residuals."""
    likelihood = sites.goodness(theta, family.likelihood_dispersion(found.pearson, n_rows, dim))
    return found._replace(log_likelihood=likelihood.log_likelihood)


class PooledSites:
    """Sites whose rows are all here."""

    def __init__(self, family: Family, rows: Sequence[Rows]) -> None:
        self._family, self._rows = family, rows

    def sums(self, theta: FloatArray) -> Sums:
        """For scoring."""
        return total([finite_sums(self._family, rows, theta) for rows in self._rows])

    def final(self, theta: FloatArray) -> Final:
        """At the estimate."""
        return total_final([final_terms(self._family, rows, theta) for rows in self._rows])

    def goodness(self, theta: FloatArray, dispersion: float) -> Goodness:
        """With this dispersion."""
        return total([self._family.goodness(rows, theta, dispersion) for rows in self._rows])

    def own(self, start: FloatArray) -> list[Own]:
        """Each site's own estimate."""
        return [own_fit(self._family, rows, start) for rows in self._rows]


def finite_sums(family: Family, rows: Rows, theta: FloatArray) -> Sums:
    """Those of one site; a parameter so far off that numbers overflow is as unlikely as can be."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sums = family.sums(rows, theta)
    return sums if all(np.all(np.isfinite(part)) for part in sums) else unlikely(len(theta))


def unlikely(dim: int, least: float = _LEAST) -> Sums:
    """The sums of a parameter that scoring must turn back from."""
    return Sums(least, np.zeros(dim), np.zeros((dim, dim)))


def client_rows(data: ModelData, x: FloatArray, which: slice) -> Rows:
    """The rows of one client as its family takes them."""
    offset = 0.0 if data.offset is None else data.offset[which]
    weights = 1.0 if data.row_weights is None else data.row_weights[which]
    clusters = None if data.cluster is None else data.cluster[which]
    beside = None if data.beside is None else data.beside[which]
    return data.family.rows(Rows(x[which], data.response[which], offset, weights, clusters), beside)


def own_fit(family: Family, rows: Rows, start: FloatArray) -> Own:
    """The estimate of one site's rows alone, with its robust covariance; from that of all rows it is not far."""
    if rows.n < _ROWS_A_PARAMETER * len(start):
        return Own(None, None)
    try:
        end = scored(lambda theta: family.steadied(theta, finite_sums(family, rows, theta)), start)
        bread = inverse(family.observed(rows, end.theta))
    except NoFiniteEstimate:
        return Own(None, None)
    scores = family.row_scores(rows, end.theta)
    return Own(end.theta, bread @ (scores.T @ scores) @ bread)


def final_terms(family: Family, rows: Rows, theta: FloatArray) -> Final:
    """Those of one site."""
    scores = family.row_scores(rows, theta)
    squares = squares_of(scores, rows.clusters)
    observed = family.observed(rows, theta)
    return Final(observed, squares, family.goodness(rows, theta, 1.0), _apart(scores, squares.rows, observed))


def total(terms: Sequence[Added]) -> Added:
    """Their sum, field by field."""
    return type(terms[0])(*(sum(parts[1:], start=parts[0]) for parts in zip(*terms, strict=True)))


def total_final(terms: Sequence[Final]) -> Final:
    """Their sum, part by part."""
    observed, *parts = zip(*terms, strict=True)
    return Final(sum(observed[1:], start=observed[0]), *map(total, parts))


def _apart(scores: FloatArray, square: FloatArray, observed: FloatArray) -> Apart:
    """By one step of scoring from the estimate of all: e = A^-1 s and W = A B^-1 A, so that W e = A B^-1 s."""
    n_rows, dim = scores.shape
    nothing = Apart(0.0, np.zeros(dim), np.zeros((dim, dim)), 0.0)
    if n_rows < _ROWS_A_PARAMETER * dim:
        return nothing
    try:
        within, whole = inverse(square), scores.sum(axis=0)
        inverse(observed)
    except NoFiniteEstimate:
        return nothing
    return Apart(float(whole @ within @ whole), observed @ within @ whole, observed @ within @ observed, 1.0)
