"""Which past rounds are still candidates for the onset: O(log t) of them, thinned as they age."""

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray
from fedgauss.detect.saved import Saved

# Twice the log-likelihood ratio by which a candidate may fall short of the best one and still be the onset: about
# 2 log 20 = 6 for the noise after a change of known size, and the rest for an alarm that rings at a moment of its own.
DROP = 8.0
_FLAT = 1 / 3  # the weight of evidence where that of several onsets is combined; see `combined`
FINE = 12  # ages up to here keep every round; each doubling of the age then keeps every second one of those left


def is_candidate(position: int, now: int) -> bool:
    """Whether position s is still kept at time t: with age a = t - s, 2^l divides s for the level l of the age.

    Level 0 holds ages 1 to 12 and level l ages in (12 2^(l-1), 12 2^l]. A position that 2^l but no higher
    power divides therefore lives until age 12 2^l, and is never needed again after that.
    """
    age = now - position
    return position > 0 and 1 <= age <= FINE * _power_of_two(position)


def kept_at(now: int, first: int) -> npt.NDArray[np.int64]:
    """All candidates at time t from `first` on, in order."""
    found: set[int] = set()
    power = 1
    while power < now:  # multiples of it up to the age of 12 times it
        oldest = max(now - FINE * power, first, 1)
        found.update(range((now - 1) // power * power, oldest - 1, -power))
        power *= 2
    return np.array(sorted(found), dtype=np.int64)


class Candidates(Saved):
    """Prefix sums at the positions that `is_candidate` keeps, for R replicates at once.

    Every round one position enters (age 1) and at most one leaves: at time t it is the s with
    t - 1 = s + 12 2^l, where 2^l is the largest power of two in t - 1. So the newcomer takes the slot of the one
    that leaves, nothing is moved, and about 12 + 6 log2(t / 12) positions are held.

    `first` is the earliest position that may be an onset; `width` the length of a prefix sum.
    """

    saved = ("positions", "steps", "masses", "sums")

    def __init__(self, width: int, replicates: int, first: int) -> None:
        self.first = first
        self.positions = np.zeros(0, dtype=np.int64)  # s, in no order                               (C,)
        self.steps = np.zeros(0, dtype=np.int64)  # of SGD, at which each position's round ended     (C,)
        self.masses = np.zeros(0)  # sums of weights                                                 (C,)
        self.sums = np.zeros((0, width, replicates))  # prefix sums                                  (C, width, R)
        self._scratch = self.sums

    @property
    def scratch(self) -> FloatArray:
        """Room for a calculation with `sums`, (C, width, R); its contents mean nothing."""
        if self._scratch.shape != self.sums.shape:
            self._scratch = np.empty_like(self.sums)
        return self._scratch

    def span(self, evidence: FloatArray) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Slots of the earliest and the latest likely onset, (R,) each; evidence is twice a log-likelihood, (C, R).

        The earliest is the candidate before the first whose evidence is within 8 of the best: a change that began
        within a round, or between two candidates that are left, shows best at the next.
        """
        order = np.argsort(self.positions)
        likely = evidence[order] >= evidence.max(axis=0) - DROP
        earliest = np.maximum(likely.argmax(axis=0) - 1, 0)
        latest = len(order) - 1 - likely[::-1].argmax(axis=0)
        return order[earliest], order[latest]

    def keep(self, position: int, step: int, mass: float, total: FloatArray) -> None:
        """Take in the newest position, with its prefix sum, in place of the one whose time is over."""
        over = position - FINE * _power_of_two(position)
        slots = np.flatnonzero((self.positions == over) & (over >= self.first))
        if len(slots):
            slot = slots[0]
            self.positions[slot], self.steps[slot], self.masses[slot] = position, step, mass
            self.sums[slot] = total
        elif position >= self.first:
            self.positions, self.steps = np.append(self.positions, position), np.append(self.steps, step)
            self.masses, self.sums = np.append(self.masses, mass), np.concatenate([self.sums, total[None]])

    def check(self, now: int, step: int, mass: float) -> None:
        """Refuse a restored state that cannot be that of time t, step `step`, after weights that add up to `mass`."""
        order = np.argsort(self.positions)
        lengths = {len(self.positions), len(self.steps), len(self.masses), len(self.sums)}
        if len(lengths) > 1 or not np.array_equal(self.positions[order], kept_at(now, self.first)):
            raise ValueError(f"candidates must be those of round {now}, each with its sums")
        steps, masses = self.steps[order], self.masses[order]
        if (np.diff(steps, prepend=0, append=step) < 0).any() or (np.diff(masses, prepend=0.0, append=mass) < 0).any():
            raise ValueError("steps and weights of candidates must grow with the rounds, up to those of now")


def combined(evidence: FloatArray, largest: FloatArray, axis: int = 0) -> FloatArray:
    """3 log sum_s exp(e_s / 3), with e twice the log-likelihood ratio of a change at s, along the axis of candidates.

    It weighs up all onsets where the largest e would know one only, as Shiryaev and Roberts do: a small change, which
    many neighbouring onsets explain about as well, shows sooner, and a large one, which one explains best, as soon.
    Likelihood ratios are exp(e / 2); the flatter exp(e / 3) sees smaller changes, at the price of a few steps where a
    change comes so early that there is little before it to compare with.
    Terms are added up one after the other, so that the last bit does not depend on how many runs there are.
    """
    terms = np.exp(_FLAT * (evidence - np.expand_dims(largest, axis)))
    return largest + np.log(np.add.accumulate(terms, axis=axis, out=terms).take(-1, axis=axis)) / _FLAT


def _power_of_two(position: int) -> int:
    """The largest power of two that divides a positive whole number."""
    return position & -position
