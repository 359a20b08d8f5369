"""A run whose clients are watched: lines of its log go in, checked and in order; what the page shows comes out."""

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients import ClientMonitor, ClientVerdict, Compared
from fedgauss.detect.clients.verdict import Name
from fedgauss.detect.clients.watch import FEWEST
from fedgauss.integrations.live.client_lines import MOST_CLIENTS, ClientLine, client_line_from_json
from fedgauss.integrations.live.followed import FollowedRun, Outcome
from fedgauss.integrations.live.gaps import Gaps
from fedgauss.integrations.live.history import Kind, OutOfOrder
from fedgauss.integrations.live.rounds import short
from fedgauss.integrations.live.thinned import Thinned

_CELLS = 1_000_000  # clients in rounds that a page draws
_LEAST = 100  # cells that a round counts for, so that ten clients have 10,000 rounds
_NUMBERS = 50_000  # of accuracy and loss
_LONGEST_GAP = 10_000  # rounds: behind one that is far off, nothing of alpha would be left
_ALARMS = 200  # that a page lists
_LATEST = 30  # rounds in which somebody should have been judged: twelve are needed, or ten of a client that joins


class CellRow(NamedTuple):
    """One round: who was there, as numbers of clients, and how surprising each was; None where it was not judged."""

    round: int
    kind: Kind
    clients: tuple[int, ...]
    surprises: tuple[float | None, ...]


class ShownNumbers(NamedTuple):
    """Accuracy and loss after a round, as far as they are known."""

    round: int
    values: Mapping[str, float]


def _merged(one: CellRow, other: CellRow) -> CellRow:
    """Two rounds as one: who was there in either, with the larger surprise."""
    largest: dict[int, float | None] = dict(zip(one.clients, one.surprises, strict=True))
    for client, surprise in zip(other.clients, other.surprises, strict=True):
        before = largest.get(client)
        largest[client] = before if surprise is None or (before is not None and before > surprise) else surprise
    return CellRow(one.round, other.kind, tuple(largest), tuple(largest.values()))


def _later(one: ShownNumbers, other: ShownNumbers) -> ShownNumbers:
    return ShownNumbers(other.round, {**one.values, **other.values})


@dataclass
class Record:
    """What is remembered of a client."""

    rounds: int = 0
    last: float | None = None  # surprise when it was judged last
    largest: float | None = None
    at: int = 0  # the round of the largest


