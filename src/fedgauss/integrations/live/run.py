"""A run that is being watched: lines go in, checked and in order; what the page shows comes out."""

import hashlib
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedgauss._types import FloatArray
from fedgauss.detect.clients import ClientMonitor, ClientVerdict
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.client_feed import ClientFeed
from fedgauss.integrations.live.feed import Feed, Outcome, Who
from fedgauss.integrations.live.gaps import Gaps
from fedgauss.integrations.live.health import IN_A_ROW, Health, Pulse, Refusals, State
from fedgauss.integrations.live.history import HistoryRow, Kind, OutOfOrder
from fedgauss.integrations.live.lines import Line
from fedgauss.integrations.live.parameter_feed import ParameterFeed
from fedgauss.integrations.live.saving import SaveFile
from fedgauss.integrations.live.thinned import Thinned
from fedgauss.integrations.live.warm_up import WarmUp

_REMEMBERED = 1000  # POSTed rounds whose content is known, should they be sent again
_NUMBERS = 50_000  # of accuracy and loss
_AT_ONCE = 160  # plain rounds: what is computed of them fits into the cache


class Ended(ValueError):
    """The watcher is about to stop, and takes no more rounds."""

    def __init__(self) -> None:
        super().__init__("the watcher is about to stop, and takes no more rounds. Send it again to the next one.")


class ShownNumbers(NamedTuple):
    """Accuracy and loss after a round, as far as they are known."""

    round: int
    values: Mapping[str, float]


def _later(one: ShownNumbers, other: ShownNumbers) -> ShownNumbers:
    return ShownNumbers(other.round, {**one.values, **other.values})


