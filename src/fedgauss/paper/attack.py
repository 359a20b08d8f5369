r"""Detecting when an attack starts: runs without and with one, and the first alarms of several rules on them.

The paper's probability of detection counts every run with an alarm, whenever it comes, and its means are over those
runs. So do the measures of `PRINTED`. Of an attack after step t_0 there are four more: an alarm at or before t_0 cannot
be due to it, so power counts runs whose first alarm comes after t_0, and delay T - t_0 and miss |s - t_0| are means
over these. T is the step of the alarm, s the onset it names: the last step before the change.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fedgauss import networks, step_sizes
from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.paper_rule import Alarms
from fedgauss.paper.judging import Part
from fedgauss.paper.result import OtherRows, Result, Section

if TYPE_CHECKING:
    from fedgauss.engine.loop import Start
    from fedgauss.problems.base import Problem
    from fedgauss.step_sizes import StepSizes

DETECTED = "P(detect)"
ONSET = ("s_hat mean", "s_hat low", "s_hat high")
ALARM = ("T_hat mean", "T_hat low", "T_hat high")
PRINTED = (DETECTED, *ONSET, *ALARM)
EARLY, POWER, DELAY, MISS = "early alarms", "power", "delay", "onset miss"
TRACE = "trace"  # of one run over time, a row for each step: it is for figures

_POINTS = (2.5, 97.5)  # per cent, between which the paper's intervals lie
_RESAMPLED = 200  # times, for the error of these points
_FEWEST = 2  # alarms from which a mean has an error


@dataclass(frozen=True)
class AttackRow:
    """A number that belongs to a rule, to a rule in one case, or to a rule in one step of a run.

    measure      what `estimate` is, with its Monte-Carlo `error`
    curve, x     the case, in words and as the size of the attack, 0 for none; missing where the number belongs to the
                 rule whatever the case
    onset        t_0, missing in the case without an attack
    step         of a run over time, where `estimate` is the statistic and `threshold` its limit, if it has one there
    alarm, named the step of that run's first alarm and the onset this names; 0 where there is none
    """

    result: str
    rule: str
    measure: str
    estimate: float
    error: float | None = None
    curve: str | None = None
    x: float | None = None
    n: int | None = None
    K: int | None = None
    onset: int | None = None
    replicates: int | None = None
    step: int | None = None
    alarm: int | None = None
    named: int | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class AttackSetting:
    """Clients on a ring, some of whom attack after step `onset`.

    cases    sizes of the attack, 0 for none; `across` is their symbol
    traced   the case whose first run is kept over time
    """

    across: ClassVar[str]

    cases: tuple[float, ...]
    traced: float
    n_clients: int
    n_steps: int
    onset: int
    sync_every: int
    eta0: float = 0.3
    beta: float = 0.75

    @property
    def steps(self) -> StepSizes:
        """eta_t = eta0 t^-beta."""
        return step_sizes.polynomial(self.eta0, self.beta)

    def simulated(
        self, problem: Problem, n_steps: int, replicates: int, seed: int, start: Start, every: int
    ) -> FloatArray:
        """Y after every so many steps of every run, (R, n / every, d)."""
        from fedgauss.engine.observers import path
        from fedgauss.engine.simulate import simulate

        runs = simulate(
            problem,
            networks.ring(self.n_clients),
            self.steps,
            n_steps,
            sync_every=self.sync_every,
            replicates=replicates,
            seed=seed,
            start=start,
            observe=[path(every)],
            progress=False,
        )
        return runs.path.astype(np.float64)


class RuleNumber(NamedTuple):
    """A number that belongs to a rule, whatever the runs are, with its error."""

    rule: str
    measure: str
    estimate: float
    error: float


class RunTrace(NamedTuple):
    """A statistic and its threshold over the steps of one run."""

    rule: str
    steps: IntArray
    statistic: FloatArray
    threshold: FloatArray


class RunsJudged(NamedTuple):
    """The first alarms of every run under each rule, and the first run over time under one of them."""

    alarms: dict[str, Alarms]
    trace: RunTrace | None


# What is known of each rule beforehand, and what the rules say of the runs of each case.
Judgement = tuple[list[RuleNumber], Iterable[RunsJudged]]


@dataclass(frozen=True, kw_only=True)
class AttackCell(abc.ABC):
    """Some rules on the runs of every case. Cells with one seed see the same runs, so that rules can be compared."""

    result: str
    attack: AttackSetting
    replicates: int
    seed: int = 1

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs."""
        return f"{type(self).__name__} {self.replicates}"

    @abc.abstractmethod
    def judged(self) -> Judgement:
        """What is known of each rule beforehand, and what the rules say of the runs of each case."""

    def run(self) -> list[AttackRow]:
        """What is known of each rule, what became of each case under it, and one run over time."""
        attack = self.attack
        numbers, judged = self.judged()
        rows = [AttackRow(self.result, *number) for number in numbers]
        for x, runs in zip(attack.cases, judged, strict=True):
            onset = attack.onset if x else None
            row = partial(
                AttackRow,
                self.result,
                curve=f"{attack.across}={x:g}",
                x=x,
                n=attack.n_steps,
                K=attack.n_clients,
                onset=onset,
                replicates=self.replicates,
            )
            for rule, alarms in runs.alarms.items():
                rows += [row(rule, measure, *found) for measure, found in alarm_measures(alarms, onset).items()]
            if x == attack.traced:
                rows += [row(**columns) for columns in _over_time(runs)]
        return rows


