"""Runs under attack, fed to a monitor round by round as a server would feed it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedgauss.demo.setup import DemoSetup, StagedAttack
from fedgauss.detect.attribution import Attribution, attribute
from fedgauss.detect.client_rounds import client_innovations
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.runs import watch_runs
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watch import rounds_to_drop
from fedgauss.engine import observers
from fedgauss.engine.simulate import Runs, simulate
from fedgauss.problems.linearize import linearize

_ASKED = 50  # runs whose clients are asked for, at most: one costs as much as twenty that are only watched
_RATE = 0.10  # of false discoveries, the default of `Monitor.suspects`


@dataclass(frozen=True)
class Repeats:
    """How many runs alarm when, and which clients they name: one run is not taken for the rule.

    before, after, never   runs by their first alarm: before the attack, after it, none
    delay                  the median over `after`, in malicious steps; None where there are none
    honest                 runs that alarm without an attack
    asked                  runs of `after`, among the first 50, that go on long enough to ask for the clients
    found                  attackers named in those, on average; None where there are none, as `wrong`
    accused                those that name an honest client as well
    wrong                  the share of honest clients among those named in a run, on average; `rate` is allowed
    """

    runs: int
    before: int
    after: int
    never: int
    delay: float | None
    honest: int
    asked: int
    found: float | None
    accused: int
    wrong: float | None
    rate: float = _RATE


@dataclass(frozen=True)
class WatchedAttack:
    """What the monitor said of the first run after each round, which clients it named, and how all runs fared."""

    attack: StagedAttack
    verdicts: tuple[Verdict, ...]
    asked: int  # the step after which the clients were asked for; 0 without an alarm
    suspects: Attribution | None
    unnamed: str  # why nobody could be named after an alarm
    repeats: Repeats

    @property
    def alarm(self) -> Verdict | None:
        """The first alarm."""
        return next((verdict for verdict in self.verdicts if verdict.alarm), None)

    @property
    def attackers(self) -> tuple[int, ...]:
        """Those malicious when the clients were asked for: nobody yet, after an early false alarm."""
        return self.attack.attackers if self.asked >= self.attack.begins else ()


def watch_attack(attack: StagedAttack, setup: DemoSetup, tick: Callable[[int, int], None]) -> WatchedAttack:
    """Simulate with and without the attack, over the same random numbers, and monitor both.

    The monitor knows the Hessians and the gradient noise of honest clients, and nothing of the attack.
    """
    lin = linearize(attack.honest)

    def runs(begins: int) -> Runs:
        return simulate(
            attack.problem(begins),
            setup.network,
            setup.steps,
            attack.n_steps,
            sync_every=setup.sync_every,
            replicates=attack.replicates,
            seed=setup.seed,
            start=lin.optimum,
            observe=[observers.uploads(setup.sync_every), observers.path(setup.sync_every)],
            progress=False,
        )

    tick(0, 3)
    attacked = runs(attack.begins)
    tick(1, 3)
    honest = runs(attack.n_steps + 1)  # an attack that never begins: both share a compilation
    tick(2, 3)
    monitor = Monitor(lin, setup.steps, sync_every=setup.sync_every, horizon=attack.n_steps, start=lin.optimum)
    told = _told(monitor, attacked, attack.wait)
    repeats = _repeats(attack, setup, monitor, attacked, honest)
    tick(3, 3)
    return WatchedAttack(attack, *told, repeats)


def _told(monitor: Monitor, runs: Runs, wait: int) -> tuple[tuple[Verdict, ...], int, Attribution | None, str]:
    """All verdicts on the first run; then when the clients were asked for, what was said, or why nothing was.

    That is `wait` steps after the alarm, or at the end of the run where it comes sooner.
    """
    verdicts: list[Verdict] = []
    end, asked = monitor.sync_every * len(runs.path[0]), 0
    suspects, unnamed = None, ""
    for y, began, sent in zip(runs.path[0], runs.began[0], runs.sent[0], strict=True):
        verdict = monitor.update(y, clients=sent, began=began)
        verdicts.append(verdict)
        if verdict.alarm and not asked:
            asked = min(verdict.step + wait, end)
        if verdict.step == asked:
            try:
                suspects = monitor.suspects()
            except ValueError as error:  # too few rounds before the onset, or none after the alarm
                unnamed = str(error)
    return tuple(verdicts), asked, suspects, unnamed


def _repeats(attack: StagedAttack, setup: DemoSetup, monitor: Monitor, attacked: Runs, honest: Runs) -> Repeats:
    """Watch all runs as this monitor watches one; ask those with an alarm after the attack for the clients."""
    lin, steps, tau = linearize(attack.honest), setup.steps, setup.sync_every
    pulls, honest_pulls = (client_innovations(runs.began, runs.sent, lin, steps, tau) for runs in (attacked, honest))
    seen, unattacked = (
        watch_runs(lin, steps, path, tau, monitor.boundary, lin.optimum, horizon=attack.n_steps, pulls=theirs)
        for path, theirs in ((attacked.path, pulls), (honest.path, honest_pulls))
    )
    alarm, guilty = seen.alarm_step, set(attack.attackers)
    after = alarm >= attack.begins
    drop, named = rounds_to_drop(tau), []
    for r, onset in enumerate(seen.alarm_onset[:_ASKED]):
        rung, clean = int(alarm[r]) // tau, int(onset - 1) // tau
        last = rung + attack.wait // tau
        if after[r] and last <= len(seen.steps) and clean >= drop + 2:  # a baseline has two rounds
            named.append(set(attribute(pulls[r, :last], clean, rung, lin, rate=_RATE, burn_in=drop).malicious))
    return Repeats(
        runs=len(alarm),
        before=int(((alarm > 0) & ~after).sum()),
        after=int(after.sum()),
        never=int((alarm == 0).sum()),
        delay=float(np.median(alarm[after] - attack.begins + 1)) if after.any() else None,
        honest=int((unattacked.alarm_step > 0).sum()),
        asked=len(named),
        found=_mean([len(guilty & one) for one in named]),
        accused=sum(bool(one - guilty) for one in named),
        wrong=_mean([len(one - guilty) / max(len(one), 1) for one in named]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
