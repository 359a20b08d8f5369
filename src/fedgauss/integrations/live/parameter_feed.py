"""Lines that say where the clients' mean is, for a monitor of the mean, or first for its warm-up."""

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedgauss._checks import FedgaussWarning
from fedgauss._types import FloatArray
from fedgauss.detect.attribution import Attribution
from fedgauss.detect.innovations import Contractions
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.updates import LONGEST_GAP, PLAUSIBLE, fault, mean_vector, participant_mask
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.live.average import RunningAverage
from fedgauss.integrations.live.feed import Feed, Outcome, Part, Who
from fedgauss.integrations.live.health import IN_A_ROW
from fedgauss.integrations.live.history import History, Kind, Roll
from fedgauss.integrations.live.lines import MOST_NAMES, Line, checked_names, short
from fedgauss.integrations.live.warm_up import WarmUp

_SHOWN = 50  # parameters whose intervals are sent
_FEWEST = 8  # plain rounds that are worth taking at once


class ParameterFeed(Feed):
    """Feeds a `Monitor`, or first its warm-up. A monitor of one client stands for the average of all.

    Which name is which of the monitor's K clients follows from all_clients, or from the first complete uploads: who
    took part may be written in any order, and says nothing of it.
    """

    longest_gap = LONGEST_GAP

    def __init__(self, watcher: Monitor | WarmUp) -> None:
        self.sync_every = watcher.sync_every
        self._watcher: Monitor | WarmUp = watcher
        self.average: RunningAverage | None = None
        self.names: tuple[str, ...] | None = None  # of all clients, in the monitor's order
        self.history, self.roll = History(), Roll(MOST_NAMES)
        self.seen_before, self.seen_round = 0, 0
        if isinstance(watcher, Monitor):
            self.average = RunningAverage(watcher.lin, watcher.steps)
            self.seen_before, self.seen_round = watcher.step, None if watcher.step else 0
        self._last: FloatArray | None = None  # parameters
        self._another = ""  # why this cannot be the run that the monitor has seen
        self._suspects: tuple[int, Attribution | str] = (-1, "")  # after how many rounds, and who

    @property
    def watcher(self) -> Monitor | WarmUp:
        """That is fed."""
        return self._watcher

    @property
    def monitor(self) -> Monitor | None:
        """None as long as there is a warm-up."""
        return self._watcher if isinstance(self._watcher, Monitor) else None

    @property
    def alarm(self) -> Verdict | None:
        """In the log's numbers of rounds."""
        first = self._watcher.alarm
        if first is None or self.history.last[0] < first.step:
            return first
        return self._renumbered(first, self.history.round_before(first.step + 1) or first.round)

    @property
    def n_clients(self) -> int | None:
        """Of the monitor, where it knows each of them."""
        return self.monitor.lin.n_clients if self.monitor is not None and self.monitor.lin.n_clients > 1 else None

    def set(self, settings: Mapping[str, Any], begun: bool) -> None:
        """There is nothing to be set."""
        raise ValueError(
            "a log with settings must be one of clients; to watch those, leave out --monitor and --hessian."
        )

    def check(self, line: Line, step: int) -> Who:
        """Who took part; a round that some clients took part in is known by their names."""
        if line.parameters is None:
            raise ValueError("a round must have 'parameters'; this one has what clients changed. Watch it as clients?")
        if step > self.seen_before and self._another:
            raise ValueError(self._another)
        sent = None if line.clients is None else tuple(line.clients)
        present = sent if line.participants is None else line.participants
        if sent is not None and present is not None and set(sent) != set(present):
            raise ValueError("clients must hold what the participants uploaded; they name other clients.")
        if (count := self.n_clients) is None:
            return Who(present, line.all_clients)
        complete = [names for names in (line.all_clients, sent) if names is not None and len(names) == count]
        everybody = self.names or next(map(tuple, complete), None)
        if line.all_clients is not None and line.all_clients != everybody:
            raise ValueError(f"all_clients must be the same {count} names in every round; they differ.")
        whole = present is not None and len(present) == count
        if present is not None and not (whole and everybody is None):
            self._places(everybody, present)
        return Who(None if whole else present, everybody)

    def _places(self, everybody: tuple[str, ...] | None, names: Sequence[str]) -> list[int]:
        """Where these clients stand in the monitor's order."""
        count = self.n_clients
        if count is None or len(names) > count:
            raise ValueError(f"a round must name at most the monitor's {count} clients; got {len(names)}.")
        if everybody is None:
            raise ValueError(
                f"who is who must be known before a round names some clients only; this one names {len(names)} of "
                f"{count}. Give all_clients, in the monitor's order, with the first round."
            )
        known = {name: k for k, name in enumerate(everybody)}
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"clients must be among the {count} known ones; {short(unknown[0])} is not.")
        return [known[name] for name in names]

    def prepare(self, line: Line, step: int) -> Outcome | None:
        """A round of the warm-up, which may end it."""
        warm, y = self._watcher, line.parameters
        if not isinstance(warm, WarmUp) or y is None:
            return None
        warm.check(y)
        far, anew = warm.add(y, step)
        self._last = y
        try:
            monitor = warm.monitor()
        except ValueError as error:
            warm.begin_anew()
            return Outcome("begun anew", f"the warm-up gave no monitor, and begins anew: {error}")
        where = f"round {line.number} (step {step})"
        if monitor is None:
            return Outcome("begun anew" if anew else "warming up", f"{where}: {far}")
        average = RunningAverage(monitor.lin, monitor.steps)
        for mean, then in warm.rows():
            average.add(mean, then, None)
        self._watcher, self.average = monitor, average
        return Outcome("quiet", f"{where}: the warm-up is over, and watching begins.")

    def judge(self, line: Line, step: int, who: Who) -> Outcome:
        """With clients in the monitor's order, and its words in the log's numbers and names."""
        monitor, average = self._begun()
        mask = sent = None
        if (count := self.n_clients) is not None:
            if who.present is not None:
                mask = participant_mask(self._places(who.everybody, [*who.present]), count)
            if line.clients is not None:
                sent = np.full((count, monitor.lin.dim), np.nan)
                for k, (name, row) in zip(
                    self._places(who.everybody, [*line.clients]), line.clients.items(), strict=True
                ):
                    if row.shape != (monitor.lin.dim,):
                        wanted = f"{monitor.lin.dim} numbers, one a parameter"
                        raise ValueError(f"client {short(name)} must upload {wanted}; got {len(row)}.")
                    sent[k] = row
        assert line.parameters is not None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", FedgaussWarning)
            verdict = monitor.update(line.parameters, clients=sent, participants=mask, step=step)
        self.note = " ".join([self.note, *(str(w.message) for w in warned)]).strip()
        if verdict.alarm and not verdict.invalid and (first := monitor.alarm) is not None:
            verdict = replace(verdict, onset=first.onset, onset_interval=first.onset_interval, rollback=first.rollback)
        verdict = self._renumbered(verdict, line.number)
        if verdict.invalid:
            return Outcome("invalid update", str(replace(verdict, note=_with_name(verdict.note, who.everybody))))
        average.add(line.parameters, step, mask)
        self._took(line.parameters, who)
        kind: Kind = "alarm" if verdict.alarm else "travelling" if verdict.travelling else "quiet"
        return Outcome(kind, str(verdict), verdict)

    def seen(self, line: Line, step: int, who: Who) -> str:
        """The last of the rounds that were judged before must be the one that the monitor remembers."""
        monitor, average = self._begun()
        assert line.parameters is not None
        y = mean_vector(line.parameters, monitor.lin.dim)
        if wrong := fault(monitor.innovations, self._last, y, None, None, None):
            raise ValueError(f"round {line.number}: {wrong}")
        last_seen = monitor.mean
        if step == self.seen_before and last_seen is not None and not np.allclose(y, last_seen):
            self._another = (
                f"rounds after step {step} must go on from where the monitor left the run; round {line.number} has "
                "other parameters there. Use this run's monitor, or one that has seen no run?"
            )
            raise ValueError(self._another)
        present = None if who.present is None or self.n_clients is None else self._places(who.everybody, [*who.present])
        average.add(y, step, None if present is None else participant_mask(present, monitor.lin.n_clients))
        self._took(y, who)
        more = f"rounds up to step {self.seen_before} are not judged again."
        return f"round {line.number} (step {step}): judged in an earlier session; {more}"

    def _took(self, y: FloatArray, who: Who) -> None:
        self._last, self.names = y, who.everybody if self.n_clients is not None else None

    def _begun(self) -> tuple[Monitor, RunningAverage]:
        assert isinstance(self._watcher, Monitor)
        assert self.average is not None
        return self._watcher, self.average

    def plain(self, lines: Iterable[Line | ValueError], kind: Kind) -> FloatArray | None:
        """Y of rounds that follow the last one and tell of nothing else, all but the last of them."""
        (step, number), tau, means = self.history.last, self.sync_every, list[FloatArray]()
        if self.monitor is None or kind not in ("quiet", "alarm", "seen before") or self._another:
            return None
        last = self.seen_before - 1 if kind == "seen before" else math.inf  # the last round seen is compared
        for line in lines:
            number, step = number + 1, step + tau
            if isinstance(line, ValueError) or step > last or not line.is_plain(number, step, tau):
                break
            if line.parameters is None or len(line.parameters) != self.monitor.lin.dim:
                break
            means.append(line.parameters)
        return np.stack(means[:-1]) if len(means) > _FEWEST else None

    def stretch(self, means: FloatArray, kind: Kind) -> tuple[int, FloatArray | None]:
        """The first of these rounds, as many as bring nothing new."""
        monitor, average = self._begun()
        assert self._last is not None  # since there was a round
        ratios: FloatArray | None = None
        contractions: Contractions | None = None
        if kind == "seen before":
            near = monitor.innovations.distances(means, np.concatenate([self._last[None], means[:-1]])) < PLAUSIBLE / 2
            count = len(near) if near.all() else int(near.argmin())  # NaN is not near
        else:
            taken = monitor.update_many(means, kind == "alarm")
            count, ratios, contractions = len(taken.statistic), taken.statistic / taken.threshold, taken.contractions
        if count:
            average.add_many(means[:count], self.sync_every, contractions)
            self._last = means[count - 1]
        return count, ratios

    def words(self) -> dict[str, Any]:
        """Who is who."""
        return {"names": self.names}

    def resume(self, words: Mapping[str, Any]) -> None:
        """Who is who, as it was."""
        if self.n_clients is not None and words.get("names") is not None:
            names = checked_names("names", words["names"])
            if len(names) != self.n_clients:
                raise ValueError(f"names in --save must be {self.n_clients}; got {len(names)}.")
            self.names = names

    def stuck(self, unjudged: int, begun_anew: int, words: str) -> str:
        """Why the warm-up does not end."""
        if not isinstance(self._watcher, WarmUp) or self._last is None:
            return ""
        if begun_anew >= IN_A_ROW:
            return f"the warm-up has begun anew {begun_anew} times; {words}"
        wanted = self._watcher.wanted(len(self._last)) + 1
        return f"{unjudged} rounds gave no warm-up of {wanted}; {words}" if unjudged > IN_A_ROW * wanted else ""

    def suspects(self) -> Attribution | str:
        """The clients behind an alarm, or why there is no table yet."""
        if self._suspects[0] != self.roll.rounds:
            self._suspects = (self.roll.rounds, self._suspects_now())
        return self._suspects[1]

    def _suspects_now(self) -> Attribution | str:
        if self.monitor is None or self.n_clients is None:
            return "Only a monitor that knows every client can tell them apart (--monitor)."
        try:
            return self.monitor.suspects()
        except ValueError as error:
            lacking = "The rounds lack what clients uploaded: nobody can be named."
            return str(error) if self.monitor.has_uploads else lacking

    def parts(self) -> dict[str, Part]:
        """Suspects, and intervals of the average."""
        return {"Suspects": self._suspects_part(), "Confidence intervals": self._intervals_part()}

    def _suspects_part(self) -> Part:
        if self._watcher.alarm is None:
            return {"rows": [], "note": "No attack has been detected, so there are no suspects."}
        found = self.suspects()
        if not isinstance(found, Attribution):
            return {"rows": [], "note": found}
        names = self.names or range(self.n_clients or 0)
        rows = [
            (str(names[row.client]), *(float(f"{x:.4g}") for x in row[1:4]), "malicious" if row.malicious else "–")
            for row in found.table
        ]
        note = (
            f"{sum(row.malicious for row in found.table)} of {len(rows)} clients called malicious. "
            f"{found.rounds_after} rounds after the alarm against {found.baseline_rounds} before the onset. "
            f"At most {found.rate:.0%} of the clients called malicious are expected to be honest. {found.note}"
        ).rstrip()
        return {"head": ("client", "statistic", "p", "q", "verdict"), "rows": rows, "note": note}

    def _intervals_part(self) -> Part:
        intervals = None if self.average is None else self.average.intervals()
        if intervals is None:
            why = "yet" if self.average is not None else "before the warm-up is over: A and V are not known"
            return {"rows": [], "note": f"There are no intervals {why}."}
        each = zip(intervals.average.tolist(), intervals.low.tolist(), intervals.high.tolist(), strict=True)
        rows = [(str(i), *_to_width(*row)) for i, row in enumerate(each) if i < _SHOWN]
        note = (
            f"Average of the parameters over {intervals.rounds} rounds, with {intervals.level:.0%} intervals for "
            "the optimum, each for one parameter alone. They rest on the monitor's A and V, and a start near it."
        )
        if self.roll.uneven:
            note += " Some rounds lacked clients: where clients differ, intervals are then too short."
        if self._watcher.alarm is not None:
            note += " Rounds after the onset count too: do not rely on them after an attack."
        if len(intervals.average) > _SHOWN:
            note += f" The first {_SHOWN} of {len(intervals.average)} parameters are shown."
        return {"head": ("parameter", "average", "from", "to"), "rows": rows, "note": note}

    def _renumbered(self, verdict: Verdict, number: int) -> Verdict:
        """With the log's numbers of rounds: the monitor counts only those it took in."""
        first = verdict.onset if verdict.onset_interval is None else verdict.onset_interval[0]
        before = None if first is None else self.history.round_before(first)
        return replace(verdict, round=number, rollback=verdict.rollback if before is None else before)


def _with_name(note: str, everybody: Sequence[str] | None) -> str:
    """The monitor's words with a client's name in place of its number."""
    if everybody is None:
        return note
    return re.sub(r"(?<=client )\d+", lambda found: short(everybody[int(found[0])]), note)


def _to_width(*interval: float) -> tuple[float, ...]:
    """The average and the ends of its interval, to as many decimals as the interval is wide."""
    width = interval[2] - interval[1]
    decimals = math.ceil(1.3 - math.log10(width)) if 0.0 < width < math.inf else 15
    return tuple(round(x, max(decimals, 0)) for x in interval)
