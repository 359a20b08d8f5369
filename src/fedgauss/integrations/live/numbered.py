"""The newest rows of a list that grows for ever, numbered so that a page asks only for those it lacks."""

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Generic, TypeVar

Row = TypeVar("Row")


class Numbered(Generic[Row]):
    """Rows whose weights add up to at most `most`; the oldest are dropped."""

    def __init__(self, most: int, weight: Callable[[Row], int] = lambda _: 1) -> None:
        self._most, self._weight, self._held = most, weight, 0
        self._rows: deque[Row] = deque()
        self.count = 0

    def add(self, row: Row) -> None:
        """One more."""
        self._rows.append(row)
        self.count += 1
        self._held += self._weight(row)
        while self._held > self._most:
            self._held -= self._weight(self._rows.popleft())

    def since(self, number: int) -> tuple[int, list[Row]]:
        """Rows number, number + 1, ... that are still there, and the number of the first of them."""
        first = self.count - len(self._rows)
        begin = max(number, first) if number <= self.count else first
        return begin, list(islice(self._rows, begin - first, None))
