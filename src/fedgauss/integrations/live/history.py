"""What the page draws of rounds and participation: bounded, and numbered so that it asks for new rounds only."""

from bisect import bisect_right
from typing import Any, Literal, NamedTuple

from fedgauss._types import FloatArray
from fedgauss.detect.updates import LONGEST_GAP
from fedgauss.integrations.live.rounds import MOST_NAMES
from fedgauss.integrations.live.thinned import Thinned

_KEPT = 20_000  # rounds, or twos, fours, ... of rounds; a page draws them at once
_STRETCHES = 50_000  # of rounds with one gap
_SHOWN = 500  # rows of the table of clients

Kind = Literal[
    "waiting", "warming up", "begun anew", "seen before", "quiet", "travelling", "alarm", "invalid update",
    "already taken", "noted",
]  # fmt: skip


class OutOfOrder(ValueError):
    """The round, or a later one, is there already."""


class HistoryRow(NamedTuple):
    """One round: its number and step, statistic over threshold (None where there is none), and what came of it."""

    round: int
    step: int
    ratio: float | None
    kind: Kind


def _more_telling(one: HistoryRow, other: HistoryRow) -> HistoryRow:
    """Of two rounds, the one that a drawing must not lose: an invalid update, or else the larger ratio."""
    if "invalid update" in (one.kind, other.kind):
        return one if one.kind == "invalid update" else other
    return one if other.ratio is None or (one.ratio is not None and one.ratio > other.ratio) else other


class RoundNumbers:
    """Which round ended at which step, for the whole run: stretches of rounds that are equally far apart."""

    def __init__(self) -> None:
        self._first_steps: list[int] = []
        self._stretches: list[list[int]] = []  # first round, steps and rounds from one to the next, rounds in it
        self.last = (0, 0)  # step and round

    def add(self, step: int, number: int) -> None:
        """One more round, after the last."""
        gap = (step - self.last[0], number - self.last[1])
        self.last = (step, number)
        if self._stretches:
            stretch = self._stretches[-1]
            if stretch[3] == 1:
                stretch[1:] = [*gap, 2]
                return
            if (stretch[1], stretch[2]) == gap:
                stretch[3] += 1
                return
        if len(self._stretches) >= _STRETCHES:
            del self._stretches[: _STRETCHES // 2], self._first_steps[: _STRETCHES // 2]
        self._first_steps.append(step)
        self._stretches.append([number, 1, 1, 1])

    def add_many(self, count: int, steps: int) -> None:
        """Rounds that follow the last one, numbered on, so many steps apart."""
        step, number = self.last
        for j in range(1, min(count, 2) + 1):  # the second begins a stretch with this gap, or goes on with one
            self.add(step + j * steps, number + j)
        self._stretches[-1][3] += max(count - 2, 0)
        self.last = (step + count * steps, number + count)

    def before(self, step: int) -> int | None:
        """The last round before this step; None where that is not known any more."""
        place = bisect_right(self._first_steps, step - 1) - 1
        if place < 0:
            return None
        number, steps, rounds, count = self._stretches[place]
        return number + rounds * min((step - 1 - self._first_steps[place]) // steps, count - 1)


class History:
    """All rounds, thinned where there are many."""

    def __init__(self) -> None:
        self._rows: Thinned[HistoryRow] = Thinned(_KEPT, _more_telling)
        self._numbers = RoundNumbers()  # of those that were not refused
        self.invalid = 0  # updates

    @property
    def count(self) -> int:
        """Rows that are held."""
        return self._rows.count

    @property
    def epoch(self) -> int:
        """How often they were thinned."""
        return self._rows.epoch

    @property
    def each(self) -> int:
        """Rounds that a row stands for."""
        return self._rows.each

    @property
    def last(self) -> tuple[int, int]:
        """Step and round of the last round used, (0, 0) before."""
        return self._numbers.last

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
        if row.kind == "invalid update":
            self.invalid += 1
        else:
            self._numbers.add(row.step, row.round)

    def add_many(self, count: int, ratios: FloatArray | None, steps: int, kind: Kind) -> None:
        """Rounds that follow the last one, so many steps apart, all of one kind that is not invalid."""
        step, number = self.last

        def most_telling(begin: int, end: int) -> HistoryRow:
            """As `_more_telling` has it of one after the other: of equal ratios the last."""
            j = begin if ratios is None else end - 1 - int(ratios[begin:end][::-1].argmax())
            ratio = None if ratios is None else float(ratios[j])
            return HistoryRow(number + 1 + j, step + steps * (1 + j), ratio, kind)

        self._rows.extend(count, most_telling)
        self._numbers.add_many(count, steps)

    def round_before(self, step: int) -> int | None:
        """The last round used before this step; None where that is not known any more."""
        return self._numbers.before(step)

    def since(self, number: int) -> tuple[int, list[HistoryRow]]:
        """Rows number, number + 1, ..., and the number of the first of them."""
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

    def add_many(self, count: int, everybody: tuple[str, ...] | None) -> None:
        """Rounds in which everybody took part."""
        self.add(None, everybody)
        self.rounds += count - 1
        self._full += count - 1

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
