"""Arrays of earlier rounds, for a rollback: O(log t) of them, the denser the nearer."""

from __future__ import annotations

from collections.abc import Mapping

from flwr.app import Array, ArrayRecord

from fedgauss.integrations.flower.alarm import Good

_DENSE = 32  # rounds behind the last that are all kept; twice as far back every second is, and so on


class KeptArrays:
    """A round r is kept at round t when 2^i divides it, with i the smallest such that t - r < 32 * 2^i.

    So the nearest kept round before any other lies within 1/16 of its distance from the last.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, dict[str, Array]] = {}

    def add(self, number: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a round, and let go of those that are too many by now."""
        self._arrays[number] = dict(arrays.items())
        self._arrays = {r: held for r, held in self._arrays.items() if r % _spacing(number - r) == 0}

    def last(self) -> Good:
        """The newest."""
        return self.before(max(self._arrays))

    def before(self, number: int) -> Good:
        """The newest that are not from after this round; the oldest when there is none."""
        earlier = [r for r in self._arrays if r <= number] or [min(self._arrays)]
        return Good(max(earlier), ArrayRecord(dict(self._arrays[max(earlier)])))

    def __len__(self) -> int:
        return len(self._arrays)


def _spacing(distance: int) -> int:
    """2^i with the smallest i such that distance < 32 * 2^i."""
    return 1 << max((distance // _DENSE).bit_length(), 0)
