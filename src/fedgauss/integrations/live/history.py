"""What a page draws of rounds and clients: bounded, and numbered so that it asks for new rounds only."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fedgauss._types import FloatArray
from fedgauss.integrations.live.thinned import Thinned

_CELLS = 1_000_000  # clients in rounds that a page draws
_LEAST = 50  # cells that a round counts for: there are at most 20,000 rounds, or twos, fours, ... of rounds
_LISTED = 30  # names in a sentence
_STRETCHES = 50_000  # of rounds with one gap

Kind = Literal[
    "waiting", "warming up", "begun anew", "seen before", "quiet", "travelling", "alarm", "invalid update",
    "already taken", "noted",
]  # fmt: skip


class OutOfOrder(ValueError):
    """The round, or a later one, is there already."""


class HistoryRow(NamedTuple):
    """One round: its number and step, statistic over threshold (None where there is none), and what came of it.

    Where clients are judged one by one: who was there, as numbers of clients, and how surprising each was, None where
    it was not judged.
    """

    round: int
    step: int
    ratio: float | None
    kind: Kind
    clients: tuple[int, ...] = ()
    surprises: tuple[float | None, ...] = ()


def _more_telling(one: HistoryRow, other: HistoryRow) -> HistoryRow:
    """Of two rounds, what a drawing must not lose: an invalid update, or else the larger ratio; larger surprises."""
    if "invalid update" in (one.kind, other.kind):
        row = one if one.kind == "invalid update" else other
    else:
        row = one if other.ratio is None or (one.ratio is not None and one.ratio > other.ratio) else other
    if not (one.clients or other.clients):
        return row
    largest: dict[int, float | None] = dict(zip(one.clients, one.surprises, strict=True))
    for client, surprise in zip(other.clients, other.surprises, strict=True):
        before = largest.get(client)
        largest[client] = before if surprise is None or (before is not None and before > surprise) else surprise
    return HistoryRow(one.round, one.step, *row[2:4], tuple(largest), tuple(largest.values()))


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


class History(Thinned[HistoryRow]):
    """All rounds, thinned where there are many."""

    def __init__(self) -> None:
        super().__init__(_CELLS, _more_telling, lambda row: max(len(row.clients), _LEAST))
        self._numbers = RoundNumbers()  # of those that were not refused
        self.invalid = 0  # updates

    @property
    def last(self) -> tuple[int, int]:
        """Step and round of the last round used, (0, 0) before."""
        return self._numbers.last

    def check(self, number: int, step: int, seen: int, longest: int) -> None:
        """A ValueError where a round cannot come next; steps up to `seen` were there before all of these."""
        last_step, last = self.last
        if number <= last or step <= last_step:
            raise OutOfOrder(
                f"rounds must come in order, each once; got round {number} (step {step}) after round {last} "
                f"(step {last_step})."
            )
        if step - max(last_step, seen) > longest:
            raise ValueError(
                f"steps must lie at most {longest:,} apart; got round {number} (step {step}) after step "
                f"{max(last_step, seen)}. Is it a time stamp? To begin in the middle of a run, save a monitor after "
                "reset(step=...)."
            )

    def add(self, row: HistoryRow) -> None:
        """One more round."""
        super().add(row)
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

        self.extend(count, most_telling)
        self._numbers.add_many(count, steps)

    def round_before(self, step: int) -> int | None:
        """The last round used before this step; None where that is not known any more."""
        return self._numbers.before(step)


@dataclass
class Record:
    """What is remembered of a client."""

    rounds: int = 0
    last: float | None = None  # surprise when it was judged last
    largest: float | None = None
    at: int = 0  # the round of the largest


class Roll:
    """Clients by name, in the order in which they came: rounds of each, and its surprises."""

    def __init__(self, most: int, names: Iterable[object] = ()) -> None:
        self._most, self.rounds = most, 0
        self._full = 0  # rounds in which everybody took part
        self.records: list[Record] = []
        self.numbered: dict[str, int] = {}
        self._last: set[str] | None = None
        self.know(names)

    def know(self, names: Iterable[object]) -> None:
        """There are such clients."""
        for name in names:
            if str(name) not in self.numbered:
                self.numbered[str(name)] = len(self.records)
                self.records.append(Record())

    @property
    def uneven(self) -> bool:
        """Whether some rounds lacked clients."""
        return any(self._full + record.rounds < self.rounds for record in self.records)

    def check(self, present: Iterable[object] | None) -> None:
        """A ValueError where these would be too many names."""
        fresh = sum(str(name) not in self.numbered for name in present or ())
        if len(self.numbered) + fresh > self._most:
            raise ValueError(f"a run must have at most {self._most:,} client names; this round would exceed it.")

    def add(self, number: int, present: Collection[object] | None, surprises: Mapping[Any, float]) -> tuple[int, ...]:
        """One more round, and who took part, None where everybody did; returns the numbers of those named."""
        self.rounds += 1
        if present is None:
            self._full, self._last = self._full + 1, None
            return ()
        self.know(present)
        self._last = {str(name) for name in present}
        here = tuple(self.numbered[str(name)] for name in present)
        for name, k in zip(present, here, strict=True):
            record, surprise = self.records[k], surprises.get(name)
            record.rounds += 1
            if surprise is not None:
                record.last = surprise
                if record.largest is None or surprise > record.largest:
                    record.largest, record.at = surprise, number
        return here

    def add_many(self, count: int) -> None:
        """Rounds in which everybody took part."""
        self.rounds, self._full, self._last = self.rounds + count, self._full + count, None

    def rows(self) -> list[tuple[str, int, Record]]:
        """Name and rounds of every client, and what else is remembered."""
        return [(name, self._full + self.records[k].rounds, self.records[k]) for name, k in self.numbered.items()]

    def last_words(self, of: int | None) -> str:
        """Who took part in the last round; `of` is how many there are in all, where that is known."""
        known = of or len(self.numbered)
        if not self.rounds or not known:
            return f"{self.rounds} rounds; the log does not name clients." if self.rounds else "No round yet."
        here = known if self._last is None else len(self._last)
        away = [] if self._last is None else sorted(self.numbered.keys() - self._last)
        more = f", and {len(away) - _LISTED} more" if len(away) > _LISTED else ""
        absent = f" Missing: {', '.join(away[:_LISTED])}{more}." if away else ""
        return f"Last round: {here} of {known} clients.{absent}"
