"""What an alarm hands over: the verdict, and arrays of earlier rounds to go back to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flwr.app import Array, ArrayRecord

from fedgauss.detect.verdict import Verdict

_DENSE = 32  # rounds behind the last that are all kept; twice as far back every second is, and so on


class GoodRound(NamedTuple):
    """Arrays of a round without an alarm. Rounds are counted as the monitor does, without refused ones."""

    round: int
    arrays: ArrayRecord


class Alarmed(Exception):
    """The monitor's alarm; `Monitored` raises it, or gives it to a callback.

    Attributes
    ----------
    verdict : Verdict
        What the monitor said.
    server_round : int
        Flower's round in which it did.
    rollback : GoodRound
        The last arrays kept from before the onset.
    last : GoodRound
        The last arrays from before the alarm, which include what happened between onset and alarm.
    """

    def __init__(self, verdict: Verdict, server_round: int, rollback: GoodRound, last: GoodRound) -> None:
        super().__init__(str(verdict))
        self.verdict, self.server_round = verdict, server_round
        self.rollback, self.last = rollback, last


class KeptArrays:
    """Arrays of O(log t) earlier rounds, the denser the nearer.

    A round r is kept at round t when 2^i divides it, with i the smallest such that t - r < 32 * 2^i. So the nearest
    kept round before any other lies within 1/16 of its distance from the last.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, dict[str, Array]] = {}

    def add(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a round, and drop those that are no longer needed."""
        self._arrays[number] = dict(arrays.items())
        self._arrays = {r: held for r, held in self._arrays.items() if r % _spacing(number - r) == 0}

    def last(self) -> GoodRound:
        """The newest."""
        return self.before(max(self._arrays))

    def before(self, number: int) -> GoodRound:
        """The newest that are not from after this round; the oldest when there is none."""
        earlier = [r for r in self._arrays if r <= number] or [min(self._arrays)]
        return GoodRound(max(earlier), ArrayRecord(dict(self._arrays[max(earlier)])))

    def __len__(self) -> int:
        return len(self._arrays)


def _spacing(distance: int) -> int:
    """2^i with the smallest i such that distance < 32 * 2^i."""
    return 1 << max((distance // _DENSE).bit_length(), 0)
