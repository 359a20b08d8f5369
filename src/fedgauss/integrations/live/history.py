"""What the page draws of rounds and participation: bounded, and numbered so that it asks for new rounds only."""

from bisect import bisect_left
from collections import deque
from typing import Any, Literal, NamedTuple

from fedgauss.detect.monitor import LONGEST_GAP
from fedgauss.integrations.live.numbered import Numbered
from fedgauss.integrations.live.rounds import MOST_NAMES

_KEPT = 50_000  # rounds; a page draws them at once
_SHOWN = 500  # rows of the table of clients

Kind = Literal["waiting", "warming up", "begun anew", "seen before", "quiet", "travelling", "alarm", "invalid update"]


class OutOfOrder(ValueError):
    """The round, or a later one, is there already."""


class HistoryRow(NamedTuple):
    """One round: its number and step, statistic over threshold (None where there is none), and what came of it."""

    round: int
    step: int
    ratio: float | None
    kind: Kind


class History:
    """The last 50,000 rounds."""

    def __init__(self) -> None:
        self._rows: Numbered[HistoryRow] = Numbered(_KEPT)
        self._taken: deque[tuple[int, int]] = deque(maxlen=_KEPT)  # (step, round) of those that were not refused

    @property
    def count(self) -> int:
        """Rounds so far, those that are no longer kept included."""
        return self._rows.count

    @property
    def last(self) -> tuple[int, int]:
        """Step and round of the last round used, (0, 0) before."""
        return self._taken[-1] if self._taken else (0, 0)

    def check(self, number: int, step: int, seen: int) -> None:
        """A ValueError where a round cannot come next; steps up to `seen` were there before all of these."""
        last_step, last = self.last
        if number <= last or step <= last_step:
            raise OutOfOrder(
                f"rounds must come in order, each once; got round {number} (step {step}) after round {last} "
                f"(step {last_step})."
            )
        if step - max(last_step, seen) > LONGEST_GAP:
            raise ValueError(
                f"steps must lie at most {LONGEST_GAP:,} apart; got round {number} (step {step}) after step "
                f"{max(last_step, seen)}. Is it a time stamp? To begin in the middle of a run, save a monitor after "
                "reset(step=...)."
            )

    def add(self, row: HistoryRow) -> None:
        """One more round."""
        self._rows.add(row)
        if row.kind != "invalid update":
            self._taken.append((row.step, row.round))

    def round_before(self, step: int) -> int | None:
        """The last round used before this step; None where that is not known any more."""
        place = bisect_left(self._taken, (step, 0))
        return self._taken[place - 1][1] if place else None

    def since(self, number: int) -> tuple[int, list[HistoryRow]]:
        """Rows number, number + 1, ... that are still there, and the number of the first of them."""
        return self._rows.since(number)


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
        if len(self._counts) + fresh > MOST_NAMES:
            raise ValueError(f"a run must have at most {MOST_NAMES:,} client names; this round would exceed it.")

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
