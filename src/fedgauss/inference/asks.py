"""What an exact fit asks of every site in a round, and one site's answer; answers add up."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask as Ask
from fedgauss.families.rows import NoFiniteEstimate, Rows
from fedgauss.families.same_bits import inverse
from fedgauss.inference.scoring import ascent

Answer = dict[str, FloatArray]
Shapes = dict[str, tuple[int, ...]]
End = TypeVar("End")

_ROWS_A_PARAMETER = 5  # of a site whose own estimate is compared with those of the others
_CLOSE = 1e-6  # a site's last step before Newton's, which leaves about its square
_NOTHING = 1e-11  # of the largest eigenvalue of an information: of a direction in which a site has none
_BESIDE = "beside."
_GOODNESS = ("log_likelihood", "deviance", "pearson")


def shapes(ask: Ask, family: Family) -> Shapes:
    """Of the numbers in an answer, by name."""
    dim = len(ask.theta)
    found: Shapes
    if ask.kind in ("score", "sums"):
        found = {"log_likelihood": (), "score": (dim,)} | ({"information": (dim, dim)} if ask.kind == "sums" else {})
    elif ask.kind == "own":
        found = {"found": (), "theta": (dim,), "cov": (dim, dim)}
    else:
        found = dict.fromkeys(_GOODNESS, ())
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
    return numbers if all(np.all(np.isfinite(value)) for value in numbers.values()) else None


def total(answers: Sequence[Answer | None]) -> Answer | None:
    """Their sum, name by name; None where one is, or the sum is not finite."""
    there = [one for one in answers if one is not None]
    if len(there) < len(answers):
        return None
    added = dict(there[0])
    with np.errstate(over="ignore", invalid="ignore"):
        for one in there[1:]:
            added = {name: value + one[name] for name, value in added.items()}
    return added if all(np.all(np.isfinite(value)) for value in added.values()) else None


def run(
    program: Generator[Ask, Any, End], family: Family, sites: Sequence[Rows], together: Rows | None = None
) -> End:
    """What a program returns, over sites whose rows are all here; sums over rows are of those `together`, if given."""
    ask = next(program)
    while True:
        by_row = together is not None and ask.kind in ("score", "sums", "goodness")
        each = [answer(family, rows, ask) for rows in ([together] if by_row else sites)]
        try:
            ask = program.send(each if ask.kind == "own" else total(each))
        except StopIteration as end:
            found: End = end.value
            return found


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
    else:
        raise ValueError(f"a question must be one of score, sums, final, goodness, own; got {ask.kind!r}.")
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


def _apart(scores: FloatArray, observed: FloatArray, compared: FloatArray) -> Answer:
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
    others = np.setdiff1d(np.arange(dim), compared)
    if n_rows < _ROWS_A_PARAMETER * dim or not np.all(np.isfinite(observed)) or not np.all(np.isfinite(scores)):
        return nothing
    away = np.linalg.pinv(observed[np.ix_(others, others)], _NOTHING, hermitian=True) @ observed[others][:, compared]
    left = scores[:, compared] - scores[:, others] @ away
    information = observed[np.ix_(compared, compared)] - observed[compared][:, others] @ away
    try:
        within, whole = inverse(left.T @ left), left.sum(axis=0)
        inverse(information)
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
        end = run(ascent(family, start, close=_CLOSE, most=None), family, [rows])
        bread = inverse(family.observed(rows, end.theta))
    except NoFiniteEstimate:
        return nothing
    scores = family.row_scores(rows, end.theta)
    theta = end.at + bread @ end.last.score  # the last step again, now Newton's
    return {"found": np.ones(()), "theta": theta, "cov": bread @ (scores.T @ scores) @ bread}
