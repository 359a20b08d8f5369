"""The rules that an attack table sets side by side, in three families of what they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.eprocess import e_process_paths
from fedgauss.detect.innovations import innovations
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.paper_rule import (
    Alarms,
    Bootstrap,
    CusumBoundary,
    first_alarms,
    paper_boundary,
    studentised_boundary,
)
from fedgauss.detect.runs import watch_runs
from fedgauss.detect.watch import rounds_to_drop
from fedgauss.step_sizes import StepSizes

UNDER_FOUND = "under-scaled, c = 0.78"
UNDER_TUNED = "under-scaled, c tuned"
RIGHT_TUNED = "right scale, c tuned"
RIGHT_ZERO = "right scale, c = 0"
STUDENTISED = "studentised R"
INNOVATION = "innovation, horizon"
OPEN_ENDED = "innovation, no horizon"
E_PROCESS = "e-process"
PAPER_RULES = (UNDER_FOUND, UNDER_TUNED, RIGHT_TUNED, RIGHT_ZERO)
RULES = (*PAPER_RULES, STUDENTISED, INNOVATION, OPEN_ENDED, E_PROCESS)

_FOUND_C = 0.78  # the paper states no c; this one was found by trying which comes nearest to its table
_BURN_IN, _FIRST_LOOK = 20, 40  # steps, of the studentised rule
FamilyName = Literal["paper", "studentised", "innovation"]


@dataclass(frozen=True)
class Known:
    """What rules are told: A and V_K of honest runs, step sizes, length, rounds, level and bootstrap paths B."""

    lin: Linearization
    steps: StepSizes
    n_steps: int
    sync_every: int
    alpha: float = 0.05
    bootstraps: int = 1000


class Fact(NamedTuple):
    """A number that belongs to a rule, whatever the runs are, with its error."""

    rule: str
    measure: Literal["c", "Gaussian false alarms"]
    estimate: float
    error: float


class Trace(NamedTuple):
    """A statistic and its threshold over the steps of one run."""

    rule: str
    steps: FloatArray
    statistic: FloatArray
    threshold: FloatArray


class Judged(NamedTuple):
    """The first alarms of every run under each rule, and the first run over time under one of them."""

    alarms: dict[str, Alarms]
    trace: Trace | None


class Family(NamedTuple):
    """Rules that share their statistic: what is known of them beforehand, and what they say of paths (R, n, d)."""

    facts: list[Fact]
    judge: Callable[[FloatArray], Judged]


def family(name: FamilyName, known: Known) -> Family:
    """The rules of one family, calibrated."""
    return {"paper": _paper, "studentised": _studentised, "innovation": _innovation}[name](known)


def _paper(known: Known) -> Family:
    """Algorithm 2: noise scaled as printed or rightly, and c found by trying, by cross-validation, or left out."""
    bootstrap = Bootstrap(known.lin, known.steps, known.n_steps, replicates=known.bootstraps)
    alpha = known.alpha
    boundaries = {
        UNDER_FOUND: paper_boundary(bootstrap, alpha, _FOUND_C, "printed"),
        UNDER_TUNED: paper_boundary(bootstrap, alpha, "cross-validated", "printed"),
        RIGHT_TUNED: paper_boundary(bootstrap, alpha, "cross-validated"),
        RIGHT_ZERO: paper_boundary(bootstrap, alpha),
    }
    return _cusum_family(bootstrap, boundaries, shown=RIGHT_TUNED)


def _studentised(known: Known) -> Family:
    """R_t over its own quantile against the quantile of the largest such ratio: time-uniform, and without a c."""
    bootstrap = Bootstrap(known.lin, known.steps, known.n_steps, burn_in=_BURN_IN, replicates=known.bootstraps)
    return _cusum_family(bootstrap, {STUDENTISED: studentised_boundary(bootstrap, known.alpha, _FIRST_LOOK)})


def _cusum_family(bootstrap: Bootstrap, boundaries: dict[str, CusumBoundary], shown: str | None = None) -> Family:
    facts = [Fact(rule, "Gaussian false alarms", *one.family_wise) for rule, one in boundaries.items()]
    facts += [Fact(rule, "c", one.c, 0.0) for rule, one in boundaries.items() if rule in PAPER_RULES]

    def judge(paths: FloatArray) -> Judged:
        statistic, onset = bootstrap.watched(paths)
        alarms = {rule: first_alarms(one, statistic, onset) for rule, one in boundaries.items()}
        steps = bootstrap.every * np.arange(1.0, statistic.shape[1] + 1.0)
        return Judged(alarms, None if shown is None else Trace(shown, steps, statistic[0], boundaries[shown].values))

    return Family(facts, judge)


def _innovation(known: Known) -> Family:
    """The monitor's default, for a run of known and of unknown length, and the e-process; all look at syncs only."""
    lin, tau = known.lin, known.sync_every
    limits = {
        INNOVATION: Monitor(lin, known.steps, tau, known.alpha, known.n_steps).boundary,
        OPEN_ENDED: Monitor(lin, known.steps, tau, known.alpha).boundary,
    }

    def judge(paths: FloatArray) -> Judged:
        means = paths[:, tau - 1 :: tau]
        seen = {rule: watch_runs(lin, known.steps, means, tau, limit) for rule, limit in limits.items()}
        # A monitor names the first step after the change, and 0 where it says nothing.
        alarms = {rule: Alarms(one.alarm_step, np.maximum(one.alarm_onset - 1, 0)) for rule, one in seen.items()}
        alarms[E_PROCESS] = _bet(known, means)
        steps = seen[INNOVATION].steps
        threshold = np.array([limits[INNOVATION].at(int(step))[0] for step in steps])
        return Judged(alarms, Trace(INNOVATION, steps.astype(float), seen[INNOVATION].mean[:, 0], threshold))

    return Family([], judge)


def _bet(known: Known, means: FloatArray) -> Alarms:
    """First alarms of the e-process on Y after each round, (R, J, d); the rounds that a monitor drops are left out."""
    parts, tau = innovations(known.lin, known.steps), known.sync_every
    rounds = range(max(1, rounds_to_drop(tau)), means.shape[1])  # the first has no Y before it
    blocks = [parts.block(j * tau, (j + 1) * tau) for j in rounds]
    whitened = [
        parts.whiten(block, means[:, j - 1].T, means[:, j].T).T for j, block in zip(rounds, blocks, strict=True)
    ]
    x, weights = np.stack(whitened, axis=1), np.array([block.weight for block in blocks])
    over = e_process_paths(x, weights) >= -np.log(known.alpha)
    alarmed, count = over.any(axis=1), over.argmax(axis=1) + 1
    dropped = rounds[0]
    onset = np.array([_likeliest(one[:t], weights[:t]) for one, t in zip(x, count, strict=True)])
    return Alarms(np.where(alarmed, (dropped + count) * tau, 0), np.where(alarmed, (dropped + onset) * tau, 0))


def _likeliest(x: FloatArray, weights: FloatArray) -> int:
    """The s with the largest likelihood of a change after it, |S_s - (W_s/W_t) S_t|^2 / (W_s (1 - W_s/W_t))."""
    if len(x) < 2:
        return 0
    mass, sums = np.cumsum(weights), np.cumsum(weights[:, None] * x, axis=0)
    share = mass[:-1] / mass[-1]
    gap = ((sums[:-1] - share[:, None] * sums[-1]) ** 2).sum(axis=1)
    return int(np.argmax(gap / (mass[:-1] * (1.0 - share)))) + 1
