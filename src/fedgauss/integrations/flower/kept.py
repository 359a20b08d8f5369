"""Arrays of earlier rounds to go back to, and what a strategy remembered with them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

_DENSE = 32  # rounds behind the last that are all kept; twice as far back every second is, and so on


class GoodRound(NamedTuple):
    """Arrays of a round without an alarm. Rounds are counted as the monitor does, without refused ones."""

    round: int
    arrays: ArrayRecord


class Memory:
    """What a strategy holds in arrays, such as the momentum of a server's optimiser; wrappers' included.

    Only references are kept: strategies put new arrays in the place of old ones. What one changes in place is not
    brought back, and neither are plain numbers, such as counts of rounds.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._held = [(part, dict(vars(part))) for part in nested(strategy)]

    def bring_back(self) -> None:
        """Give the strategy what it held."""
        for part, before in self._held:
            now = vars(part)
            for name in now.keys() | before.keys():
                if not (_has_arrays(now.get(name)) or _has_arrays(before.get(name))):
                    continue
                if name in before:
                    now[name] = before[name]
                else:
                    del now[name]


def nested(strategy: Strategy) -> Iterator[Strategy]:
    """A strategy and those that it wraps, the innermost last."""
    inner: Any = strategy
    while isinstance(inner, Strategy):
        yield inner
        inner = getattr(inner, "strategy", None)


def _has_arrays(value: Any) -> bool:
    if isinstance(value, Mapping):  # an ArrayRecord is one, too
        return any(_has_arrays(part) for part in value.values())
    if isinstance(value, list | tuple):
        return any(_has_arrays(part) for part in value)
    return isinstance(value, Array) or hasattr(value, "__array__")


class KeptArrays:
    """Arrays of O(log t) earlier rounds, the denser the nearer.

    A round r is kept at round t when 2^i divides it, with i the smallest such that t - r < 32 * 2^i. So the nearest
    kept round before any other lies within 1/16 of its distance from the last.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, dict[str, Array]] = {}
        self._memories: dict[int, Memory] = {}

    def add(self, number: int, arrays: Mapping[str, Array], memory: Memory | None = None) -> None:
        """Keep the arrays of a round, and drop those that are no longer needed."""
        self._arrays[number] = dict(arrays.items())
        if memory is not None:
            self._memories[number] = memory
        spacing = {r: 1 << ((number - r) // _DENSE).bit_length() for r in self._arrays}
        self._drop(r for r in spacing if r % spacing[r])

    def back_to(self, number: int) -> GoodRound:
        """`before`, with later rounds dropped, and the strategy's memory as it was then."""
        good = self.before(number)
        self._drop(r for r in self._arrays if r > good.round)
        if good.round in self._memories:
            self._memories[good.round].bring_back()
        return good

    def _drop(self, rounds: Iterator[int]) -> None:
        for number in list(rounds):
            del self._arrays[number]
            self._memories.pop(number, None)

    def last(self) -> GoodRound:
        """The newest."""
        return self.before(max(self._arrays))

    def before(self, number: int) -> GoodRound:
        """The newest that are not from after this round; the oldest when there is none."""
        earlier = [r for r in self._arrays if r <= number] or [min(self._arrays)]
        return GoodRound(max(earlier), ArrayRecord(dict(self._arrays[max(earlier)])))

    def __len__(self) -> int:
        return len(self._arrays)
