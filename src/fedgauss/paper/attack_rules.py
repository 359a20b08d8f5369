"""The rules that an attack table sets side by side, in three sets of rules that share their statistic."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray, IntArray
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
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.thresholds import Boundary
from fedgauss.detect.watch import rounds_to_drop
from fedgauss.paper.attack import AttackSetting, RuleNumber, RunsJudged, RunTrace

UNDER_FOUND = "under-scaled, c = 0.78"
UNDER_TUNED = "under-scaled, c tuned"
RIGHT_TUNED = "right scale, c tuned"
RIGHT_ZERO = "right scale, c = 0"
STUDENTISED = "studentised R"
INNOVATION = "innovation, horizon"
OPEN_ENDED = "innovation, no horizon"
E_PROCESS = "e-process"
PAPER_RULES = (UNDER_FOUND, UNDER_TUNED, RIGHT_TUNED, RIGHT_ZERO)
OTHER_RULES = (STUDENTISED, INNOVATION, OPEN_ENDED, E_PROCESS)
CONSTANT, GAUSSIAN_RATE = "c", "Gaussian false alarms"

ALPHA = 0.05
_FOUND_C = 0.78  # the paper states no c; this one was found by trying which comes nearest to its table
_BURN_IN, _FIRST_LOOK = 20, 40  # steps, of the studentised rule


class RuleSet(NamedTuple):
    """Rules that share their statistic: what is known of them beforehand, and what they say of paths (R, n, d)."""

    numbers: list[RuleNumber]
    judge: Callable[[FloatArray], RunsJudged]


def paper_rules(attack: AttackSetting, lin: Linearization, paths: int) -> RuleSet:
    """Algorithm 2: noise scaled as printed or rightly, and c found by trying, by cross-validation, or left out.

    Like every rule here it is told A and V_K of honest runs, `lin`, and has so many Gaussian `paths` for a threshold.
    """
    bootstrap = Bootstrap(lin, attack.steps, attack.n_steps, replicates=paths)
    boundaries = {
        UNDER_FOUND: paper_boundary(bootstrap, ALPHA, _FOUND_C, "printed"),
        UNDER_TUNED: paper_boundary(bootstrap, ALPHA, "cross-validated", "printed"),
        RIGHT_TUNED: paper_boundary(bootstrap, ALPHA, "cross-validated"),
        RIGHT_ZERO: paper_boundary(bootstrap, ALPHA),
    }
    return _cusum_rules(bootstrap, boundaries, shown=RIGHT_TUNED)


def _studentised_rule(attack: AttackSetting, lin: Linearization, paths: int) -> RuleSet:
    """R_t over its own quantile against the quantile of the largest such ratio: time-uniform, and without a c."""
    bootstrap = Bootstrap(lin, attack.steps, attack.n_steps, burn_in=_BURN_IN, replicates=paths)
    return _cusum_rules(bootstrap, {STUDENTISED: studentised_boundary(bootstrap, ALPHA, _FIRST_LOOK)})


def _cusum_rules(bootstrap: Bootstrap, boundaries: dict[str, CusumBoundary], shown: str | None = None) -> RuleSet:
    numbers = [RuleNumber(rule, GAUSSIAN_RATE, *one.family_wise) for rule, one in boundaries.items()]
    numbers += [RuleNumber(rule, CONSTANT, one.c, 0.0) for rule, one in boundaries.items() if rule in PAPER_RULES]

    def judge(runs: FloatArray) -> RunsJudged:
        statistic, onset = bootstrap.watched(runs)
        alarms = {rule: first_alarms(one, statistic, onset) for rule, one in boundaries.items()}
        if shown is None:
            return RunsJudged(alarms, None)
        steps = bootstrap.every * np.arange(1, statistic.shape[1] + 1)
        return RunsJudged(alarms, RunTrace(shown, steps, statistic[0], boundaries[shown].values))

    return RuleSet(numbers, judge)


def _innovation_rules(attack: AttackSetting, lin: Linearization, paths: int) -> RuleSet:
    """The monitor's default, for a run of known and of unknown length, and the e-process; all look at syncs only,
    and have thresholds that need no paths."""
    tau = attack.sync_every
    limits = {
        INNOVATION: Monitor(lin, attack.steps, tau, ALPHA, attack.n_steps).boundary,
        OPEN_ENDED: Monitor(lin, attack.steps, tau, ALPHA).boundary,
    }

    def judge(runs: FloatArray) -> RunsJudged:
        means = runs[:, tau - 1 :: tau]
        seen = {rule: watch_runs(lin, attack.steps, means, tau, limit) for rule, limit in limits.items()}
        alarms = {rule: monitor_alarms(one.alarm_step, one.alarm_onset) for rule, one in seen.items()}
        alarms[E_PROCESS] = _bet(attack, lin, means)
        return RunsJudged(alarms, monitor_trace(INNOVATION, seen[INNOVATION], limits[INNOVATION]))

    return RuleSet([], judge)


# By the name that cells have for them.
RULE_SETS: dict[str, Callable[[AttackSetting, Linearization, int], RuleSet]] = {
    "paper": paper_rules,
    "studentised": _studentised_rule,
    "innovation": _innovation_rules,
}


def monitor_alarms(step: IntArray, onset: IntArray) -> Alarms:
    """First alarms as a monitor has them: its onset is the first step after the change, and 0 without an alarm."""
    return Alarms(step, np.maximum(onset - 1, 0))


def monitor_trace(rule: str, seen: WatchedRuns, limits: Boundary, run: int = 0) -> RunTrace:
    """The mean channel of a monitor over one of the runs it has watched."""
    threshold = np.array([limits.at(int(step))[0] for step in seen.steps])
    return RunTrace(rule, seen.steps, seen.statistics["mean"][:, run], threshold)


def _bet(attack: AttackSetting, lin: Linearization, means: FloatArray) -> Alarms:
    """First alarms of the e-process on Y after each round, (R, J, d); the rounds that a monitor drops are left out."""
    parts, tau = innovations(lin, attack.steps), attack.sync_every
    rounds = range(max(1, rounds_to_drop(tau)), means.shape[1])  # the first has no Y before it
    blocks = [parts.block(j * tau, (j + 1) * tau) for j in rounds]
    whitened = [
        parts.whiten(block, means[:, j - 1].T, means[:, j].T).T for j, block in zip(rounds, blocks, strict=True)
    ]
    x, weights = np.stack(whitened, axis=1), np.array([block.weight for block in blocks])
    over = e_process_paths(x, weights) >= -np.log(ALPHA)
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
