"""What every run that is followed has in common: lines are taken in turn, refusals are remembered, and it can end."""

import secrets
import threading
import time
from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.health import Health, State
from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.refusals import Refusals

Line = TypeVar("Line")


class Ended(ValueError):
    """The watcher is about to stop, and takes no more rounds."""

    def __init__(self) -> None:
        super().__init__("the watcher is about to stop, and takes no more rounds. Send it again to the next one.")


class Outcome(NamedTuple):
    """What came of a round, in one word and in a sentence."""

    kind: Kind
    words: str


class FollowedRun(ABC, Generic[Line]):
    """Lines of a log go in one at a time; `lock` is for whoever reads what came of them."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.lock, self._turn = threading.RLock(), threading.Lock()
        self.refusals = Refusals()
        self._ended = False
        self.taken = 0  # rounds
        self._state: State = "waiting"
        self._since = time.time()
        self.outcome = Outcome("waiting", f"waiting for the first round.{self._past()}")

    @property
    @abstractmethod
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on."""

    @property
    @abstractmethod
    def round(self) -> int | None:
        """The last round taken; None before the first."""

    @abstractmethod
    def read(self, text: bytes) -> Line:
        """What a line of its log means."""

    @abstractmethod
    def _taken(self, line: Line) -> Outcome:
        """What comes of a line."""

    def _past(self) -> str:
        """Of an alarm that is on, for a sentence about something else."""
        first = self.alarm
        return "" if first is None else f" It alarmed at round {first.round}: roll back to round {first.rollback}."

    def take(self, line: Line) -> Outcome:
        """Judge a round, or remember what a line says of one."""
        with self._turn:
            if self._ended:
                raise Ended
            outcome = self._taken(line)
            self.taken += outcome.kind != "invalid update"
            return outcome

    def take_json(self, text: bytes) -> Outcome:
        """Judge what a line of JSON says."""
        return self.take(self.read(text))

    def refuse(self, message: str) -> None:
        """Remember why something was refused, for the page."""
        with self.lock:
            self.refusals.add(message)

    def health(self, now: float | None = None) -> Health:
        """Whether the run is being watched, and if not, since when and why.

        Parameters
        ----------
        now : float, optional
            Unix time; that of the clock by default.
        """
        with self.lock:
            state, reason = self._condition()
            if state != self._state:
                self._state, self._since = state, time.time() if now is None else now
            watching = state in ("watching", "alarm")
            return Health(state, watching, self._since, reason, self.round, self.refusals.count, self.taken)

    def _condition(self) -> tuple[State, str]:
        """The state of the watch, and the sentence that goes with it."""
        kind, words = self.outcome
        if self.alarm is not None or kind == "invalid update":
            return "alarm", words
        if kind == "waiting":
            return "waiting", ""
        return ("warming up", "") if kind in ("warming up", "begun anew") else ("watching", "")

    def end(self) -> None:
        """Take no more lines, once the one that is being taken is done."""
        with self._turn:
            self._ended = True