class Run:
    """Feeds a monitor, or first its warm-up, and keeps what a page shows of the run.

    A line that cannot be right is a ValueError, and nothing has changed then. A round up to the one that a restored
    monitor has seen is counted but not judged again. Lines are taken one at a time; `lock` is for whoever reads what
    came of them, and is not held while a warm-up becomes a monitor, which may take seconds.
    """

    def __init__(self, watcher: Monitor | WarmUp | ClientMonitor) -> None:
        self.feed: Feed = ClientFeed(watcher) if isinstance(watcher, ClientMonitor) else ParameterFeed(watcher)
        self.history, self.roll = self.feed.history, self.feed.roll
        seen = (self.feed.seen_round, self.feed.seen_before)
        self.gaps = Gaps((1, self.feed.sync_every), seen)
        self.numbers: Thinned[ShownNumbers] = Thinned(_NUMBERS, _later)
        self._id = secrets.token_hex(8)
        self.lock, self._turn = threading.RLock(), threading.Lock()
        self.refusals, self.pulse = Refusals(), Pulse()
        self.save_file: SaveFile | None = None
        self._contents: dict[int, str] = {}  # hashes of POSTed rounds, by number
        self._ended = False
        self.taken = 0  # rounds
        self.verdict: Verdict | None = None  # on the last round that was judged
        self._state: State = "waiting"
        self._since = time.time()
        self.outcome = Outcome("waiting", f"waiting for the first round.{self._past()}")

    @property
    def monitor(self) -> Any:
        """That is fed; None as long as there is a warm-up."""
        return self.feed.monitor

    @property
    def watcher(self) -> Any:
        """The monitor, or its warm-up."""
        return self.feed.watcher

    @property
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on."""
        return self.feed.alarm

    @property
    def id(self) -> str:
        """Of what a page has seen: another one asks it to begin from the first row again."""
        return f"{self._id}-{self.history.epoch}-{self.numbers.epoch}"

    @property
    def round(self) -> int | None:
        """The last round taken; None before the first."""
        return self.history.last[1] or self.gaps.last[0] or None

    def _past(self) -> str:
        """Of an alarm that is on, for a sentence about something else."""
        first = self.alarm
        return "" if first is None else f" It alarmed at round {first.round}: roll back to round {first.rollback}."

    def read(self, text: bytes) -> Line:
        """What a line of its log says."""
        return self.feed.read(text)

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
        number = line.number if line.tells_of_a_round else None
        content = hashlib.sha256(text.strip()).hexdigest()[:16]
        with self._turn:
            known = None if number is None else self._contents.get(number)
            if known is not None and known != content:
                raise OutOfOrder(f"rounds must come in order, each once; got {number} again, with other content.")
            if self.save_file is not None:
                self.save_file.check()
            if known is None:
                outcome = self._take_in_turn(line)
                if number is not None and outcome.kind != "invalid update":
                    self._contents[number] = content
                    while len(self._contents) > _REMEMBERED:
                        del self._contents[next(iter(self._contents))]
            else:
                outcome = Outcome("already taken", f"round {number} was already taken, with the same content.")
            if self.save_file is not None:
                self.save_file.after(outcome.kind, text)
            return outcome

    def _take_in_turn(self, line: Line) -> Outcome:
        if self._ended:
            raise Ended
        if line.settings is not None:
            with self.lock:
                self.feed.set(line.settings, bool(self.round))
            return Outcome("noted", "noted: the settings.")
        if not line.tells_of_a_round:
            with self.lock:
                self._show(line)
            return Outcome("noted", f"noted: {' and '.join(line.shown or ())} of round {line.number}.")
        outcome = self._judged(line)
        with self.lock:
            self.outcome = outcome
            self.taken += outcome.kind != "invalid update"
            self.pulse.taken(outcome.kind)
        return outcome

    def _judged(self, line: Line) -> Outcome:
        feed, number = self.feed, line.number
        if line.refused:
            self.refusals.add(f"round {number}, by the run itself: {line.refused}")
            why = self._invalid(number, f"The run refused it: {line.refused}")
            return Outcome("invalid update", f"{why}{self._past()}")
        step = number * feed.sync_every if line.step is None else line.step
        self.history.check(number, step, feed.seen_before, feed.longest_gap)
        self.gaps.check((number, step))
        who = feed.check(line, step)
        self.roll.check(who.present)
        judged = feed.prepare(line, step)
        with self.lock:
            if judged is None and step <= feed.seen_before:
                judged = Outcome("seen before", feed.seen(line, step, who))
            elif judged is None:
                judged = feed.judge(line, step, who)
            return self._remember(line, step, who, judged)

    def _remember(self, line: Line, step: int, who: Who, judged: Outcome) -> Outcome:
        kind, words, verdict = judged
        ratio = None if verdict is None else verdict.statistic / verdict.threshold
        surprises = verdict.surprises if isinstance(verdict, ClientVerdict) else {}
        here: tuple[int, ...] = ()
        each: tuple[float | None, ...] = ()
        if kind != "invalid update":
            self.gaps.add((line.number, step))
            self.roll.know(who.everybody or ())
            here = self.roll.add(line.number, who.present, surprises)
        elif not words.startswith("ALARM"):
            words = self._invalid(line.number, words)
        if self.feed.by_client:
            each = tuple(surprises.get(name) for name in who.present or ()) if here else ()
        self.history.add(HistoryRow(line.number, step, ratio, kind, here if self.feed.by_client else (), each))
        if verdict is not None:
            self.verdict = verdict
        if line.shown and kind != "invalid update":
            self._show(line)
        past = "" if kind == "alarm" else self._past()
        return Outcome(kind, f"{words}{past}", verdict)

    def _invalid(self, number: int, why: str) -> str:
        return f"ALARM after round {number}: invalid update, not used; the last good round is {self.round or 0}. {why}"

    def _show(self, line: Line) -> None:
        if line.number > (self.round or 0):
            raise OutOfOrder(
                f"accuracy and loss must come after their round; got {line.number} after round {self.round or 0}."
            )
        if line.shown:
            self.numbers.add(ShownNumbers(line.number, line.shown))

    def goes_on(self, line: Line) -> bool | None:
        """Whether a line may come after the last round; None where it tells of no round."""
        return (self.round is None or line.number > self.round) if line.tells_of_a_round else None

    def take_many(self, lines: Iterable[Line | ValueError]) -> Iterator[Outcome | ValueError]:
        """Judge lines of a log, of which some could not be read; says what came of them, or why not.

        Rounds that bring nothing new are judged many at once, the others and the last one by one.
        """
        given, at = list(lines), 0
        while at < len(given):
            at += self._take_plain(given[at:])
            try:
                if isinstance(line := given[at], ValueError):
                    raise line
                yield self.take(line)
            except ValueError as error:
                self.refuse(str(error))
                yield error
            at += 1

    def _take_plain(self, lines: Sequence[Line | ValueError]) -> int:
        """Take rounds that come to what the last one came to, all but the last of them; returns how many."""
        path, taken = self.feed.plain(lines, self.outcome.kind), 0
        while path is not None and taken < len(path):
            with self._turn, self.lock:
                count = 0 if self._ended else self._take_stretch(path[taken : taken + _AT_ONCE], self.outcome.kind)
            taken += count
            if count < min(_AT_ONCE, len(path)):
                break
        return taken

    def _take_stretch(self, means: FloatArray, kind: Kind) -> int:
        count, ratios = self.feed.stretch(means, kind)
        if count:
            (step, number), tau = self.history.last, self.feed.sync_every
            self.roll.add_many(count)
            self.gaps.add_many((number + count, max(step + tau * count, self.feed.seen_before)), count)
            self.history.add_many(count, ratios, tau, kind)
            self.taken += count
            self.pulse.taken(kind, count)
            if self.save_file is not None:
                self.save_file.after(kind)
        return count

    def kept(self) -> dict[str, Any]:
        """What a resumed run must know and its monitor does not."""
        return {"last": self.gaps.last, "contents": self._contents, **self.feed.words()}

    def take_up(self, save_file: SaveFile) -> None:
        """Go on with what an earlier watch left, and save from here on; what is left may be wrong."""
        if (kept := save_file.read()) is not None:
            last, contents = kept.words.get("last"), kept.words.get("contents")
            if not isinstance(last, list) or len(last) != len(self.gaps.last) or not isinstance(contents, dict):
                raise ValueError(f"{save_file.path} does not belong to this kind of run. Move it away?")
            known = (
                max(0, now) if type(now) is int else before for now, before in zip(last, self.gaps.last, strict=True)
            )
            self.gaps.last = tuple(known)
            self.feed.resume(kept.words)
            earlier = {int(number): str(content)[:16] for number, content in contents.items()}
            for text in kept.rounds:
                try:
                    self.take_json(text)
                except ValueError as error:
                    raise ValueError(
                        f"the rounds in {save_file.path} must be those that were taken after its monitor; {error} Move "
                        "it away to go on without it."
                    ) from error
            self._contents = earlier | self._contents
        save_file.begin(self)
        self.save_file = save_file

    def tick(self) -> None:
        """Save what is to be saved by now."""
        if self.save_file is not None:
            with self._turn:
                self.save_file.tick()

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
        kind, words, _ = self.outcome
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
        why = self.feed.watcher.blind or self.feed.stuck(pulse.unjudged, pulse.begun_anew, self.outcome.words)
        return (why, None) if why else None

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
