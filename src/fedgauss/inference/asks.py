"""The exact fit as a program, what it asks of every site in a round, and one site's answer; answers add up.

The program is scoring to the maximum, then a round for errors and tests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import chdtrc

from fedgauss._types import FloatArray, IntArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask as Ask
from fedgauss.families.rows import Goodness, NoFiniteEstimate, Rows
from fedgauss.families.same_bits import factor, inverse, solve
from fedgauss.inference.model_data import ModelData
from fedgauss.inference.reference_laws import ChiSquared
from fedgauss.inference.scoring import MOST_MATRICES, Totals, ascent, penalised

Answer = dict[str, FloatArray]
Shapes = dict[str, tuple[int, ...]]
End = TypeVar("End")

_ROWS_A_PARAMETER = 5  # of a site whose own estimate is compared with those of the others
_CLOSE = 1e-8  # a last step of a site by itself; Newton's follows
_NOTHING = 1e-11  # of the largest eigenvalue of an information: of a direction in which a site has none
_BESIDE = "beside."
_BY_SITE = ("squares.clusters", "squares.sites")  # parts that are no sums over rows
_GOODNESS = ("log_likelihood", "deviance", "pearson")
_ENDED = 2e-9  # what a step at the end may be: matrices are then exact to some 1e-8 of themselves
_MOST_ENDS = 3
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
    first = penalised(told, start, ridge)
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
    for _ in range(_MOST_ENDS):
        final = yield Ask(
            "final", theta, parts=tuple(parts), compared=tuple(compared), beside=Ask("goodness", alone.theta)
        )
        if final is None:
            raise NoFiniteEstimate("at the estimate, some site's numbers are not finite")
        rounds += 1
        matrices = {name: value for name, value in final.items() if name in (*parts, "squares.n_clusters")}
        matrices |= {name: final[name] + np.diag(penalty) for name in ("information", "observed") if name in parts}
        known = [matrices[name] for name in ("observed", "information") if name in matrices]
        if steps is not None or not known:
            found = theta
            break
        found = theta + solve(factor(known[0]), final["score"] - penalty * theta)  # the last step again, now Newton's
        if np.abs(found - theta).max(initial=0.0) <= _ENDED * (1.0 + np.abs(theta).max(initial=0.0)):
            break
        theta = found  # few digits on the way may have hidden that it was not over
    else:
        raise NoFiniteEstimate("steps do not shrink any more")
    goodness, without, dispersion = _goodness(final), _goodness(beside(final)), 1.0
    if family.has_dispersion:  # likelihoods at a dispersion of each model's own
        dispersion = goodness.pearson / max(1, n_rows - len(start))
        phi = family.likelihood_dispersion(goodness.pearson, n_rows, len(start))
        null_phi = family.likelihood_dispersion(without.pearson, n_rows, len(null))
        told = yield Ask("goodness", theta, phi, beside=Ask("goodness", alone.theta, null_phi))
        goodness = goodness._replace(log_likelihood=_goodness(told).log_likelihood)
        without = without._replace(log_likelihood=_goodness(told and beside(told)).log_likelihood)
        rounds += 1
    return Exact(found, matrices, dispersion, goodness, without, _heterogeneity(final), rounds)


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


def shapes(ask: Ask, family: Family) -> Shapes:
    """Of the numbers in an answer, by name."""
    dim = len(ask.theta)
    found: Shapes
    if ask.kind in ("score", "sums"):
        found = {"log_likelihood": (), "score": (dim,)} | ({"information": (dim, dim)} if ask.kind == "sums" else {})
    elif ask.kind == "own":
        found = {"found": (), "theta": (dim,), "cov": (dim, dim)}
    else:
        found = dict.fromkeys(_GOODNESS, ()) | ({"score": (dim,)} if ask.kind == "final" else {})
    found |= dict.fromkeys(ask.parts, (dim, dim))
    if "squares.clusters" in ask.parts:
        found["squares.n_clusters"] = ()
    if ask.compared:
        few = len(ask.compared)
        found |= {"apart.square": (), "apart.pull": (few,), "apart.weight": (few, few), "apart.sites": ()}
    if ask.beside is not None:
        found |= {_BESIDE + name: shape for name, shape in shapes(ask.beside, family).items()}
    return found


def beside(numbers: Mapping[str, FloatArray]) -> Answer:
    """The numbers of the question beside another."""
    return {name.removeprefix(_BESIDE): value for name, value in numbers.items() if name.startswith(_BESIDE)}


def answer(family: Family, rows: Rows, ask: Ask) -> Answer | None:
    """One site's numbers; None where they would not be finite, which voids the round for all sites."""
    with np.errstate(all="ignore"):  # of a parameter too far off
        numbers = _numbers(family, rows, ask)
    return numbers if all(np.isfinite(value).all() for value in numbers.values()) else None


