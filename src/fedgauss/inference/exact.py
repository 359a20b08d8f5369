"""The exact fit as a program: scoring to the maximum, then a round for errors and tests. All that it asks adds up."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask, Goodness, NoFiniteEstimate, Rows
from fedgauss.families.same_bits import factor, inverse, solve
from fedgauss.inference.asks import beside
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.scoring import MOST_MATRICES, Ascent, ascent, penalised

Totals = Mapping[str, FloatArray]
_SETTLED = 1e-9  # by which Newton's last step may differ from the one that was taken
_NULL_CLOSE = 1e-6  # a last step of the model without covariates: what it leaves is about its square


class Exact(NamedTuple):
    """An exact fit in the units of its rows."""

    theta: FloatArray  # (d,)
    matrices: Totals  # the parts of the last question, (d, d) each; informations with the penalty
    dispersion: float
    goodness: Goodness
    null: Goodness  # of the model without covariates
    heterogeneity: ChiSquared | None  # of the parameters that were compared
    rounds: int


def exact_program(
    family: Family,
    start: FloatArray,
    null: Sequence[int],
    n_rows: int,
    parts: Sequence[str] = (),
    compared: Sequence[int] = (),
    ridge: FloatArray | None = None,
    check: Callable[[FloatArray], None] = lambda information: None,
    begin: FloatArray | None = None,
    steps: int | None = None,
) -> Generator[Ask, Totals | None, Exact]:
    """Ask until the fit is found. Every party of a run that is sent the same totals asks the same.

    Parameters
    ----------
    family : Family
        With the number of classes that the response has.
    start : (d,) ndarray
        Near the model without covariates.
    null : sequence of int
        The parameters of that model; empty where it has none.
    n_rows : int
        Of all sites.
    parts, compared : sequence of str and of int, optional
        What is asked for at the estimate (`Ask`).
    ridge : (d,) ndarray, optional
        Penalties, in the units of the rows; none on the parameters of the model without covariates.
    check : callable, optional
        Is given the information at the start, (d, d), and raises where nothing can be fitted.
    begin, steps : (d,) ndarray and int, optional
        Where to begin and how many steps to take, in place of all steps from the model without covariates.
    """
    penalty = np.zeros(len(start)) if ridge is None else ridge
    told = yield Ask("sums", start)
    first = penalised(told, start, penalty)
    if told is None or first is None:
        raise NoFiniteEstimate("where scoring starts, some site's numbers are not finite")
    check(told["information"])
    most = MOST_MATRICES - 1
    alone = yield from ascent(family, start, null, ridge, first, close=_NULL_CLOSE, most=most)
    most -= alone.matrices
    if begin is None:
        end = yield from ascent(family, alone.at, ridge=ridge, first=alone.last, most=most)
    else:
        end = yield from ascent(family, begin, ridge=ridge, steps=steps, most=most)
    theta, rounds = end.theta, 1 + alone.rounds + end.rounds
    for _ in range(2):
        final = yield Ask(
            "final", theta, parts=tuple(parts), compared=tuple(compared), beside=Ask("goodness", alone.theta)
        )
        goodness, without, rounds = _goodness(final), _goodness(final and beside(final)), rounds + 1
        assert final is not None
        matrices = {name: value for name, value in final.items() if name in (*parts, "squares.n_clusters")}
        matrices |= {name: final[name] + np.diag(penalty) for name in ("information", "observed") if name in parts}
        known = [matrices[name] for name in ("observed", "information") if name in matrices]
        asked, theta = theta, theta if steps is not None or not known else _newton(end, known[0])
        if np.abs(theta - asked).max(initial=0.0) <= _SETTLED * (1.0 + np.abs(theta).max(initial=0.0)):
            break  # else the matrices are of a parameter that was not the estimate yet
    dispersion = 1.0
    if family.has_dispersion:  # likelihoods at a dispersion of each model's own
        dispersion = goodness.pearson / max(1, n_rows - len(start))
        phi = family.likelihood_dispersion(goodness.pearson, n_rows, len(start))
        null_phi = family.likelihood_dispersion(without.pearson, n_rows, len(null))
        told = yield Ask("goodness", asked, phi, beside=Ask("goodness", alone.theta, null_phi))
        goodness = goodness._replace(log_likelihood=_goodness(told).log_likelihood)
        without = without._replace(log_likelihood=_goodness(told and beside(told)).log_likelihood)
        rounds += 1
    return Exact(theta, matrices, dispersion, goodness, without, _heterogeneity(final), rounds)


def _newton(end: Ascent, matrix: FloatArray) -> FloatArray:
    """The last step again, now Newton's."""
    return np.asarray(end.at + solve(factor(matrix), end.last.score))


def _goodness(told: Totals | None) -> Goodness:
    if told is None:
        raise NoFiniteEstimate("at the estimate, some site's numbers are not finite")
    return Goodness(*(float(told[name]) for name in Goodness._fields))


def _heterogeneity(final: Totals) -> ChiSquared | None:
    """Cochran's Q of all compared parameters at once; None where fewer than two sites can be compared.

    With sites' own estimates e_k and weights W_k, their inverse covariances, it is the sum of e_k'W_k e_k less
    (sum W_k e_k)' (sum W_k)^-1 (sum W_k e_k).
    """
    if "apart.sites" not in final or final["apart.sites"] < 2:
        return None
    pull = final["apart.pull"]
    try:
        together = inverse(final["apart.weight"])
    except NoFiniteEstimate:  # columns that are all but collinear
        return None
    statistic = max(0.0, float(final["apart.square"] - pull @ together @ pull))
    dof = int(final["apart.sites"] - 1) * len(pull)
    return ChiSquared(statistic, dof, float(chdtrc(dof, statistic)))


def client_rows(data: ModelData, x: FloatArray, which: slice) -> Rows:
    """The rows of one client as its family takes them."""
    offset = 0.0 if data.offset is None else data.offset[which]
    weights = 1.0 if data.row_weights is None else data.row_weights[which]
    clusters = None if data.cluster is None else data.cluster[which]
    events = None if data.beside is None else data.beside[which]
    return data.family.rows(Rows(x[which], data.response[which], offset, weights, clusters), events)
