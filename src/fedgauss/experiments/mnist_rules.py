"""The default rule on the MNIST table, told A and V by each run's own warm-up, and the paper's rule told them exactly.

In 40 dimensions thresholds that allow for an estimated V are simulated, in about a second. They differ between runs by
a per cent or so, and a simulation for each run would take most of the time: the first four runs have theirs simulated,
and every run takes one of the four in turn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import TYPE_CHECKING

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.innovations import innovations
from fedgauss.detect.paper_rule import Alarms
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.experiments.attack_rules import (
    RIGHT_TUNED,
    RIGHT_ZERO,
    UNDER_TUNED,
    Family,
    Judged,
    Known,
    Trace,
    family,
)
from fedgauss.experiments.mnist_setting import FlipAttack

if TYPE_CHECKING:
    from fedgauss.problems.arrays import ArrayProblem

WARM_UPS = (100, 200, 500)
_FROM_WARM_START = (UNDER_TUNED, RIGHT_TUNED, RIGHT_ZERO)  # the c of the fourth was found by trying, on another table
_AT_OPTIMUM = {rule: f"{rule}, at optimum" for rule in _FROM_WARM_START}
_WARMED = {steps: f"innovation, warm-up {steps}" for steps in WARM_UPS}
RIGHT_AT_OPTIMUM, WARMED_LONGEST = _AT_OPTIMUM[RIGHT_TUNED], _WARMED[WARM_UPS[-1]]
OPTIMUM_RULES, WARMED_RULES = tuple(_AT_OPTIMUM.values()), tuple(_WARMED.values())
MNIST_RULES = (*_FROM_WARM_START, *OPTIMUM_RULES, *WARMED_RULES)

_SIMULATED = 4  # runs with thresholds of their own
_ALPHA = 0.05


def judged_by_default(
    attack: FlipAttack, clients: ArrayProblem, warm_up: int, starts: FloatArray, cases: Sequence[FloatArray], seed: int
) -> list[Judged]:
    """What the default says of the runs of each case: Y after each round, (R, J, d), from these starts (R, d)."""
    means = np.stack(cases, axis=1)
    limits: list[Boundary] = []
    seen: list[WatchedRuns] = []
    for run, (start, one) in enumerate(zip(starts, means, strict=True)):
        lin = attack.reported(clients, warm_up, start, seed, run)
        if run < _SIMULATED:
            limits.append(_thresholds(attack, lin))
        # Both cases of a run share their start and what the clients reported: the monitor watches them together.
        seen.append(watch_runs(lin, attack.schedule, one, attack.sync_every, limits[run % _SIMULATED], start))
    return [_judged(_WARMED[warm_up], seen, limits[0], case) for case in range(len(cases))]


def _thresholds(attack: FlipAttack, lin: Linearization) -> Boundary:
    with redirect_stderr(io.StringIO()):  # a bar of its own would disturb that of the sweep
        white = innovations(lin, attack.schedule).whitening
        return boundary(lin.dim, attack.sync_every, _ALPHA, attack.n_steps, whitening=white)


def _judged(rule: str, seen: Sequence[WatchedRuns], first_limits: Boundary, case: int) -> Judged:
    step, onset = (np.array([getattr(run, name)[case] for run in seen]) for name in ("alarm_step", "alarm_onset"))
    # A monitor names the first step after the change, and 0 where it says nothing.
    alarms, first = Alarms(step, np.maximum(onset - 1, 0)), seen[0]
    threshold = np.array([first_limits.at(int(t))[0] for t in first.steps])
    return Judged({rule: alarms}, Trace(rule, first.steps.astype(float), first.mean[:, case], threshold))


def papers_rules(attack: FlipAttack, lin: Linearization, bootstraps: int, from_optimum: bool) -> Family:
    """The paper's rule with these A and V. On runs from the optimum it has names of its own, and shows no run."""
    known = Known(lin, attack.schedule, attack.n_steps, attack.sync_every, _ALPHA, bootstraps)
    facts, judge = family("paper", known)
    names = _AT_OPTIMUM if from_optimum else {rule: rule for rule in _FROM_WARM_START}

    def renamed(paths: FloatArray) -> Judged:
        alarms, trace = judge(paths)
        return Judged({names[rule]: alarms[rule] for rule in names}, None if from_optimum else trace)

    return Family([fact._replace(rule=names[fact.rule]) for fact in facts if fact.rule in names], renamed)
