"""Clients by name: what may be a name, which of the monitor's clients it means, and who took part in rounds."""

import re
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedgauss._types import FloatArray

_LONGEST = 200  # characters of a name
_MOST = 10_000  # names in a run, so that a hostile log cannot fill the memory
_SHOWN = 500  # rows of the table on the page


def short(value: Any) -> str:
    """A foreign value in few plain characters, for a message."""
    return ascii(_SHORT.repr(value))[1:-1]


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict = 2, 3, 3


def checked_names(field: str, value: Any) -> tuple[str, ...]:
    """Names from a list of words or whole numbers, each there once. Anything printable may be a name."""
    if not isinstance(value, list) or not value:
        raise ValueError(f"{field} must be a list of client names, at least one; got {short(value)}.")
    if len(value) > _MOST:
        raise ValueError(f"{field} must be at most {_MOST:,} clients; got {len(value):,}.")
    names = tuple(_name(field, name) for name in value)
    if len(set(names)) != len(names):
        raise ValueError(f"{field} must name each client once; one is there twice.")
    return names


def _name(field: str, value: Any) -> str:
    if type(value) is int and abs(value) < 2**64:
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        raise ValueError(f"{field} must be words of 1 to {_LONGEST} printable characters; got {short(value)}.")
    return value


def with_name(note: str, everybody: Sequence[str] | None) -> str:
    """The monitor's words with a client's name in place of its number."""
    if everybody is None:
        return note
    return re.sub(r"(?<=client )\d+", lambda found: short(everybody[int(found[0])]), note)


class ClientNames:
    """Which name is which of the monitor's K clients: the order of all_clients, or of the first complete uploads.

    Who took part may be written in any order, and says nothing of it.
    """

    def __init__(self, n_clients: int) -> None:
        self.n_clients = n_clients
        self.names: tuple[str, ...] | None = None

    def called(self, *lists: Sequence[str] | None) -> tuple[str, ...] | None:
        """The names of all clients as known after these lists; nothing is remembered."""
        if self.names is not None:
            return self.names
        return next((tuple(names) for names in lists if names is not None and len(names) == self.n_clients), None)

    def places(self, everybody: tuple[str, ...] | None, names: Sequence[str]) -> list[int]:
        """Where these clients stand in the monitor's order."""
        if len(names) > self.n_clients:
            raise ValueError(f"a round must name at most the monitor's {self.n_clients} clients; got {len(names)}.")
        if everybody is None:
            raise ValueError(
                f"who is who must be known before a round names some clients only; this one names {len(names)} of "
                f"{self.n_clients}. Give all_clients, in the monitor's order, with the first round."
            )
        known = {name: k for k, name in enumerate(everybody)}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"clients must be among the {self.n_clients} known ones; {short(unknown[0])} is not.")
        return [known[name] for name in names]

    def table(self, everybody: tuple[str, ...] | None, rows: dict[str, FloatArray], dim: int) -> FloatArray:
        """What clients uploaded, (K, d), NaN for those who did not."""
        held = np.full((self.n_clients, dim), np.nan)
        for k, (name, row) in zip(self.places(everybody, [*rows]), rows.items(), strict=True):
            if row.shape != (dim,):
                raise ValueError(f"client {short(name)} must upload {dim} numbers, one a parameter; got {len(row)}.")
            held[k] = row
        return held


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