def alarm_measures(alarms: Alarms, attacked_after: int | None) -> dict[str, tuple[float, float]]:
    """The measures of one rule in one case, each with its error. `attacked_after` is t_0, None for honest runs.

    A mean over too few runs to have an error is left out.
    """
    step, onset = alarms
    alarmed = step > 0
    measures = {DETECTED: _share(alarmed)}
    for names, values in ((ONSET, onset[alarmed]), (ALARM, step[alarmed])):
        if len(values) >= _FEWEST:
            measures |= zip(names, (_mean(values), *_points(values)), strict=True)
    if attacked_after is None:
        return measures
    hit = step > attacked_after
    measures |= {EARLY: _share(alarmed & ~hit), POWER: _share(hit)}
    if hit.sum() >= _FEWEST:
        measures[DELAY] = _mean(step[hit] - attacked_after)
        measures[MISS] = _mean(np.abs(onset[hit] - attacked_after))
    return measures


def _share(runs: BoolArray) -> tuple[float, float]:
    share = float(runs.mean())
    return share, float(np.sqrt(share * (1.0 - share) / len(runs)))


def _mean(values: IntArray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def _points(values: IntArray) -> list[tuple[float, float]]:
    """Both percentiles, with standard errors over resampled runs; the choice of these is always the same."""
    chosen = np.random.default_rng(0).integers(len(values), size=(_RESAMPLED, len(values)))
    errors = np.percentile(values[chosen], _POINTS, axis=1).std(axis=1, ddof=1)
    return [(float(point), float(error)) for point, error in zip(np.percentile(values, _POINTS), errors, strict=True)]


def _over_time(runs: RunsJudged) -> list[dict[str, Any]]:
    """The columns of the first run over time, if the rules show one; its alarm and the onset stand on every row."""
    if runs.trace is None:
        return []
    rule, steps, statistic, threshold = runs.trace
    alarm, named = (int(values[0]) for values in runs.alarms[rule])
    common = {"rule": rule, "measure": TRACE, "alarm": alarm, "named": named}
    return [
        common | {"step": int(t), "estimate": float(value), "threshold": float(limit) if np.isfinite(limit) else None}
        for t, value, limit in zip(steps, statistic, threshold, strict=True)
    ]


@dataclass(frozen=True)
class AttackResult(Result):
    """A table of the paper on detecting an attack, and other rules beside the paper's.

    part         the printed numbers, and why ours differ
    papers       the paper's rules, which are judged by the printed numbers
    others       the rules beside these
    default      the one of them that a monitor uses unless told otherwise, shown over time under `heading`
    compared     the rules that sentences compare
    shared_runs  which rules see the same runs; {runs} stands for their number
    """

    row = AttackRow
    quick: ClassVar[bool] = False

    part: Part
    papers: tuple[str, ...]
    others: tuple[str, ...]
    default: str
    heading: str
    compared: tuple[str, ...]
    shared_runs: str

    def section(self, rows: Sequence[AttackRow], others: OtherRows) -> Section:
        """Rules of detection side by side with the paper's numbers."""
        from fedgauss.paper.attack_figures import drawings
        from fedgauss.paper.attack_report import AttackReport

        report = AttackReport(self, rows)
        return Section(
            self,
            report.outcome.verdict,
            report.summary(),
            report.findings(),
            drawings(report, rows),
            report.tables(),
            self.part.why,
            (report.outcome,),
        )
