"""A run under attack, fed to a monitor round by round as a server would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fedgauss._linearization import Linearization
from fedgauss.demo.attack import Attack
from fedgauss.demo.repeats import Repeats, count_repeats
from fedgauss.demo.setup import Setup
from fedgauss.detect.attribution import Attribution
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.engine import observers
from fedgauss.engine.runs import Runs
from fedgauss.engine.simulate import simulate
from fedgauss.problems.linearize import linearize


@dataclass(frozen=True)
class Watched:
    """What the monitor said of the first run after each round, whom it named, and how all runs fared."""

    attack: Attack
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
        """Who was malicious when the clients were asked for: nobody yet, after an early false alarm."""
        return self.attack.attackers if self.asked >= self.attack.begins else ()


def watch_attack(attack: Attack, setup: Setup, tick: Callable[[int, int], None]) -> Watched:
    """Simulate with and without the attack, over the same random numbers, and watch.

    The monitor knows what honest clients' Hessians and gradient noise are, and nothing of the attack.
    """
    lin, tau = linearize(attack.honest), setup.sync_every
    tick(0, 3)
    attacked = _runs(attack, setup, lin, under_attack=True)
    tick(1, 3)
    honest = _runs(attack, setup, lin, under_attack=False)
    tick(2, 3)
    monitor = Monitor(lin, setup.steps, sync_every=tau, horizon=attack.n_steps, start=lin.optimum)
    told = _told(monitor, attacked, attack.wait)
    repeats = count_repeats(attack, lin, setup.steps, tau, monitor.boundary, attacked, honest)
    tick(3, 3)
    return Watched(attack, *told, repeats)


def _runs(attack: Attack, setup: Setup, lin: Linearization, under_attack: bool) -> Runs:
    return simulate(
        attack.problem() if under_attack else attack.without(),
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
