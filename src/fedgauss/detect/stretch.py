"""A stretch of rounds that bring nothing new, judged at once: what a monitor takes in when it catches up with a log.

Verdicts and states are those of one update after the other, to the bit: every sum is taken in the same order, and what
is left is arithmetic element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import FINE, Candidates, combined
from fedgauss.detect.innovations import Contractions
from fedgauss.detect.updates import PLAUSIBLE

if TYPE_CHECKING:
    from fedgauss.detect.monitor_state import MonitorState

IntArray = npt.NDArray[np.int64]


class RoundsSeen(NamedTuple):
    """n rounds of one run in a row, as channels see them."""

    x: FloatArray  # whitened innovations                                    (n, d)
    weight: FloatArray  # in steps                                           (n,)
    before: IntArray  # the step after which each began                      (n,)
    place: FloatArray  # M A (Y - theta*) at its beginning                   (n, d)


class Ahead(NamedTuple):
    """What a channel would show after each of n rounds; nothing has changed until `take` takes the first k of them."""

    statistic: FloatArray  # (n,)
    take: Callable[[int], None]


class Stretch(NamedTuple):
    """Rounds that were taken: the statistic nearest to its threshold after each, and that threshold; (k,) each."""

    statistic: FloatArray
    threshold: FloatArray
    contractions: Contractions | None = None  # of their steps, where all clients took part with the weights of `lin`


class CandidatesAhead:
    """Which candidates there are after each of n rounds in a row, in which one position enters in each.

    Parameters
    ----------
    kept : Candidates
        Those before the first of these rounds, of one run; at least one.
    position : int
        The first that enters; the others follow.
    steps, masses, sums : (n,), (n,), (n, width) arrays
        Of the positions that enter.
    """

    def __init__(self, kept: Candidates, position: int, steps: IntArray, masses: FloatArray, sums: FloatArray) -> None:
        self._kept, self._position = kept, position
        self._steps, self._masses, self._sums = steps, masses, sums
        slots = self._slots(len(steps))
        held = len(kept.positions)
        count = max(held, int(slots.max()) + 1)
        written = np.full((len(slots), count), -1)
        written[np.arange(len(slots)), slots] = np.arange(len(slots))
        self._writer = np.maximum.accumulate(written, axis=0)  # the round that filled a slot last; -1 for none of these
        self.valid: BoolArray = (self._writer >= 0) | (np.arange(count) < held)
        self._index = np.where(self._writer >= 0, count + self._writer, np.arange(count))
        self._full = bool(self.valid.all())
        self._room = count - held

    def _slots(self, n: int) -> IntArray:
        """Where the position of each round goes: as in `Candidates.keep`.

        A position takes the slot of the one 12 2^l before it, 2^l its largest power of two, and so that of the last
        such one before these rounds; where that never entered, the first of these rounds got a new one.
        """
        kept, begin = self._kept, self._position
        position = np.arange(begin, begin + n)
        period = FINE * (position & -position)
        past = position - period * ((position - begin) // period + 1)  # in the period before these rounds
        order = np.argsort(kept.positions)
        slots = order.take(np.searchsorted(kept.positions, past, sorter=order), mode="clip")
        fresh = past < kept.first
        first = past + period  # of these rounds, with the same slot
        opened = len(order) + np.cumsum(fresh & (first == position)) - 1
        slots[fresh] = opened[first[fresh] - begin]
        return slots

    @property
    def masses(self) -> FloatArray:
        """Of every slot after each round, (n, C)."""
        return self.gathered(np.concatenate([self._kept.masses, np.zeros(self._room), self._masses]))

    @property
    def sums(self) -> FloatArray:
        """Prefix sums, (n, C, width)."""
        room = np.zeros((self._room, self._sums.shape[1]))
        return self.gathered(np.concatenate([self._kept.sums[..., 0], room, self._sums]))

    def gathered(self, entries: FloatArray) -> FloatArray:
        """Of every slot after each round, from what belongs to those kept, to empty slots, and to those that enter."""
        return entries.take(self._index, axis=0, mode="clip")  # no index is out of bounds, and looking costs time

    def combined(self, evidence: FloatArray) -> FloatArray:
        """`candidates.combined` of those that there are after each round, (n,)."""
        if not self._full:
            evidence = np.where(self.valid, evidence, -np.inf)
        return combined(evidence, evidence.max(axis=1), axis=1)

    def take(self, k: int) -> None:
        """Leave the candidates as they are after k rounds."""
        self.fill(self._kept, k, self._steps, self._masses, self._sums)

    def fill(self, kept: Candidates, k: int, steps: IntArray, masses: FloatArray, sums: FloatArray) -> None:
        """The same for others that hold the same positions in the same slots."""
        count = int(self.valid[k - 1].sum())  # slots fill up from the first
        slots = np.flatnonzero(self._writer[k - 1, :count] >= 0)
        rounds = self._writer[k - 1, slots]
        kept.positions = _with(kept.positions, count, slots, self._position + rounds)
        kept.steps = _with(kept.steps, count, slots, steps[rounds])
        kept.masses = _with(kept.masses, count, slots, masses[rounds])
        kept.sums = _with(kept.sums, count, slots, sums[rounds][..., None])


def _with(old: npt.NDArray[Any], count: int, slots: IntArray, new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A longer copy, with new values in some places."""
    longer = np.zeros((count, *old.shape[1:]), old.dtype)
    longer[: len(old)] = old
    longer[slots] = new
    return longer


