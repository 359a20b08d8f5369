"""The paper's MNIST table: some of five clients swap labels after a quarter of the run.

The default rule is told A and V by each run's own warm-up, the paper's rule exactly. In 40 dimensions thresholds that
allow for an estimated V are simulated, in about a second. They differ between runs by a per cent or so, and a
simulation for each run would take most of the time: the first four runs have theirs simulated, and every run takes one
of the four in turn.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import FloatArray
from fedgauss.detect.innovations import innovations
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.paper import attack_rules
from fedgauss.paper.attack import AttackCell, AttackSetting, Judgement, RunsJudged
from fedgauss.paper.attack_rules import ALPHA, RIGHT_TUNED, RIGHT_ZERO, UNDER_TUNED, monitor_alarms, monitor_trace

if TYPE_CHECKING:
    from fedgauss.problems.arrays import ArrayProblem

WARM_UPS = (100, 200, 500)
WARM_START_RULES = (UNDER_TUNED, RIGHT_TUNED, RIGHT_ZERO)  # the c of the fourth was found by trying, on another table
_AT_OPTIMUM = {rule: f"{rule}, at optimum" for rule in WARM_START_RULES}
_WARMED_UP = {steps: f"innovation, warm-up {steps}" for steps in WARM_UPS}
RIGHT_AT_OPTIMUM = _AT_OPTIMUM[RIGHT_TUNED]
OPTIMUM_RULES, WARM_UP_RULES = tuple(_AT_OPTIMUM.values()), tuple(_WARMED_UP.values())

_LONGEST, _EVERY = 500, 100  # steps of the warm start that is simulated, and between the ends that can be asked for
_STREAMS = 1 << 20  # seeds of one cell; those of warm starts, runs and reports must not meet
_SIMULATED = 4  # runs with thresholds of their own
# In draws, like the cost of other cells: a report of A and V and a watched run; R_t of a path in 40 dimensions.
_WATCHED_COST, _PATH_COST, _THRESHOLD_COST = 2e5, 6e4, 3e7


@dataclass(frozen=True)
class FlipAttack(AttackSetting):
    """Clients with a share of the MNIST training set each, on a ring; the first K_0 of them flip after step `onset`.

    K, tau, n, the onset, the flips, step sizes and K_0 are those of the table. It says that A and V come from a warm
    start, and not how long that is. Here a warm start of m steps begins at zero, and every run has one of its own: it
    goes on from where that ended, all clients at its mean Y_m, with step sizes eta_1, eta_2, ... again.
    """

    across = "K0"

    cases: tuple[int, ...] = (0, 3)
    traced: int = 3
    n_clients: int = 5
    n_steps: int = 200
    onset: int = 50
    sync_every: int = 5

    def clients(self) -> ArrayProblem:
        """The clients as they are while honest."""
        from fedgauss.problems.arrays import mnist

        return mnist(self.n_clients)

    def starts(self, clients: ArrayProblem, warm_up: int | None, replicates: int, seed: int) -> FloatArray:
        """Where each run starts (R, d): the end of its warm start of so many steps, or for None the optimum.

        Shorter warm starts are the beginnings of longer ones: 100, 200, ..., 500 steps of one simulation.
        """
        from fedgauss.problems.linearize import linearize

        if warm_up is None:
            return np.tile(linearize(clients).optimum, (replicates, 1))
        if warm_up not in range(_EVERY, _LONGEST + 1, _EVERY):
            raise ValueError(f"warm_up must be a multiple of {_EVERY} up to {_LONGEST}; got {warm_up}.")
        path = self.simulated(clients, _LONGEST, replicates, _STREAMS * seed, "zeros", _EVERY)
        return path[:, warm_up // _EVERY - 1]

    def paths(self, clients: ArrayProblem, starts: FloatArray, flipping: int, seed: int, every: int = 1) -> FloatArray:
        """Y after every so many steps of every run, (R, n / every, d), when the first `flipping` clients attack.

        Runs of one seed and start share their data up to the onset, to the bit. In honest runs the attack would begin
        after the end, so that they share their program too.
        """
        from fedgauss.problems.arrays import MNIST_FLIP
        from fedgauss.problems.attacks import label_flip

        begins = (self.onset if flipping else self.n_steps) + 1
        attacked = label_flip(clients, range(flipping or max(self.cases)), begins, MNIST_FLIP)
        start = np.repeat(starts[:, None], self.n_clients, axis=1)
        return self.simulated(attacked, self.n_steps, len(starts), _STREAMS * seed + 1, start, every)

    def known(self, clients: ArrayProblem, at: FloatArray) -> Linearization:
        """A and V of the clients at a point (d,), from all of their rows."""
        moments = clients.moments(at)
        return Linearization(at, moments.hessian, moments.noise_cov, np.asarray(clients.weights, dtype=float))

    def reported(self, clients: ArrayProblem, warm_up: int, start: FloatArray, seed: int, run: int) -> Linearization:
        """A and V as the clients of one run report them after their warm start, from as many draws of their own."""
        from fedgauss.problems.linearize import warm_up as from_draws

        return from_draws(clients, warm_up, start, seed=_STREAMS * seed + 2 + run)


@dataclass(frozen=True, kw_only=True)
class WarmUpCell(AttackCell):
    """The default rule with A and V from a warm-up of so many steps, one for each run."""

    warm_up: int
    attack: FlipAttack = field(default_factory=FlipAttack)

    def __str__(self) -> str:
        return f"{self.result}, the default after a warm-up of {self.warm_up} steps"

    @property
    def cost(self) -> float:
        """In draws."""
        return _THRESHOLD_COST + _WATCHED_COST * self.replicates

    def judged(self) -> Judgement:
        """What the rule says of honest runs, and of runs with an attack."""
        attack, clients = self.attack, self.attack.clients()
        starts = attack.starts(clients, self.warm_up, self.replicates, self.seed)
        cases = [attack.paths(clients, starts, k, self.seed, attack.sync_every) for k in attack.cases]
        limits: list[Boundary] = []
        seen: list[WatchedRuns] = []
        for run, (start, *means) in enumerate(zip(starts, *cases, strict=True)):
            lin = attack.reported(clients, self.warm_up, start, self.seed, run)
            if run < _SIMULATED:
                white = innovations(lin, attack.steps).whitening
                with redirect_stderr(io.StringIO()):  # a bar of its own would disturb that of the sweep
                    limit = boundary(lin.dim, attack.sync_every, ALPHA, attack.n_steps, whitening=white)
                limits.append(limit)
            # All cases of a run share their start and what the clients reported: the monitor watches them together.
            limit = limits[run % _SIMULATED]
            seen.append(watch_runs(lin, attack.steps, np.stack(means), attack.sync_every, limit, start))
        rule = _WARMED_UP[self.warm_up]
        steps, onsets = (np.array([getattr(one, name) for one in seen]).T for name in ("alarm_step", "alarm_onset"))
        return [], [
            RunsJudged({rule: monitor_alarms(*first)}, monitor_trace(rule, seen[0], limits[0], case))
            for case, first in enumerate(zip(steps, onsets, strict=True))
        ]


@dataclass(frozen=True, kw_only=True)
class PapersRuleCell(AttackCell):
    """The paper's rule on runs from the end of a warm start of so many steps, or for None from the optimum.

    It is told A and V exactly, at the mean of the starts. On runs from the optimum it goes by other names, and shows no
    run over time. `bootstraps` is the number of Gaussian paths behind a threshold.
    """

    warm_up: int | None
    bootstraps: int
    attack: FlipAttack = field(default_factory=FlipAttack)

    def __str__(self) -> str:
        start = "from the optimum" if self.warm_up is None else f"after a warm start of {self.warm_up} steps"
        return f"{self.result}, the paper’s rule {start}"

    @property
    def cost(self) -> float:
        """In draws; R_t takes longer than a run."""
        return _PATH_COST * 2.0 * (self.replicates + self.bootstraps)

    def judged(self) -> Judgement:
        """What is known of each rule, and what it says of honest runs and of runs with an attack."""
        attack, clients = self.attack, self.attack.clients()
        starts = attack.starts(clients, self.warm_up, self.replicates, self.seed)
        lin = attack.known(clients, starts.mean(axis=0))
        rules = attack_rules.paper_rules(attack, lin, self.bootstraps)
        names = _AT_OPTIMUM if self.warm_up is None else {rule: rule for rule in WARM_START_RULES}

        def judged_case(flipping: int) -> RunsJudged:
            alarms, trace = rules.judge(attack.paths(clients, starts, flipping, self.seed))
            shown = None if self.warm_up is None else trace
            return RunsJudged({name: alarms[rule] for rule, name in names.items()}, shown)

        numbers = [number._replace(rule=names[number.rule]) for number in rules.numbers if number.rule in names]
        return numbers, map(judged_case, attack.cases)
