"""A run that is being watched: rounds go in, checked and in order; what the page shows comes out."""

import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedgauss._checks import FedgaussWarning
from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.attribution import Attribution
from fedgauss.detect.innovations import Contractions
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.stretch import first_false, take_stretch
from fedgauss.detect.updates import PLAUSIBLE, fault, mean_vector, participant_mask
from fedgauss.detect.verdict import ChannelReading, Verdict
from fedgauss.integrations.live.average import RunningAverage
from fedgauss.integrations.live.followed import FollowedRun, Outcome
from fedgauss.integrations.live.gaps import Gaps
from fedgauss.integrations.live.history import History, HistoryRow, Kind, Participation
from fedgauss.integrations.live.pulse import IN_A_ROW
from fedgauss.integrations.live.rounds import ClientNames, LoggedRound, checked_names, round_from_json, with_name
from fedgauss.integrations.live.warm_up import WarmUp

_AT_ONCE = 160  # rounds: what is computed of them fits into the cache
_FEWEST = 8  # that are worth it


class LiveRun(FollowedRun[LoggedRound]):
    """Feeds a monitor, or first its warm-up, and keeps what a page shows of the run.

    A round that cannot be right is a ValueError, and nothing has changed then. A round up to the step that a restored
    monitor has seen is counted but not judged again. A monitor of one client stands for the average of all: it is
    shown who took part, and cannot say who attacks.

    `lock` is not held while a warm-up becomes a monitor, which may take seconds.
    """

    def __init__(self, watcher: Monitor | WarmUp) -> None:
        self.sync_every, self.alpha = watcher.sync_every, watcher.alpha
        self.monitor: Monitor | None = None
        self.warm_up = watcher if isinstance(watcher, WarmUp) else None
        self.average: RunningAverage | None = None
        self.roster: ClientNames | None = None
        if isinstance(watcher, Monitor):
            self._begin(watcher)
        self.seen_before = 0 if self.monitor is None else self.monitor.step
        self.history, self.participation = History(), Participation()
        self.gaps = Gaps((1, self.sync_every), (None if self.seen_before else 0, self.seen_before))
        super().__init__()
        self.note = ""  # what the monitor warns of, for the page
        self.readings: tuple[ChannelReading, ...] = ()  # of every channel, after the last round judged
        self._last: FloatArray | None = None
        self._another = ""  # why this cannot be the run that the monitor has seen
        self._suspects: tuple[int, Attribution | str] = (-1, "")  # after how many rounds, and who

    def _begin(self, monitor: Monitor) -> None:
        self.monitor, self.average = monitor, RunningAverage(monitor.lin, monitor.steps)
        if monitor.lin.n_clients > 1:
            self.roster = ClientNames(monitor.lin.n_clients)

    @property
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on, in the log's numbers of rounds as far as they are known."""
        first = None if self.monitor is None else self.monitor.alarm
        if first is None or self.history.last[0] < first.step:
            return first
        return self._renumbered(first, self.history.round_before(first.step + 1) or first.round)

    @property
    def id(self) -> str:
        """Changes when the history is thinned."""
        return f"{self._id}-{self.history.epoch}"

    @property
    def round(self) -> int | None:
        """The last round taken; None before the first."""
        return self.history.last[1] or self.gaps.last[0] or None

    def read(self, text: bytes) -> LoggedRound:
        """What a line of its log means."""
        return round_from_json(text)

    def number_of(self, line: LoggedRound) -> int | None:
        """The number of the round."""
        return line.number

    def kept(self) -> dict[str, Any]:
        """Who is who, beside what every run keeps."""
        return super().kept() | {"names": None if self.roster is None else self.roster.names}

    def resume(self, words: dict[str, Any]) -> None:
        """Take up what `kept` returned."""
        super().resume(words)
        if self.roster is not None and words.get("names") is not None:
            names = checked_names("names", words["names"])
            if len(names) != self.roster.n_clients:
                raise ValueError(f"names in the journal must be {self.roster.n_clients}; got {len(names)}.")
            self.roster.names = names

    def _taken(self, given: LoggedRound) -> Outcome:
        """Judge a round."""
        step = given.number * self.sync_every if given.step is None else given.step
        self.history.check(given.number, step, self.seen_before)
        self.gaps.check((given.number, step))
        if step > self.seen_before and self._another:
            raise ValueError(self._another)
        present, everybody = self._who(given)
        self.participation.check(present)
        warmed = self._warm(given, step) if self.monitor is None else None
        with self.lock:
            told, ratio = (warmed, None) if warmed else self._judge(given, step, present, everybody)
            if told.kind != "invalid update":
                self.gaps.add((given.number, step))
                self.participation.add(present, everybody)
                self._last = given.parameters
                if self.roster is not None and everybody is not None:
                    self.roster.names = everybody
            self.history.add(HistoryRow(given.number, step, ratio, told.kind))
            self.outcome = told
            return told

    def take_many(self, lines: Iterable[LoggedRound | ValueError]) -> Iterator[Outcome | ValueError]:
        """Judge lines of a log: rounds that bring nothing new many at once, the others and the last one by one."""
        given = list(lines)
        at = 0
        while at < len(given):
            at += self._take_plain(given[at:])
            yield from super().take_many(given[at : at + 1])
            at += 1

    def _take_plain(self, lines: Sequence[LoggedRound | ValueError]) -> int:
        """Take rounds that come to what the last one came to, all but the last of them; returns how many."""
        kind, (step, number) = self.outcome.kind, self.history.last
        if self.monitor is None or kind not in ("quiet", "alarm", "seen before") or self._another:
            return 0
        dim, tau, means = self.monitor.lin.dim, self.sync_every, []
        last = self.seen_before - 1 if kind == "seen before" else math.inf  # the last round seen is compared
        for line in lines:
            number, step = number + 1, step + tau
            if isinstance(line, ValueError) or step > last or not line.is_plain(number, step, tau):
                break
            if len(line.parameters) != dim:
                break
            means.append(line.parameters)
        if len(means) <= _FEWEST:
            return 0
        path, taken = np.concatenate(means[:-1]).reshape(-1, dim), 0
        while taken < len(path):
            with self._turn, self.lock:
                count = 0 if self._ended else self._take_means(path[taken : taken + _AT_ONCE], kind)
            taken += count
            if count < min(_AT_ONCE, len(path)):
                break
        return taken

    def _take_means(self, means: FloatArray, kind: Kind) -> int:
        assert self.monitor is not None
        assert self.average is not None
        assert self._last is not None  # since the last outcome was that of a round
        ratios: FloatArray | None = None
        contractions: Contractions | None = None
        if kind == "seen before":
            far = self.monitor.innovations.distances(means, np.concatenate([self._last[None], means[:-1]]))
            count = first_false(far < PLAUSIBLE / 2)  # NaN is not
        else:
            stretch = take_stretch(self.monitor, means, kind == "alarm")
            count, ratios = len(stretch.statistic), stretch.statistic / stretch.threshold
            contractions = stretch.contractions
        if not count:
            return 0
        step, number, tau = *self.history.last, self.sync_every
        self.average.add_many(means[:count], tau, contractions)
        self.participation.add_many(count, None if self.roster is None else self.roster.names)
        self.gaps.add_many((number + count, max(step + tau * count, self.seen_before)), count)
        self.history.add_many(count, ratios, tau, kind)
        self._last = means[count - 1]
        self.taken += count
        self.pulse.taken(kind, count)
        if self.save_file is not None:
            self.save_file.after(kind)
        return count

    def suspects(self) -> Attribution | str:
        """The clients behind an alarm, or why there is no table yet."""
        with self.lock:
            if self._suspects[0] != self.participation.rounds:
                self._suspects = (self.participation.rounds, self._suspects_now())
            return self._suspects[1]

    def _suspects_now(self) -> Attribution | str:
        if self.monitor is None or self.roster is None:
            return "Only a monitor that knows every client can tell them apart (--monitor)."
        try:
            return self.monitor.suspects()
        except ValueError as error:
            lacking = "The rounds lack what clients uploaded: nobody can be named."
            return str(error) if self.monitor.has_uploads else lacking

    def _cannot_begin(self) -> str:
        """Why the warm-up does not end."""
        if self.monitor is not None or self.warm_up is None or self._last is None:
            return ""
        if self.pulse.begun_anew >= IN_A_ROW:
            return f"the warm-up has begun anew {self.pulse.begun_anew} times; {self.outcome.words}"
        wanted = self.warm_up.wanted(len(self._last)) + 1
        if self.pulse.unjudged > IN_A_ROW * wanted:
            return f"{self.pulse.unjudged} rounds gave no warm-up of {wanted}; {self.outcome.words}"
        return ""

    def _who(self, given: LoggedRound) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        """Names of those who took part, None for everybody, and of all clients as far as they are known."""
        sent = None if given.clients is None else tuple(given.clients)
        present = sent if given.participants is None else given.participants
        if sent is not None and present is not None and set(sent) != set(present):
            raise ValueError("clients must hold what the participants uploaded; they name other clients.")
        if self.roster is None:
            return present, given.all_clients
        everybody = self.roster.called(given.all_clients, sent)
        if given.all_clients is not None and given.all_clients != everybody:
            raise ValueError(f"all_clients must be the same {self.roster.n_clients} names in every round; they differ.")
        complete = present is not None and len(present) == self.roster.n_clients
        if present is not None and not (complete and everybody is None):
            self.roster.places(everybody, present)
        return None if complete else present, everybody

    def _count(self, given: LoggedRound, step: int, mask: BoolArray | None) -> Outcome:
        """A round that the monitor saw in an earlier session; the last of them must be the one that it remembers."""
        assert self.monitor is not None
        assert self.average is not None
        y = mean_vector(given.parameters, self.monitor.lin.dim)
        if wrong := fault(self.monitor.innovations, self._last, y, None, None, None):
            raise ValueError(f"round {given.number}: {wrong}")
        last_seen = self.monitor.mean
        if step == self.seen_before and last_seen is not None and not np.allclose(y, last_seen):
            self._another = (
                f"rounds after step {step} must go on from where the monitor left the run; round {given.number} has "
                "other parameters there. Use this run's monitor, or one that has seen no run?"
            )
            raise ValueError(self._another)
        self.average.add(y, step, mask)
        where = f"round {given.number} (step {step})"
        more = f"rounds up to step {self.seen_before} are not judged again."
        return Outcome("seen before", f"{where}: judged in an earlier session; {more}{self._past()}")

    def _warm(self, given: LoggedRound, step: int) -> Outcome:
        assert self.warm_up is not None
        self.warm_up.check(given.parameters)
        far, anew = self.warm_up.add(given.parameters, step)
        try:
            monitor = self.warm_up.monitor()
        except ValueError as error:
            self.warm_up.begin_anew()
            return Outcome("begun anew", f"the warm-up gave no monitor, and begins anew: {error}")
        if monitor is None:
            return Outcome("begun anew" if anew else "warming up", f"round {given.number} (step {step}): {far}")
        with self.lock:
            self._begin(monitor)
            assert self.average is not None
            for y, then in self.warm_up.rows():
                self.average.add(y, then, None)
        return Outcome("quiet", f"round {given.number} (step {step}): the warm-up is over, and watching begins.")

    def _judge(
        self, given: LoggedRound, step: int, present: tuple[str, ...] | None, everybody: tuple[str, ...] | None
    ) -> tuple[Outcome, float | None]:
        assert self.monitor is not None
        assert self.average is not None
        mask = sent = None
        if self.roster is not None and present is not None:
            mask = participant_mask(self.roster.places(everybody, present), self.roster.n_clients)
        if step <= self.seen_before:
            return self._count(given, step, mask), None
        if self.roster is not None and given.clients is not None:
            sent = self.roster.table(everybody, dict(given.clients), self.monitor.lin.dim)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", FedgaussWarning)
            verdict = self.monitor.update(given.parameters, clients=sent, participants=mask, step=step)
        self.note = " ".join([self.note, *(str(w.message) for w in warned)]).strip()
        if verdict.alarm and not verdict.invalid and (first := self.monitor.alarm) is not None:
            verdict = replace(verdict, onset=first.onset, onset_interval=first.onset_interval, rollback=first.rollback)
        verdict = self._renumbered(verdict, given.number)
        if verdict.invalid:
            verdict = replace(verdict, note=with_name(verdict.note, everybody))
            return Outcome("invalid update", f"{verdict}{self._past()}"), None
        self.readings = verdict.readings
        self.average.add(given.parameters, step, mask)
        kind: Kind = "alarm" if verdict.alarm else "travelling" if verdict.travelling else "quiet"
        past = "" if verdict.alarm else self._past()
        return Outcome(kind, f"{verdict}{past}"), verdict.statistic / verdict.threshold

    def _renumbered(self, verdict: Verdict, number: int) -> Verdict:
        """With the log's numbers of rounds: the monitor counts only those it took in."""
        first = verdict.onset if verdict.onset_interval is None else verdict.onset_interval[0]
        before = None if first is None else self.history.round_before(first)
        return replace(verdict, round=number, rollback=verdict.rollback if before is None else before)
