"""What the command says as it goes: in sentences, or as JSON for whoever collects logs."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from fedgauss.integrations.live.feed import Outcome
from fedgauss.integrations.live.health import Health, State
from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.notices import Notices, stamp
from fedgauss.integrations.live.options import Format

_REFUSALS = 20  # that are said

Say = Callable[[str], None]


class Announcer:
    """Says what a round brought when it is not what the round before brought, and when a run is no longer watched.

    Parameters
    ----------
    say : callable
        Prints a line.
    form : str
        "text" for sentences, "json" for one object a line: time, level, event, round, words, and the
        parts of a verdict.
    notices : Notices, optional
        Who is told of alarms, and of whether the run is being watched.
    """

    def __init__(self, say: Say, form: Format = "text", notices: Notices | None = None) -> None:
        self._say, self._form, self._notices = say, form, notices
        self._kind: Kind = "waiting"
        self._state: State = "waiting"
        self._watching = False
        self._refusals = 0
        self._lock = threading.RLock()
        self.round: int | None = None

    def say(
        self, words: str, event: str = "watch", level: str = "info", parts: Mapping[str, Any] | None = None
    ) -> None:
        """One line."""
        if self._form == "json":
            line = {"time": stamp(), "level": level, "event": event, "round": self.round, "words": words}
            self._say(json.dumps(line | ({"parts": parts} if parts else {})))
        else:
            self._say(words)

    def tell(self, event: str, words: str, parts: Mapping[str, Any] | None = None) -> None:
        """A notice."""
        if self._notices is not None:
            self._notices(event, words, self.round, self._watching, parts)

    def __call__(self, outcome: Outcome) -> None:
        """What came of a round."""
        with self._lock:
            (kind, words, _), parts = outcome, outcome.parts
            if kind in ("already taken", "noted"):
                return
            if kind != self._kind:
                rings = kind in ("alarm", "invalid update")
                level = "error" if rings else "warning" if kind in ("begun anew", "travelling") else "info"
                self.say(words, kind, level, parts)
                if rings:
                    self.tell(kind, words, parts)
            self._kind = kind

    def refused(self, error: ValueError) -> None:
        """A line of a log was refused."""
        self._refusals += 1
        if self._refusals <= _REFUSALS:
            more = " Further ones are only counted." * (self._refusals == _REFUSALS)
            self.say(f"refused: {error}{more}", "refused", "warning")

    def health(self, health: Health) -> None:
        """Whether the run is being watched, where that has changed."""
        with self._lock:
            self.round = health.round
            before, self._state, self._watching = self._state, health.state, health.watching
            if before == health.state:
                return
            if health.state == "not watching":
                words = f"NOT WATCHING since {stamp(health.since)}: {health.reason}"
                self.say(words, "not watching", "error")
                self.tell("not watching", words)
            elif before == "not watching":
                words = "Watching again." if health.watching else f"No longer blind, but {health.state}."
                self.say(words, "watching", "warning")
                self.tell("watching" if health.watching else health.state, words)
            elif health.state == "watching":
                self.tell("watching", "The run is being watched.")