def running(first: float | FloatArray, terms: FloatArray) -> FloatArray:
    """first, first + terms[0], first + terms[0] + terms[1], ..., added one after the other, (n + 1, ...)."""
    return np.add.accumulate(np.concatenate([np.asarray(first)[None], terms]), axis=0)


def take_stretch(monitor: MonitorState, means: FloatArray, alarms: bool) -> Stretch:
    """Take in rounds as `Monitor.update` would, one after the other, as long as they bring nothing new.

    Parameters
    ----------
    monitor : Monitor
        That is fed.
    means : (n, d) array
        Y after rounds of `sync_every` steps each, in which everybody took part.
    alarms : bool
        Whether the statistic is to be above its threshold after each of them, as it may be once an alarm is on.

    Returns
    -------
    Stretch
        Of the k <= n rounds that were taken. The next is for `Monitor.update`: it alarms, is withheld or refused, or
        the monitor is one that must be fed one round at a time.
    """
    nothing = Stretch(np.zeros(0), np.zeros(0))
    watch, parts, tau = monitor.watch, monitor.innovations, monitor.sync_every
    if monitor.last is None or watch.to_drop or monitor.uploads is not None or alarms > (monitor.alarm is not None):
        return nothing
    previous = np.concatenate([monitor.last[None], means[:-1]])
    near = np.isfinite(means).all(axis=1) & (parts.distances(means, previous) < PLAUSIBLE / 2)
    n = first_false(near)
    before = monitor.step + tau * np.arange(n)
    if not n or (blocks := parts.blocks(before, tau, monitor.weights)) is None:
        return nothing
    x, place = blocks.whiten(previous[:n], means[:n], parts.lin.optimum), parts.places(previous[:n])
    seen = RoundsSeen(x, blocks.weight, before, place)
    ahead = [channel.ahead(seen) for channel in watch.channels]
    known = [one for one in ahead if one is not None]
    if len(known) < len(ahead):
        return nothing
    tops = np.stack([one.statistic for one in known])
    ends = monitor.boundary.ends
    epoch = np.minimum(np.searchsorted(ends, before + tau - monitor.origin_step), len(ends) - 1)
    bounds = np.stack([level[epoch] for level in monitor.boundary.levels.values()])
    best = (tops / bounds).argmax(axis=0)
    statistic, threshold = tops[best, np.arange(n)], bounds[best, np.arange(n)]
    k = first_false(np.isfinite(tops).all(axis=0) & ((statistic > threshold) == alarms))
    if not k:
        return nothing
    for one in known:
        one.take(k)
    watch.rounds += k
    monitor.last, monitor.step, monitor.round = means[k - 1].copy(), monitor.step + k * tau, monitor.round + k
    squares, product = blocks.contractions
    plain = Contractions(squares[:k], product[:k]) if monitor.weights is None else None
    return Stretch(statistic[:k], threshold[:k], plain)


def first_false(given: BoolArray) -> int:
    """How many of the first are true."""
    return len(given) if given.all() else int(given.argmin())