class ClientRun(FollowedRun[ClientLine]):
    """Feeds a `ClientMonitor` with the lines of a log, and keeps what a page shows of the run.

    A line that cannot be right is a ValueError, and nothing has changed then. Rounds that a restored monitor has seen
    are counted but not judged again.
    """

    def __init__(self, monitor: ClientMonitor) -> None:
        self.monitor = monitor
        super().__init__()
        self.seen_before = monitor.round
        self.last = 0  # round
        self.gaps = Gaps((1,), (self.seen_before,))
        self.cells: Thinned[CellRow] = Thinned(_CELLS, _merged, lambda row: max(len(row.clients), _LEAST))
        self.numbers: Thinned[ShownNumbers] = Thinned(_NUMBERS, _later)
        self.numbered = {str(name): k for k, name in enumerate(monitor.clients)}
        self.records = [Record() for _ in monitor.clients]
        self.alarms: deque[ClientVerdict] = deque([] if monitor.alarm is None else [monitor.alarm], maxlen=_ALARMS)
        self.verdict: ClientVerdict | None = None

    @property
    def alarm(self) -> ClientVerdict | None:
        """The first verdict of the alarm that is on."""
        return self.monitor.alarm

    @property
    def id(self) -> str:
        """Changes when what a page has seen is thinned."""
        return f"{self._id}-{self.cells.epoch}-{self.numbers.epoch}"

    @property
    def round(self) -> int | None:
        """The last round taken; None before the first."""
        return self.last or self.seen_before or None

    def read(self, text: bytes) -> ClientLine:
        """What a line of its log means."""
        return client_line_from_json(text, self.monitor.features)

    def number_of(self, line: ClientLine) -> int | None:
        """The number of the round that a line tells of; None where it tells of none."""
        return line.number if line.moves is not None or line.refused else None

    def _taken(self, line: ClientLine) -> Outcome:
        """Judge a round, or remember what a line says of one."""
        with self.lock:
            if line.settings is not None:
                self._set(line)
                return Outcome("noted", "noted: the settings.")
            if line.refused:
                self.refusals.add(f"round {line.number}, by the run itself: {line.refused}")
                self._invalid(line.number, f"The run refused it: {line.refused}")
            elif line.moves is None:
                self._show(line, max(self.last, self.seen_before))
                return Outcome("noted", f"noted: {' and '.join(line.shown or ())} of round {line.number}.")
            else:
                self._judge(line)
            return self.outcome

    def _invalid(self, number: int, why: str) -> None:
        words = f"ALARM after round {number}: invalid update, not used; the last good round is {self.last}. {why}"
        self.outcome = Outcome("invalid update", f"{words}{self._past()}")

    def _cannot_begin(self) -> str:
        """Why nobody is judged."""
        if (horizon := self.monitor.horizon) is not None and self.last > horizon:
            return f"the horizon of {horizon} rounds is over, and no client is judged any more. Use a longer --horizon?"
        if self.pulse.unjudged > _LATEST:
            return f"nobody has been judged in the last {self.pulse.unjudged} rounds; {self.outcome.words}"
        return ""

    def _set(self, line: ClientLine) -> None:
        """Settings of the run's own monitor; a monitor that has begun has its own."""
        given = ClientMonitor(**line.settings or {})
        same = all(getattr(given, name) == getattr(self.monitor, name) for name in ("alpha", "horizon", "rate"))
        if not same and (self.seen_before or self.last):
            raise ValueError(
                "alpha, horizon and rate must stay those that the watch began with; the log says others. Begin another "
                "log?"
            )
        if not same:
            self.monitor = given

    def _show(self, line: ClientLine, last: int) -> None:
        if line.number > last:
            raise OutOfOrder(f"accuracy and loss must come after their round; got {line.number} after round {last}.")
        if line.shown:
            self.numbers.add(ShownNumbers(line.number, line.shown))

    def _judge(self, line: ClientLine) -> None:
        assert line.moves is not None
        names = tuple(line.moves if isinstance(line.moves, dict) else line.moves.clients)
        self._check(line, names)
        broken = [name for name, move in _vectors(line.moves) if not np.isfinite(move).all()]
        if broken:
            self._invalid(line.number, f"What client {short(broken[0])} changed is not finite.")
            return
        before = line.number <= self.seen_before
        verdict = None if before else self._verdict(line)
        if verdict is not None and verdict.invalid:
            self._invalid(line.number, verdict.note)
            return
        self.last = line.number
        self.gaps.add((line.number,))
        if verdict is None:
            words = f"round {line.number}: judged in an earlier session; rounds up to {self.seen_before} are not again."
            self.outcome = Outcome("seen before", f"{words}{self._past()}")
        else:
            kind: Kind = "alarm" if verdict.alarm else "quiet" if verdict.watched else "warming up"
            self.outcome, self.verdict = Outcome(kind, str(verdict)), verdict
        self._remember(line.number, names, verdict)
        self._show(line, line.number)

    def _check(self, line: ClientLine, names: tuple[Name, ...]) -> None:
        if line.number <= self.last:
            raise OutOfOrder(f"rounds must come in order, each once; got {line.number} after round {self.last}.")
        if line.number - max(self.last, self.seen_before) > _LONGEST_GAP:
            raise ValueError(
                f"rounds must lie at most {_LONGEST_GAP:,} apart; got {line.number} after round "
                f"{max(self.last, self.seen_before)}. Is it a time stamp?"
            )
        self.gaps.check((line.number,))
        fresh = [name for name in names if str(name) not in self.numbered]
        if len(self.numbered) + len(fresh) > MOST_CLIENTS:
            raise ValueError(f"a run must have at most {MOST_CLIENTS:,} clients; this round would exceed it.")
        if fresh and line.number <= self.seen_before and len(names) >= FEWEST:
            raise ValueError(
                f"rounds up to {self.seen_before} must be those that the monitor has seen; round {line.number} has a "
                f"client {short(fresh[0])} that it has not. Use this run's monitor?"
            )

    def _verdict(self, line: ClientLine) -> ClientVerdict:
        """Of a checked line; who is left out comes first, and counts only if the round does."""
        assert line.moves is not None
        monitor = copy.deepcopy(self.monitor) if line.left_out else self.monitor
        for out in line.left_out:
            if again := [name for name in out.clients if name in monitor.left_out]:
                raise ValueError(f"clients must be left out once; {short(again[0])} is out already.")
            monitor.exclude(out.clients, back_to=min(out.back_to, monitor.round))
        verdict = monitor.update(line.moves, round=line.number)
        if verdict.invalid:
            return verdict
        self.monitor = monitor
        if verdict is monitor.alarm:
            self.alarms.append(verdict)
        return verdict

    def _remember(self, number: int, names: tuple[Name, ...], verdict: ClientVerdict | None) -> None:
        surprises = {} if verdict is None else verdict.surprises
        for name in names:
            if str(name) not in self.numbered:
                self.numbered[str(name)] = len(self.records)
                self.records.append(Record())
            record, surprise = self.records[self.numbered[str(name)]], surprises.get(name)
            record.rounds += 1
            if surprise is not None:
                record.last = surprise
                if record.largest is None or surprise > record.largest:
                    record.largest, record.at = surprise, number
        here = tuple(self.numbered[str(name)] for name in names)
        self.cells.add(CellRow(number, self.outcome.kind, here, tuple(surprises.get(name) for name in names)))


def _vectors(moves: dict[Name, FloatArray] | Compared) -> Iterable[tuple[Name, FloatArray]]:
    """What clients changed, where it is told in full."""
    return moves.items() if isinstance(moves, dict) else ()
