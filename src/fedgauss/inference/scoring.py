"""The maximum of a log-likelihood that is known by sums over sites: a program of rounds, without the rows.

A round asks for the log-likelihood l and the score s at theta, and the program moves on to

    theta + (1/2)^h B^-1 s,

with h the first of 0, 1, 2, ... that does not lower l. B is the information where that has been asked for last; after
each step it is mended to the curvature that the step has met (`mended`). Each information tells of rows, so another one
is asked for only where steps shrink too slowly, and no more than a few times. What sites send adds up, so the fit is
that of the pooled rows to rounding, whatever the split. Nothing is random, and the next question has the same bits
wherever it is worked out from the same totals (`same_bits`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask, NoFiniteEstimate, Sums
from fedgauss.families.same_bits import Factor, dot, factor, solve, times

CLOSE = 1e-9  # a last step, relative to the parameter; Newton's follows
MOST_ROUNDS = 60
MOST_MATRICES = 3  # on the way, that at the start among them
_MOST_HALVINGS = 12
_ROUNDING = 1e-11  # of a log-likelihood, by which it may seem to fall
_COARSE = 2.0**-7  # of what three steps are to gain: sites give no more digits of log-likelihoods (`federated.path`)
_SLOW = 0.4  # of s'B^-1 s, about twice what a step is to gain: B is of little use where the next is to gain more
_CURVED = 1e-8  # of d'B d, what y'd must be at least for a step to tell of the curvature
_BEND = 0.9  # of y, by which it is corrected at most
_TOLD = 1e-6  # of a log-likelihood, what y'd must be at least for it to tell of the bend
_DEFINITE, _STEEP = 0.3, 10.0  # of the determinant of B, what the update of rank one leaves of it, and makes of it

Totals = Mapping[str, FloatArray]
Rounds = Generator[Ask, Totals | None, "Ascent"]


class Ascent(NamedTuple):
    """Where an ascent ended."""

    theta: FloatArray  # (d,)
    at: FloatArray  # (d,), before the last step
    last: Sums  # there, with B in place of the information
    rounds: int
    matrices: int  # how many of these told one


def ascent(
    family: Family,
    start: FloatArray,
    free: Sequence[int] | None = None,
    ridge: FloatArray | None = None,
    first: Sums | None = None,
    steps: int | None = None,
    close: float = CLOSE,
    most: int | None = MOST_MATRICES,
) -> Rounds:
    """Ask at one parameter after the other until a step is small.

    Parameters
    ----------
    family : Family
        Whose `steadied`, if it has one, sees each B before a step.
    start : (d,) ndarray
        Where it starts.
    free : sequence of int, optional
        Parameters that may move; by default all.
    ridge : (d,) ndarray, optional
        lambda_j of a penalty sum_j lambda_j theta_j^2 / 2.
    first : Sums, optional
        Those at the start with the penalty, where they are known: a round less.
    steps : int, optional
        End after so many steps, wherever that is; by default where they are below `close`.
    close : float
        In units of 1 + max |theta_j|.
    most : int
        How many informations may be asked for; None to ask for one at every step, as a site may of its own rows.

    Raises
    ------
    NoFiniteEstimate
        If there is no maximum, or more than one.
    """
    moving = np.arange(len(start)) if free is None else np.asarray(free, dtype=int)
    theta, rounds, matrices, taken = np.array(start, dtype=float), 0, 0, 0
    before, told_here = np.inf, True  # whether B is the information at theta
    gains = [0.0, 0.0]  # that the last steps were to have
    here = first
    if here is None:
        here, rounds, matrices = penalised((yield Ask("sums", theta)), theta, ridge), 1, 1
        if here is None:
            raise NoFiniteEstimate("where scoring starts, some site's numbers are not finite")
    while True:
        if family.steadied is not None:
            here = family.steadied(theta, here)
        step = np.zeros(len(theta))
        by = factor(here.information if free is None else here.information[np.ix_(moving, moving)])
        step[moving] = solve(by, here.score[moving])
        if np.abs(step).max(initial=0.0) <= close * (1.0 + np.abs(theta).max(initial=0.0)):
            return Ascent(theta + step, theta, here, rounds, matrices)
        if taken == steps:
            return Ascent(theta, theta, here, rounds, matrices)
        gain = dot(here.score[moving], step[moving])
        slow = gain > _SLOW * before
        gains = [*gains[-2:], gain]
        lowest = here.log_likelihood - _ROUNDING * (1.0 + abs(here.log_likelihood)) - _COARSE * max(gains)
        for halvings in range(_MOST_HALVINGS):
            if rounds == MOST_ROUNDS:
                raise NoFiniteEstimate(f"scoring did not settle within {MOST_ROUNDS} rounds")
            wanted = "sums" if most is None or (slow and not halvings and matrices < most) else "score"
            there = penalised((yield Ask(wanted, theta + step)), theta + step, ridge, here.information)
            rounds, matrices = rounds + 1, matrices + (wanted == "sums")
            if there is not None and there.log_likelihood >= lowest:
                break
            step = step / 2.0
        else:
            if told_here or matrices == most:
                raise NoFiniteEstimate("no step raises the log-likelihood")
            there = penalised((yield Ask("sums", theta)), theta, ridge)  # B may be far from the information by now
            if there is None:
                raise NoFiniteEstimate("on the way, some site's information is not finite")
            here, rounds, matrices, before, told_here = there, rounds + 1, matrices + 1, np.inf, True
            continue
        told_here = wanted == "sums"
        if not told_here:
            there = there._replace(information=mended(here, there, step, by if free is None else None))
        theta, here, taken, before = theta + step, there, taken + 1, gain


def penalised(
    told: Totals | None, theta: FloatArray, ridge: FloatArray | None, matrix: FloatArray | None = None
) -> Sums | None:
    """The totals of a round, less the penalty; with the matrix where none was told."""
    if told is None:
        return None
    likelihood, score = float(told["log_likelihood"]), told["score"]
    if "information" in told:
        matrix = told["information"] if ridge is None else told["information"] + np.diag(ridge)
    assert matrix is not None
    if ridge is None:
        return Sums(likelihood, score, matrix)
    return Sums(likelihood - dot(ridge, theta * theta) / 2.0, score - ridge * theta, matrix)


def mended(here: Sums, there: Sums, step: FloatArray, by: Factor | None = None) -> FloatArray:
    """B, so that it gives the curvature that the last step d has met; as it was where that step tells nothing.

    `by` is the factor of B, where that is known.

    The score fell by y over the step, B d = y on average. With log-likelihoods and scores at both ends of it

        d'B d = y'd + 6 (l1 - l0) - 3 (s0 + s1)'d

    at its end, to third order (Zhang and Xu 1999), and y is stretched to that. Then, with r = y - B d,

        B + r r' / r'd

    where that is definite and not much steeper than B, and else B + y y' / y'd - B d d'B / d'B d (Broyden, Fletcher,
    Goldfarb, Shanno), which is.
    """
    matrix, fall = here.information, here.score - there.score
    expected = times(matrix, step)
    before, found = dot(step, expected), dot(step, fall)
    if not found > _CURVED * before:
        return matrix
    if found > _TOLD * (1.0 + abs(there.log_likelihood)):
        rise = there.log_likelihood - here.log_likelihood
        bend = (6.0 * rise - 3.0 * dot(here.score + there.score, step)) / found
        fall = fall * (1.0 + min(max(bend, -_BEND), _BEND))
        found = dot(step, fall)
    left = fall - expected
    along = dot(left, step)
    if abs(along) > _CURVED * before:
        grown = 1.0 + dot(left, solve(by or factor(matrix), left)) / along  # what becomes of the determinant
        if _DEFINITE < grown < _STEEP:  # where r'd is next to nothing, B would allow no steps along r any more
            return np.asarray(matrix + np.multiply.outer(left, left) / along)
    return np.asarray(matrix + np.multiply.outer(fall, fall) / found - np.multiply.outer(expected, expected) / before)