def total(answers: Sequence[Answer | None]) -> Answer | None:
    """Their sum, name by name; None where one is, or the sum is not finite."""
    there = [one for one in answers if one is not None]
    if len(there) < len(answers):
        return None
    added = dict(there[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for one in there[1:]:
            added = {name: value + one[name] for name, value in added.items()}
    return added if all(np.isfinite(value).all() for value in added.values()) else None


def run(program: Generator[Ask, Any, End], family: Family, sites: Sequence[Rows], together: Rows | None = None) -> End:
    """What a program returns, over sites whose rows are all here; sums over rows are of those `together`, if given."""
    ask = next(program)
    while True:
        if ask.kind == "own" or together is None:
            each = [answer(family, rows, ask) for rows in sites]
            told = each if ask.kind == "own" else total(each)
        else:
            told = _summed(family, sites, together, ask)
        try:
            ask = program.send(told)
        except StopIteration as end:
            found: End = end.value
            return found


def _summed(family: Family, sites: Sequence[Rows], together: Rows, ask: Ask) -> Answer | None:
    """The total of all answers, of which sums over rows need not be asked site by site."""
    by_site = tuple(part for part in ask.parts if part in _BY_SITE)
    by_row = tuple(part for part in ask.parts if part not in _BY_SITE)
    told = answer(family, together, ask._replace(parts=by_row, compared=()))
    if not (by_site or ask.compared):
        return told
    apart = Ask("parts", ask.theta, parts=by_site, compared=ask.compared)
    more = total([answer(family, rows, apart) for rows in sites])
    return None if told is None or more is None else told | more


def _numbers(family: Family, rows: Rows, ask: Ask) -> Answer:
    theta = ask.theta
    if ask.kind == "score":
        found = _arrays(family.score(rows, theta)._asdict())
    elif ask.kind == "sums":
        found = _arrays(family.sums(rows, theta)._asdict())
    elif ask.kind == "own":
        found = _own(family, rows, theta)
    elif ask.kind in ("final", "goodness"):
        found = _arrays(family.goodness(rows, theta, ask.dispersion)._asdict())
        if ask.kind == "final":
            found["score"] = family.score(rows, theta).score
    elif ask.kind == "parts":
        found = {}
    else:
        raise ValueError(f"a question must be one of score, sums, final, parts, goodness, own; got {ask.kind!r}.")
    if ask.parts or ask.compared:
        found |= _parts(family, rows, ask)
    if ask.beside is not None:
        found |= {_BESIDE + name: value for name, value in _numbers(family, rows, ask.beside).items()}
    return found


def _arrays(fields: Mapping[str, FloatArray | float]) -> Answer:
    return {name: np.asarray(value, dtype=float) for name, value in fields.items()}


def _parts(family: Family, rows: Rows, ask: Ask) -> Answer:
    """Matrices at the estimate, those that are asked for."""
    theta, found = ask.theta, {}
    if "information" in ask.parts:
        found["information"] = family.sums(rows, theta).information
    observed = family.observed(rows, theta) if "observed" in ask.parts or ask.compared else np.empty((0, 0))
    if "observed" in ask.parts:
        found["observed"] = observed
    scores = family.row_scores(rows, theta)
    if "squares.rows" in ask.parts:
        found["squares.rows"] = scores.T @ scores
    if "squares.clusters" in ask.parts:
        clusters = np.empty(0) if rows.clusters is None else rows.clusters
        labels, code = np.unique(clusters, return_inverse=True)
        totals = np.zeros((len(labels), len(theta)))
        np.add.at(totals, code, scores[: len(clusters)])
        found |= {"squares.clusters": totals.T @ totals, "squares.n_clusters": np.array(float(len(labels)))}
    if "squares.sites" in ask.parts:
        whole = scores.sum(axis=0)
        found["squares.sites"] = np.outer(whole, whole)
    if ask.compared:
        found |= _apart(scores, observed, np.array(ask.compared))
    return found


def _apart(scores: FloatArray, observed: FloatArray, compared: IntArray) -> Answer:
    """How far a site's own estimate e of the compared parameters is from that of all, and its weight W.

    By one step of scoring, with the others free: with scores s_i and information A of the compared, from which the
    others have been projected, and B = sum_i s_i s_i', it is e = A^-1 s with the covariance A^-1 B A^-1, so that
    W e = A B^-1 s. Of the others some may have no meaning at one site, such as the effects of other sites.
    """
    n_rows, dim = scores.shape
    few = len(compared)
    nothing = {
        "apart.square": np.zeros(()), "apart.pull": np.zeros(few), "apart.weight": np.zeros((few, few)),
        "apart.sites": np.zeros(()),
    }  # fmt: skip
    others = np.delete(np.arange(dim), compared)
    if n_rows < _ROWS_A_PARAMETER * dim or not np.all(np.isfinite(observed)) or not np.all(np.isfinite(scores)):
        return nothing
    away = np.linalg.pinv(observed[np.ix_(others, others)], _NOTHING, hermitian=True) @ observed[others][:, compared]
    left = scores[:, compared] - scores[:, others] @ away
    information = observed[np.ix_(compared, compared)] - observed[compared][:, others] @ away
    try:
        within, whole = inverse(left.T @ left), left.sum(axis=0)
        factor(information)
    except NoFiniteEstimate:
        return nothing
    return {
        "apart.square": np.asarray(whole @ within @ whole), "apart.pull": information @ within @ whole,
        "apart.weight": information @ within @ information, "apart.sites": np.ones(()),
    }  # fmt: skip


def _own(family: Family, rows: Rows, start: FloatArray) -> Answer:
    """The estimate of one site's rows alone, with its robust covariance; from that of all rows it is not far."""
    dim = len(start)
    nothing = {"found": np.zeros(()), "theta": np.zeros(dim), "cov": np.zeros((dim, dim))}
    if len(rows.x) < _ROWS_A_PARAMETER * dim:
        return nothing
    try:
        first = family.sums(rows, start)
        end = run(ascent(family, start, first=first, close=_CLOSE, most=None), family, [rows])
        observed, scores = family.observed(rows, end.theta), family.row_scores(rows, end.theta)
        bread = inverse(observed)
    except NoFiniteEstimate:
        return nothing
    theta = end.at + bread @ end.last.score  # the last step again, now Newton's
    return {"found": np.ones(()), "theta": theta, "cov": bread @ (scores.T @ scores) @ bread}
