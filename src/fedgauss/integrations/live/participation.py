"""Who took part in the rounds of a run, counted."""

from __future__ import annotations

from typing import Any

_MOST = 10_000  # names, so that a hostile log cannot fill the memory
_SHOWN = 500  # rows of the table on the page


class Participation:
    """Rounds so far, and in how many of them each client took part."""

    def __init__(self) -> None:
        self.rounds = 0
        self._full = 0  # rounds in which everybody did
        self._counts: dict[str, int] = {}
        self._last: tuple[str, ...] | None = None

    @property
    def uneven(self) -> bool:
        """Whether some rounds lacked clients."""
        return any(self._full + count < self.rounds for count in self._counts.values())

    def check(self, present: tuple[str, ...] | None) -> None:
        """A ValueError where these would be too many names."""
        fresh = sum(name not in self._counts for name in present or ())
        if len(self._counts) + fresh > _MOST:
            raise ValueError(f"a run must have at most {_MOST:,} client names; this round would exceed it.")

    def add(self, present: tuple[str, ...] | None, everybody: tuple[str, ...] | None) -> None:
        """One more round; `present` is None where everybody took part, `everybody` where names are not known."""
        self.rounds += 1
        for name in everybody or ():
            self._counts.setdefault(name, 0)
        self._last = present
        if present is None:
            self._full += 1
            return
        for name in present:
            self._counts[name] = self._counts.get(name, 0) + 1

    def state(self, n_clients: int | None) -> dict[str, Any]:
        """For the page: those who took part least come first."""
        rows = sorted(((name, self._full + count) for name, count in self._counts.items()), key=lambda row: row[1])
        known = n_clients or len(rows) or None
        last = None if self._last is None else len(self._last)
        missing = [] if self._last is None else sorted(self._counts.keys() - set(self._last))[:_SHOWN]
        return {
            "rounds": self.rounds,
            "of": known,
            "last": known if last is None else last,
            "missing": missing,
            "clients": rows[:_SHOWN],
        }
