"""Rows as JSON, written once: a page that is opened asks for all of them, and many pages may be."""

import json
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

Row = TypeVar("Row", covariant=True)


class Numbered(Protocol[Row]):
    """Rows that only grow in number, until all of them are others and `epoch` is another: `History`, `Thinned`."""

    @property
    def epoch(self) -> int:
        """How often all rows have become others."""

    def since(self, number: int, /) -> tuple[int, Sequence[Row]]:
        """Rows number, number + 1, ..., and the number of the first of them."""


class WrittenRows(Generic[Row]):
    """What `rows` hold, each as the JSON of what is `shown` of it."""

    def __init__(self, rows: Numbered[Row], shown: Callable[[Row], Any]) -> None:
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
