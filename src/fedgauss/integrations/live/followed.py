"""What every run that is followed has in common: lines are taken in turn, refusals are remembered, and it can end."""

import secrets
import threading
from abc import ABC, abstractmethod
from typing import Generic, NamedTuple, TypeVar

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.history import Kind
from fedgauss.integrations.live.refusals import Refusals

Line = TypeVar("Line")


class Ended(ValueError):
    """The watcher is about to stop, and takes no more rounds."""

    def __init__(self) -> None:
        super().__init__("the watcher is about to stop, and takes no more rounds. Send it again to the next one.")


class Told(NamedTuple):
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
        self.told = Told("waiting", f"waiting for the first round.{self._past()}")

    @property
    @abstractmethod
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on."""

    @abstractmethod
    def read(self, text: bytes) -> Line:
        """What a line of its log means."""

    @abstractmethod
    def _taken(self, line: Line) -> Told:
        """What comes of a line."""

    def _past(self) -> str:
        """Of an alarm that is on, for a sentence about something else."""
        first = self.alarm
        return "" if first is None else f" It alarmed at round {first.round}: roll back to round {first.rollback}."

    def take(self, line: Line) -> Told:
        """Judge a round, or remember what a line says of one."""
        with self._turn:
            if self._ended:
                raise Ended
            return self._taken(line)

    def take_json(self, text: bytes) -> Told:
        """Judge what a line of JSON says."""
        return self.take(self.read(text))

    def refuse(self, message: str) -> None:
        """Remember why something was refused, for the page."""
        with self.lock:
            self.refusals.add(message)

    def end(self) -> None:
        """Take no more lines, once the one that is being taken is done."""
        with self._turn:
            self._ended = True
