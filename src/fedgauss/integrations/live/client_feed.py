"""Lines that say what clients changed, for a monitor that watches each of them."""

import copy
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedgauss.detect.clients import ClientMonitor, ClientVerdict, Compared, Exclusion
from fedgauss.detect.clients.features import ALONG
from fedgauss.detect.clients.verdict import Name, listed
from fedgauss.detect.clients.watch import FEWEST
from fedgauss.integrations.live.feed import Feed, Outcome, Part, Who
from fedgauss.integrations.live.history import History, Kind, Roll
from fedgauss.integrations.live.lines import MOST_CLIENTS, Line, line_from_json, short

_ALARMS = 200  # that a page lists
_LATEST = 30  # rounds in which somebody should have been judged: twelve are needed, or ten of a client that joins


class ClientFeed(Feed):
    """Feeds a `ClientMonitor`. Rounds are its steps, and keep the log's numbers."""

    by_client, longest_gap = True, 10_000  # behind a round that is farther off, nothing of alpha would be left

    def __init__(self, monitor: ClientMonitor) -> None:
        self._monitor = monitor
        self.seen_before = self.seen_round = monitor.round
        self.history, self.roll = History(), Roll(MOST_CLIENTS, monitor.clients)
        self._alarms: deque[ClientVerdict] = deque([] if monitor.alarm is None else [monitor.alarm], maxlen=_ALARMS)

    @property
    def watcher(self) -> ClientMonitor:
        """That is fed."""
        return self._monitor

    def read(self, text: bytes) -> Line:
        """With the fields of the monitor's features, and of those for clients that are many."""
        return line_from_json(text, (*self._monitor.features, *ALONG))

    def set(self, settings: Mapping[str, Any], begun: bool) -> None:
        """Settings of the run's own monitor; a monitor that has begun has its own."""
        given = ClientMonitor(**settings)
        named = ("alpha", "horizon", "rate", "population")
        same = all(getattr(given, name) == getattr(self._monitor, name) for name in named)
        if not same and begun:
            raise ValueError(
                "alpha, horizon and rate must stay those that the watch began with; the log says others. Begin another "
                "log?"
            )
        if not same:
            self._monitor = given

    def check(self, line: Line, step: int) -> Who:
        """Who took part."""
        if line.moves is None:
            raise ValueError(
                "a round must have what clients changed, as 'moves'; this one has parameters. To watch those, use "
                "--monitor, or --hessian and --eta0?"
            )
        names = tuple(line.moves.clients if isinstance(line.moves, Compared) else line.moves)
        fresh = [name for name in names if str(name) not in self.roll.numbered]
        if fresh and step <= self.seen_before and len(names) >= FEWEST and not self._monitor.of_many:
            raise ValueError(
                f"rounds up to {self.seen_before} must be those that the monitor has seen; round {line.number} has a "
                f"client {short(fresh[0])} that it has not. Use this run's monitor?"
            )
        return Who(names)

    def prepare(self, line: Line, step: int) -> Outcome | None:
        """A move that is not finite is an alarm, whoever would have been judged."""
        moves = {} if line.moves is None or isinstance(line.moves, Compared) else line.moves
        broken = next((name for name, move in moves.items() if not np.isfinite(move).all()), None)
        return (
            None if broken is None else Outcome("invalid update", f"What client {short(broken)} changed is not finite.")
        )

    def judge(self, line: Line, step: int, who: Who) -> Outcome:
        """Of a checked line; who is left out comes first, and counts only if the round does."""
        assert line.moves is not None
        monitor = copy.deepcopy(self._monitor) if line.left_out else self._monitor
        for out in line.left_out:
            if again := [name for name in out.clients if name in monitor.left_out]:
                raise ValueError(f"clients must be left out once; {short(again[0])} is out already.")
            if out.how == "accepted":
                for name in out.clients:
                    monitor.accept(name)
                continue
            leave_out = monitor.exclude if out.how == "excluded" else monitor.quarantine
            leave_out(out.clients, back_to=min(out.back_to, monitor.round))
        verdict = monitor.update(line.moves, round=line.number)
        if verdict.invalid:
            return Outcome("invalid update", verdict.note)
        self._monitor = monitor
        if verdict is monitor.alarm:
            self._alarms.append(verdict)
        kind: Kind = "alarm" if verdict.alarm else "quiet" if verdict.watched else "warming up"
        return Outcome(kind, str(verdict), verdict)

    def seen(self, line: Line, step: int, who: Who) -> str:
        """A round of an earlier session."""
        return f"round {line.number}: judged in an earlier session; rounds up to {self.seen_before} are not again."

    def stuck(self, unjudged: int, begun_anew: int, words: str) -> str:
        """Why nobody is judged."""
        return f"nobody has been judged in the last {unjudged} rounds; {words}" if unjudged > _LATEST else ""

    def marks(self) -> dict[str, list[dict[str, Any]]]:
        """Alarms and who was left out, for a picture, with clients as numbers."""
        out_now = {*self._monitor.left_out, *self._monitor.quarantined}
        return {
            "alarms": [
                {"round": a.round, "onset": a.onset, "clients": self._numbers(a.suspects)} for a in self._alarms
            ],
            "exclusions": [
                {
                    "round": out.round,
                    "back_to": out.back_to,
                    "clients": self._numbers(name for name in out.clients if name in out_now),
                }
                for out in self._monitor.exclusions
            ],
        }

    def _numbers(self, names: Iterable[Name]) -> list[int]:
        """Of clients that the picture has: a saved monitor of many does not tell all of its names."""
        return [self.roll.numbered[str(name)] for name in names if str(name) in self.roll.numbered]

    def parts(self) -> dict[str, Part]:
        """Who was named and left out, the latest first."""
        events = [(out.round, 1, _exclusion(out)) for out in self._monitor.exclusions]
        events += [(alarm.round, 0, _alarm(alarm)) for alarm in self._alarms]
        rows = [(words,) for *_, words in sorted(events, reverse=True)]
        return {"Named and left out": {"rows": rows, "note": "" if rows else "Nobody has been named."}}


def _alarm(alarm: ClientVerdict) -> str:
    first, last = alarm.onset_interval or (alarm.round, alarm.round)
    began = f"in round {alarm.onset}" if first == last else f"near round {alarm.onset} ({first} to {last})"
    words = f"Round {alarm.round}: {listed(alarm.suspects)} named. It began {began}"
    return f"{words}; roll back to round {alarm.rollback}."


def _exclusion(out: Exclusion) -> str:
    went = f"the run went back to round {out.back_to}" if out.back_to < out.round else "the run went on"
    how = "left out" if out.how == "excluded" else out.how
    return f"After round {out.round}: {listed(out.clients)} {how}; {went}."
