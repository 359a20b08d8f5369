"""What a client monitor remembers to show: how surprising clients were, round by round, and its alarms.

No verdict depends on it. Of a client in a round it keeps two bytes, and of rounds the last thousand.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss.detect.clients.verdict import ClientVerdict, Name

Tenths = npt.NDArray[np.int16]

ABSENT, NOT_JUDGED = -2, -1  # in place of tenths of a surprise
_MOST_ROUNDS = 1_000
_MOST_TENTHS = 3_000


class SeenAlarm(NamedTuple):
    """The first verdict of an alarm."""

    round: int
    onset: int
    clients: tuple[Name, ...]


class SeenRounds:
    """The last thousand rounds, as tenths of the surprise of every client, and all alarms."""

    def __init__(self) -> None:
        self.alarms: list[SeenAlarm] = []
        self._rounds: deque[tuple[int, Tenths]] = deque(maxlen=_MOST_ROUNDS)

    def add(self, verdict: ClientVerdict, present: Mapping[Name, int]) -> None:
        """Remember a round, with the numbers of the clients that were there."""
        row = np.full(max(present.values(), default=-1) + 1, ABSENT, dtype=np.int16)
        for name, number in present.items():
            row[number] = _tenths(verdict.surprises.get(name))
        self._rounds.append((verdict.round, row))

    def add_alarm(self, alarm: ClientVerdict) -> None:
        """Remember the first verdict of an alarm."""
        self.alarms.append(SeenAlarm(alarm.round, alarm.onset or alarm.round, alarm.suspects))

    @property
    def rounds(self) -> npt.NDArray[np.int64]:
        """Their numbers, (T,)."""
        return np.array([number for number, _ in self._rounds], dtype=np.int64)

    def tenths(self, n_clients: int) -> Tenths:
        """Tenths of surprises, or NOT_JUDGED or ABSENT, (T, K)."""
        table = np.full((len(self._rounds), n_clients), ABSENT, dtype=np.int16)
        for t, (_, row) in enumerate(self._rounds):
            table[t, : len(row)] = row
        return table

    def words(self) -> list[Any]:
        """The alarms, for a file."""
        return [[alarm.round, alarm.onset, list(alarm.clients)] for alarm in self.alarms]

    @classmethod
    def from_state(
        cls, alarms: Iterable[tuple[Any, ...]], rounds: npt.NDArray[Any], table: npt.NDArray[Any], n_clients: int
    ) -> SeenRounds:
        """What `words`, `rounds` and `tenths` took apart, with alarms that were checked; else a ValueError."""
        seen = cls()
        fits = table.shape == (rounds.size, n_clients) and rounds.ndim == 1 and rounds.size <= _MOST_ROUNDS
        kinds = rounds.dtype == np.int64 and table.dtype == np.int16
        if not fits or not kinds or rounds.min(initial=0) < 0 or (np.diff(rounds) <= 0).any():
            raise ValueError("rounds seen must be in order, each with a number (int16) for every client")
        if table.size and (table.min() < ABSENT or table.max() > _MOST_TENTHS):
            raise ValueError(f"surprises of rounds seen must lie in {ABSENT}, ..., {_MOST_TENTHS} tenths")
        seen._rounds.extend(zip(rounds.tolist(), table, strict=True))
        seen.alarms = [SeenAlarm(*alarm) for alarm in alarms]
        return seen


def _tenths(surprise: float | None) -> int:
    if surprise is None or not math.isfinite(surprise):
        return NOT_JUDGED
    return min(round(10 * surprise), _MOST_TENTHS)
