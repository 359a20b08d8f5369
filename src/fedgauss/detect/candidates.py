"""Which past rounds are still candidates for the onset: O(log t) of them, thinned as they age."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray
from fedgauss.detect.saved import Arrays, Saved

_FINE = 12  # ages up to here keep every round; each doubling of the age then keeps every second one of those left


def is_candidate(position: int, now: int) -> bool:
    """Whether position s is still kept at time t: with age a = t - s, 2^l divides s for the level l of the age.

    Level 0 holds ages 1 to 12 and level l ages in (12 2^(l-1), 12 2^l]. A position that 2^l but no higher
    power divides therefore lives until age 12 2^l, and is never needed again after that.
    """
    age = now - position
    return position > 0 and 1 <= age <= _FINE * _power_of_two(position)


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
        self.count = 0
        self._positions = np.zeros(4, dtype=np.int64)
        self._steps = np.zeros(4, dtype=np.int64)
        self._masses = np.zeros(4)
        self._sums = np.zeros((4, width, replicates))
        self._scratch = np.zeros_like(self._sums)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """The positions s, in no order, (C,)."""
        return self._positions[: self.count]

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The step of SGD at which each position's round ended, (C,)."""
        return self._steps[: self.count]

    @property
    def masses(self) -> FloatArray:
        """The sum of weights up to each position, (C,)."""
        return self._masses[: self.count]

    @property
    def sums(self) -> FloatArray:
        """The prefix sums at each position, (C, width, R)."""
        return self._sums[: self.count]

    @property
    def scratch(self) -> FloatArray:
        """Room for a calculation with `sums`, (C, width, R); its contents mean nothing."""
        return self._scratch[: self.count]

    def keep(self, position: int, step: int, mass: float, total: FloatArray) -> None:
        """Take in the newest position, with its prefix sum, in place of the one whose time is over."""
        if position < self.first:
            return
        slot = self._slot(position)
        self._positions[slot], self._steps[slot], self._masses[slot] = position, step, mass
        self._sums[slot] = total

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        self.count = len(arrays["positions"])
        self._positions = np.array(arrays["positions"], dtype=np.int64)
        self._steps = np.array(arrays["steps"], dtype=np.int64)
        self._masses = np.array(arrays["masses"], dtype=np.float64)
        self._sums = np.array(arrays["sums"], dtype=np.float64)
        self._scratch = np.zeros_like(self._sums)

    def _slot(self, newest: int) -> int:
        over = newest - _FINE * _power_of_two(newest)
        if over >= self.first:
            return int(np.nonzero(self.positions == over)[0][0])
        if self.count == len(self._positions):
            self._grow()
        self.count += 1
        return self.count - 1

    def _grow(self) -> None:
        def longer(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([array, np.zeros((len(array) + 4, *array.shape[1:]), array.dtype)])

        self._positions, self._steps = longer(self._positions), longer(self._steps)
        self._masses, self._sums = longer(self._masses), longer(self._sums)
        self._scratch = np.zeros_like(self._sums)


def _power_of_two(position: int) -> int:
    """The largest power of two that divides a positive whole number."""
    return position & -position
