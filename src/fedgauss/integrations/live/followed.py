"""What every run that is followed has in common: lines are taken in turn, refusals are remembered, and it can end."""

import hashlib
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.gaps import Gaps
from fedgauss.integrations.live.health import Health, State
from fedgauss.integrations.live.history import Kind, OutOfOrder
from fedgauss.integrations.live.pulse import IN_A_ROW, Pulse
from fedgauss.integrations.live.refusals import Refusals
from fedgauss.integrations.live.saving import SaveFile

_REMEMBERED = 1000  # POSTed rounds whose content is known, should they be sent again

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

    gaps: Gaps

    def __init__(self) -> None:
        self._id = secrets.token_hex(8)
        self.lock, self._turn = threading.RLock(), threading.Lock()
        self.refusals = Refusals()
        self.pulse = Pulse()
        self.save_file: SaveFile | None = None
        self._contents: dict[int, str] = {}  # hashes of POSTed rounds, by number
        self._ended = False
        self.taken = 0  # rounds
        self._state: State = "waiting"
        self._since = time.time()
        self.outcome = Outcome("waiting", f"waiting for the first round.{self._past()}")

    @property
    @abstractmethod
    def id(self) -> str:
        """Of what a page has seen: another one asks it to begin from the first row again."""

    monitor: Any  # that is fed; None as long as there is a warm-up

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

    @abstractmethod
    def number_of(self, line: Line) -> int | None:
        """The number of the round that a line tells of; None where it sets something, or is shown beside rounds."""

    @abstractmethod
    def _cannot_begin(self) -> str:
        """Why nothing has been judged although there were rounds enough; empty where that is not so."""

    def _past(self) -> str:
        """Of an alarm that is on, for a sentence about something else."""
        first = self.alarm
        return "" if first is None else f" It alarmed at round {first.round}: roll back to round {first.rollback}."

    def take(self, line: Line) -> Outcome:
        """Judge a round, or remember what a line says of one."""
        with self._turn:
            outcome = self._take_in_turn(line)
            if self.save_file is not None:
                self.save_file.after(outcome.kind)
            return outcome

    def take_json(self, text: bytes) -> Outcome:
        """Judge what was POSTed. With a file to save to it is on disk when this returns.

        A round may be sent again, as when an answer was lost: with the same content it is already taken, with other
        content out of order.
        """
        line = self.read(text)
        number, content = self.number_of(line), hashlib.sha256(text.strip()).hexdigest()[:16]
        with self._turn:
            known = None if number is None else self._contents.get(number)
            if known is not None and known != content:
                raise OutOfOrder(f"rounds must come in order, each once; got {number} again, with other content.")
            if self.save_file is not None:
                self.save_file.check()
            if known is None:
                outcome = self._take_in_turn(line)
                if number is not None and outcome.kind != "invalid update":
                    self._remember_content(number, content)
            else:
                outcome = Outcome("already taken", f"round {number} was already taken, with the same content.")
            if self.save_file is not None:
                self.save_file.after(outcome.kind, text)
            return outcome

    def _take_in_turn(self, line: Line) -> Outcome:
        if self._ended:
            raise Ended
        outcome = self._taken(line)
        if self.number_of(line) is not None:
            with self.lock:
                self.taken += outcome.kind != "invalid update"
                self.pulse.taken(outcome.kind)
        return outcome

    def _remember_content(self, number: int, content: str) -> None:
        self._contents[number] = content
        while len(self._contents) > _REMEMBERED:
            del self._contents[next(iter(self._contents))]

    def goes_on(self, line: Line) -> bool | None:
        """Whether a line may come after the last round; None where it tells of no round."""
        number = self.number_of(line)
        return None if number is None else self.round is None or number > self.round

    def kept(self) -> dict[str, Any]:
        """What a resumed run must know and its monitor does not."""
        return {"last": self.gaps.last, "contents": self._contents}

    def resume(self, words: dict[str, Any]) -> None:
        """Take up what `kept` returned; it comes from a file, and may be wrong."""
        last, contents = words.get("last"), words.get("contents")
        if not isinstance(last, list) or len(last) != len(self.gaps.last) or not isinstance(contents, dict):
            raise ValueError("the journal beside --save does not belong to this kind of run. Move it away?")
        known = (max(0, now) if type(now) is int else before for now, before in zip(last, self.gaps.last, strict=True))
        self.gaps.last = tuple(known)
        self._contents = {int(number): str(content)[:16] for number, content in contents.items()}

    def take_up(self, save_file: SaveFile) -> None:
        """Go on with what an earlier watch left, and save from here on."""
        kept = save_file.journal.read()
        if kept is not None:
            self.resume(kept.words)
            contents, self._contents = self._contents, {}  # rounds of the journal may be among them
            for text in kept.rounds:
                try:
                    self.take_json(text)
                except ValueError as error:
                    raise ValueError(
                        f"the rounds beside {save_file.path} must be those that were taken after it; {error} Move "
                        "them away to go on without them."
                    ) from error
            self._contents = contents | self._contents
        save_file.begin(self, () if kept is None else kept.rounds)
        self.save_file = save_file

    def tick(self) -> None:
        """Save what is to be saved by now."""
        if self.save_file is not None:
            with self._turn:
                self.save_file.tick()

    def take_many(self, lines: Iterable[Line | ValueError]) -> Iterator[Outcome | ValueError]:
        """Judge several lines of a log, of which some could not be read; says what came of them, or why not."""
        for line in lines:
            try:
                if isinstance(line, ValueError):
                    raise line
                yield self.take(line)
            except ValueError as error:
                self.refuse(str(error))
                yield error

    def refuse(self, message: str) -> None:
        """Remember why something was refused, for the page."""
        with self.lock:
            self.refusals.add(message)
            self.pulse.refusal(message)

    def health(self, now: float | None = None) -> Health:
        """Whether the run is being watched, and if not, since when and why.

        Parameters
        ----------
        now : float, optional
            Unix time; by default that of a clock which is never set back or forth.
        """
        with self.lock:
            state, reason, since = self._condition(now)
            if state != self._state:
                self._state, self._since = state, since
            watching = state in ("watching", "alarm")
            return Health(state, watching, self._since, reason, self.round, self.refusals.count, self.taken)

    def _condition(self, now: float | None) -> tuple[State, str, float]:
        """The state of the watch, the sentence that goes with it, and since when it is so."""
        at = time.time() if now is None else now
        if blind := self._blind(now):
            reason, since = blind
            return "not watching", f"{reason}{self._past()}", at if since is None else since
        trouble = "" if self.save_file is None else self.save_file.trouble
        kind, words = self.outcome
        if self.alarm is not None or kind == "invalid update":
            return "alarm", words, at
        if kind == "waiting":
            return "waiting", trouble, at
        return ("warming up" if self.pulse.unjudged else "watching"), trouble, at

    def _blind(self, now: float | None) -> tuple[str, float | None] | None:
        """Why an attack would not be seen now, and since when; None where it would, or where the run has just begun."""
        pulse = self.pulse
        if pulse.refused >= IN_A_ROW:
            return f"the last {pulse.refused} rounds were refused. The last: {pulse.last_refusal}", pulse.first_refusal
        if pulse.invalid >= IN_A_ROW:
            return f"the last {pulse.invalid} updates could not be used. {self.outcome.words}", None
        if (seconds := pulse.silence(now)) > pulse.longest_silence:
            what = "no round has come" if self.round is None else f"no round has come after round {self.round}"
            return (
                f"{what} for {_lasting(seconds)}, and up to {_lasting(pulse.longest_silence)} is usual here "
                "(--quiet-after). The run has ended, or its rounds no longer arrive.",
                pulse.heard_at,
            )
        return (why, None) if (why := self._cannot_begin()) else None

    def end(self) -> None:
        """Take no more lines, once the one that is being taken is done."""
        with self._turn:
            self._ended = True


def _lasting(seconds: float) -> str:
    """A time span in words."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
