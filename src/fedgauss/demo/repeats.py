"""The attack many times over, so that one run is not taken for the rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss.demo.attack import Attack
from fedgauss.detect.attribution import attribute
from fedgauss.detect.client_rounds import client_innovations
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.thresholds import Boundary
from fedgauss.detect.watch import rounds_to_drop
from fedgauss.engine.runs import Runs
from fedgauss.step_sizes import StepSizes

_ASKED = 50  # runs whose clients are asked for, at most: one costs as much as twenty that are only watched
_RATE = 0.10  # of false discoveries, the default of `Monitor.suspects`


@dataclass(frozen=True)
class Repeats:
    """How many runs alarm when, and whom they name.

    before, after, never   runs by their first alarm: before the attack, after it, none
    delay                  the median over `after`, in malicious steps; 0 where there is none
    honest                 runs that alarm without an attack
    asked                  runs of `after`, among the first 50, that go on long enough to ask for the clients
    found                  attackers named in those, on average
    accused                those that name an honest client as well
    wrong                  the share of honest clients among those named in a run, on average; `rate` is allowed
    """

    runs: int
    before: int
    after: int
    never: int
    delay: float
    honest: int
    asked: int
    found: float
    accused: int
    wrong: float
    rate: float


def count_repeats(
    attack: Attack,
    lin: Linearization,
    steps: StepSizes,
    sync_every: int,
    limits: Boundary,
    attacked: Runs,
    honest: Runs,
) -> Repeats:
    """Watch all runs as the monitor with these limits watches one."""
    seen, alone = (
        watch_runs(lin, steps, runs.path, sync_every, limits, start=lin.optimum) for runs in (attacked, honest)
    )
    alarm = seen.alarm_step
    after = alarm >= attack.begins
    named = _named(attack, lin, steps, sync_every, attacked, seen)
    guilty = set(attack.attackers)
    return Repeats(
        runs=len(alarm),
        before=int(((alarm > 0) & ~after).sum()),
        after=int(after.sum()),
        never=int((alarm == 0).sum()),
        delay=float(np.median(alarm[after] - attack.begins + 1)) if after.any() else 0.0,
        honest=int((alone.alarm_step > 0).sum()),
        asked=len(named),
        found=_mean([len(guilty & one) for one in named]),
        accused=sum(bool(one - guilty) for one in named),
        wrong=_mean([len(one - guilty) / max(len(one), 1) for one in named]),
        rate=_RATE,
    )


def _named(
    attack: Attack, lin: Linearization, steps: StepSizes, sync_every: int, runs: Runs, seen: WatchedRuns
) -> list[set[int]]:
    """The clients named `wait` steps after each alarm that follows the attack, in the first runs."""
    drop, wait = rounds_to_drop(sync_every), attack.wait // sync_every
    named = []
    for r, (step, onset) in enumerate(zip(seen.alarm_step[:_ASKED], seen.alarm_onset[:_ASKED], strict=True)):
        alarm, clean = int(step) // sync_every, int(onset - 1) // sync_every
        last = alarm + wait
        if step >= attack.begins and last <= len(seen.steps) and clean >= drop + 2:  # a baseline has two rounds
            rounds = client_innovations(runs.began[r, :last], runs.sent[r, :last], lin, steps, sync_every)
            named.append(set(attribute(rounds, clean, alarm, lin, rate=_RATE, burn_in=drop).malicious))
    return named


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0
