"""Rows of a list that grows for ever, thinned so that the whole of it can always be drawn, and as JSON."""

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")


class Thinned(Generic[Row]):
    """Rows whose weights add up to at most `most`: as a list grows, each one comes to stand for two, four, eight rows.

    A page asks for the rows that it lacks, by number. After a thinning numbers mean other rows: `epoch` counts them.

    Parameters
    ----------
    most : int
        The largest sum of weights.
    merge : callable
        What two neighbours become.
    weight : callable, optional
        Of a row; one by default.
    """

    def __init__(self, most: int, merge: Callable[[Row, Row], Row], weight: Callable[[Row], int] = lambda _: 1) -> None:
        self._most, self._merge, self._weight = most, merge, weight
        self._rows: list[Row] = []
        self._held = 0
        self._next: Row  # the row that is filling, where it stands for one or more
        self._filled = 0  # rows that it stands for so far
        self.each = 1  # rows that one stands for
        self.epoch = 0

    @property
    def count(self) -> int:
        """Rows that are held, the one that is filling aside."""
        return len(self._rows)

    def add(self, row: Row) -> None:
        """One more."""
        self.extend(1, lambda _begin, _end: row)

    def extend(self, count: int, merged: Callable[[int, int], Row]) -> None:
        """Several more; merged(i, j) is what the i-th to the last before the j-th of them become together."""
        at = 0
        while at < count:
            end = min(at + self.each - self._filled, count)
            row = merged(at, end)
            self._next = self._merge(self._next, row) if self._filled else row
            self._filled += end - at
            at = end
            if self._filled >= self.each:
                self._rows.append(self._next)
                self._held += self._weight(self._next)
                self._filled = 0
                if self._held > self._most and len(self._rows) > 1:
                    self._halve()

    def _halve(self) -> None:
        rows = self._rows
        if len(rows) % 2:
            self._next, self._filled = rows[-1], self.each
        self._rows = [self._merge(a, b) for a, b in zip(rows[::2], rows[1::2], strict=False)]
        self._held = sum(map(self._weight, self._rows))
        self.each *= 2
        self.epoch += 1

    def since(self, number: int) -> tuple[int, list[Row]]:
        """Rows number, number + 1, ..., and the number of the first of them."""
        begin = number if number <= len(self._rows) else 0
        return begin, self._rows[begin:]


class WrittenRows(Generic[Row]):
    """What `rows` hold, each as the JSON of what is `shown` of it."""

    def __init__(self, rows: Thinned[Row], shown: Callable[[Row], Any]) -> None:
        self._rows, self._shown = rows, shown
        self._epoch, self._texts = rows.epoch, list[str]()

    def since(self, number: int) -> tuple[int, str]:
        """Rows number, number + 1, ... as a list in JSON, and the number of the first of them."""
        if self._epoch != self._rows.epoch:
            self._epoch, self._texts = self._rows.epoch, []
        _, fresh = self._rows.since(len(self._texts))
        self._texts += [json.dumps(self._shown(row), allow_nan=False, separators=(",", ":")) for row in fresh]
        begin = number if number <= len(self._texts) else 0
        return begin, f"[{','.join(self._texts[begin:])}]"
