"""The maximum of a log-likelihood that is known by sums over sites: a program of rounds, without the rows.

A round asks for the log-likelihood l and the score s at theta, and the program moves on to

    theta + (1/2)^h B^-1 s,

with h the first of 0, 1, 2, ... that does not lower l. B is the information I where that has been asked for last, and
after each step of d, by which the score fell by y, it is mended to what that step has shown, B d = y (Broyden, Fletcher,
Goldfarb, Shanno):

    B + y y' / y'd - B d d'B / d'B d.

Each information tells of rows, so another one is asked for only where steps shrink too slowly. What sites send adds up,
so the fit is that of the pooled rows to rounding, whatever the split. Nothing is random, and the next question has the
same bits wherever it is worked out from the same totals (`same_bits`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families import Family
from fedgauss.families.rows import Ask, NoFiniteEstimate, Sums
from fedgauss.families.same_bits import dot, factor, solve, times

CLOSE = 1e-10  # a step, relative to the parameter, at which scoring ends
MOST_ROUNDS = 60
MOST_MATRICES = 4
_MOST_HALVINGS = 12
_ROUNDING = 1e-11  # of a log-likelihood, by which it may seem to fall
_SLOW = 0.1  # of s'B^-1 s, twice what a step is to gain, that a step should leave at most
_CURVED = 1e-8  # of d'B d, what y'd must be at least for a step to tell of the curvature

Totals = Mapping[str, FloatArray]
Rounds = Generator[Ask, Totals | None, "Ascent"]


class Ascent(NamedTuple):
    """Where an ascent ended."""

    theta: FloatArray  # (d,)
    at: FloatArray  # (d,), before the last step
    last: Sums  # there, with B in place of the information
    rounds: int


def ascent(
    family: Family,
    start: FloatArray,
    free: Sequence[int] | None = None,
    ridge: FloatArray | None = None,
    first: Sums | None = None,
    steps: int | None = None,
    close: float = CLOSE,
) -> Rounds:
    """Ask at one parameter after the other until a step is small.

    Parameters
    ----------
    family : Family
        Whose `steadied` sees each B before a step.
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

    Raises
    ------
    NoFiniteEstimate
        If there is no maximum, or more than one.
    """
    moving = np.arange(len(start)) if free is None else np.asarray(free, dtype=int)
    penalty = np.zeros(len(start)) if ridge is None else ridge
    theta, rounds, matrices, taken = np.array(start, dtype=float), 0, 0, 0
    before, since = np.inf, 0
    here = first
    if here is None:
        here, rounds, matrices = penalised((yield Ask("sums", theta)), theta, penalty), 1, 1
        if here is None:
            raise NoFiniteEstimate("where scoring starts, some site's numbers are not finite")
    while True:
        here = family.steadied(theta, here)
        step = np.zeros(len(theta))
        step[moving] = solve(factor(here.information[np.ix_(moving, moving)]), here.score[moving])
        if np.abs(step).max(initial=0.0) <= close * (1.0 + np.abs(theta).max(initial=0.0)):
            return Ascent(theta + step, theta, here, rounds)
        if taken == steps:
            return Ascent(theta, theta, here, rounds)
        gain = dot(here.score[moving], step[moving])
        slow = gain > _SLOW * before
        lowest = here.log_likelihood - _ROUNDING * (1.0 + abs(here.log_likelihood))
        for _ in range(_MOST_HALVINGS):
            if rounds == MOST_ROUNDS:
                raise NoFiniteEstimate(f"scoring did not settle within {MOST_ROUNDS} rounds")
            wanted = "sums" if slow and matrices < MOST_MATRICES else "score"
            there = penalised((yield Ask(wanted, theta + step)), theta + step, penalty, here.information)
            rounds, matrices = rounds + 1, matrices + (wanted == "sums")
            if there is not None and there.log_likelihood >= lowest:
                break
            step = step / 2.0
        else:
            raise NoFiniteEstimate("no step raises the log-likelihood")
        if wanted == "score":
            there = there._replace(information=mended(here.information, step, here.score - there.score))
        theta, here, taken = theta + step, there, taken + 1
        before, since = gain, 0 if wanted == "sums" else since + 1


def penalised(
    told: Totals | None, theta: FloatArray, penalty: FloatArray, matrix: FloatArray | None = None
) -> Sums | None:
    """The totals of a round, less the penalty; with the matrix where none was told."""
    if told is None:
        return None
    likelihood = float(told["log_likelihood"]) - dot(penalty, theta * theta) / 2.0
    if "information" in told:
        matrix = told["information"] + np.diag(penalty)
    assert matrix is not None
    return Sums(likelihood, told["score"] - penalty * theta, matrix)


def mended(matrix: FloatArray, step: FloatArray, fall: FloatArray) -> FloatArray:
    """B, so that it gives the fall of the score over the last step; as it is where that step tells nothing."""
    expected = times(matrix, step)
    before, found = dot(step, expected), dot(step, fall)
    if not found > _CURVED * before:
        return matrix
    return np.asarray(matrix + np.multiply.outer(fall, fall) / found - np.multiply.outer(expected, expected) / before)
