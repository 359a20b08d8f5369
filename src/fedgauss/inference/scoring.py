"""Fisher scoring on sums over sites: the maximum-likelihood fit of all rows together, without the rows.

A round asks for log-likelihood l, score s and information I at theta, and moves to

    theta + (1/2)^h I^-1 s,

with h the first of 0, 1, 2, ... that does not lower l. What sites send adds up, so the fit is that of the pooled
rows to rounding, whatever the split; nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.rows import NoFiniteEstimate, Sums

CLOSE = 1e-10  # a step, relative to the parameter, at which scoring ends
MOST_ROUNDS = 60
_MOST_HALVINGS = 12
_ROUNDING = 1e-11  # of a log-likelihood, by which it may seem to fall
_FLAT = 1e-11  # of the largest eigenvalue of an information that has been scaled to a diagonal of ones


class Scored(NamedTuple):
    """Where scoring ended."""

    theta: FloatArray  # (d,)
    sums: Sums  # at the parameter before the last step, which is below `CLOSE`
    rounds: int


def scored(
    ask: Callable[[FloatArray], Sums],
    start: FloatArray,
    free: Sequence[int] | None = None,
    ridge: FloatArray | None = None,
    first: Sums | None = None,
    steps: int | None = None,
) -> Scored:
    """The maximum of a log-likelihood that is known by its sums.

    Parameters
    ----------
    ask : callable
        ask(theta) has the sums of all sites at theta: one round.
    start : (d,) ndarray
        Where scoring starts.
    free : sequence of int, optional
        Parameters that may move; by default all.
    ridge : (d,) ndarray, optional
        lambda_j of a penalty sum_j lambda_j theta_j^2 / 2.
    first : Sums, optional
        Those at the start, where they are known: a round less.
    steps : int, optional
        End after so many steps, wherever that is; by default where steps are below `CLOSE`.

    Raises
    ------
    NoFiniteEstimate
        If there is no maximum, or more than one.
    """
    moving = np.arange(len(start)) if free is None else np.asarray(free, dtype=int)
    penalty = np.zeros(len(start)) if ridge is None else ridge
    rounds = 0

    def asked(theta: FloatArray) -> Sums:
        nonlocal rounds
        rounds += 1
        if rounds > MOST_ROUNDS:
            raise NoFiniteEstimate(f"scoring did not settle within {MOST_ROUNDS} rounds")
        return penalised(ask(theta), theta)

    def penalised(told: Sums, theta: FloatArray) -> Sums:
        return Sums(
            told.log_likelihood - float(penalty @ theta**2) / 2.0,
            told.score - penalty * theta,
            told.information + np.diag(penalty),
        )

    theta, taken = np.array(start, dtype=float), 0
    sums = asked(theta) if first is None else penalised(first, theta)
    while True:
        step = np.zeros(len(theta))
        step[moving] = solved(sums.information[np.ix_(moving, moving)], sums.score[moving])
        if np.abs(step).max(initial=0.0) <= CLOSE * (1.0 + np.abs(theta).max(initial=0.0)):
            return Scored(theta + step, sums, rounds)
        if taken == steps:
            return Scored(theta, sums, rounds)
        lowest = sums.log_likelihood - _ROUNDING * (1.0 + abs(sums.log_likelihood))
        for _ in range(_MOST_HALVINGS):
            there = asked(theta + step)
            if there.log_likelihood >= lowest:  # false for a NaN, too
                break
            step = step / 2.0
        else:
            raise NoFiniteEstimate("no step raises the log-likelihood")
        theta, sums, taken = theta + step, there, taken + 1


def solved(information: FloatArray, score: FloatArray) -> FloatArray:
    """I^-1 s, where I has full rank once its diagonal is scaled to ones."""
    return inverse(information) @ score


def inverse(information: FloatArray) -> FloatArray:
    """The inverse of an information matrix; refused where it is singular."""
    diagonal = np.diag(information)
    if not len(diagonal):
        return np.zeros((0, 0))
    if not np.all(np.isfinite(information)) or np.any(diagonal <= 0.0):
        raise NoFiniteEstimate("the information about a parameter vanishes")
    scale = 1.0 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(information * np.outer(scale, scale))
    if values[0] <= _FLAT * values[-1]:
        raise NoFiniteEstimate("the information about a combination of parameters vanishes")
    half = (scale[:, None] * vectors) / np.sqrt(values)
    return half @ half.T
