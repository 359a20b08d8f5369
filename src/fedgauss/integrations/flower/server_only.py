"""`ServerOnly`: a monitor of the mean update, for models and optimisers that the theory does not describe."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import Innovations, innovations, step_sizes_between
from fedgauss.detect.mean_updates import server_only
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.whitening import dof_needed
from fedgauss.integrations.flower.answers import Request
from fedgauss.integrations.flower.arrays import Views, vector
from fedgauss.integrations.flower.rounds import Round
from fedgauss.integrations.flower.views import View, everything
from fedgauss.integrations.flower.whole import implausible, with_note
from fedgauss.step_sizes import StepSizes, as_step_sizes

_STILL = 0.01  # level of the test that the mean update does not move during the warm-up
_log = logging.getLogger("flwr")


@dataclass(frozen=True)
class Averaging:
    """eta = 1, 1/2, ..., 1/tau, and again: with A = I a round then ends at the mean of its tau draws.

    So a monitor with this schedule takes what it is given each round for its innovation, of weight tau: there is no
    recursion to undo. It is what a projection needs, which obeys none.
    """

    sync_every: int
    beta: None = None

    def eta(self, n_steps: int) -> FloatArray:
        """eta_1, ..., eta_n."""
        return np.reciprocal(1.0 + np.arange(n_steps, dtype=np.float64) % self.sync_every)


class ServerOnly:
    """Watches u_j = view(Y_{j-1} - Y_j) / sum eta, the mean gradient of a round, by what it was in a warm-up.

    warm_up     rounds from which the mean and covariance of u are estimated, at least 2 q + 5 for q watched dimensions
    view        `coordinates(...)` or `random_projection(...)` of the parameters; all of them by default
    steps       eta_t where it changes and is known; None for a constant rate, or one that is not known
    sync_every  local steps of a round, if only roughly: how much noise a round averages over
    after       rounds of training before the warm-up

    Nothing is asked of clients, not even which partition they have, and neither rate, optimiser nor loss need be known:
    this is the mode for momentum, Adam, robust aggregation (FedMedian, Krum) and models with many parameters. Every
    verdict says that it was used.

    What it costs. Parameters seen in part obey no closed recursion, so the run's return to its optimum cannot be taken
    out of u. A run that hovers has updates that undo each other, which makes alarms rarer than alpha; an attack shows
    only while the model moves to where it leads, some 1 / (eta lambda) steps, and best where that is long. A gradient
    that is still shrinking looks like a change: so the monitor does not begin before both halves of the last
    `warm_up` rounds have the same mean (Hotelling's test at .01), and training that goes on learning will alarm. Where
    no monitor can be made, of too few rounds or of a parameter that never moves, the log says why and training goes on.
    """

    def __init__(
        self,
        warm_up: int,
        view: View | None = None,
        steps: StepSizes | ArrayLike | None = None,
        sync_every: int = 20,
        after: int = 0,
        alpha: float = 0.05,
        horizon: int | None = None,
        seed: int = 0,
    ) -> None:
        self.warm_up = _checks.whole("warm_up", warm_up, at_least=7, fix="One watched dimension needs 7 rounds.")
        self.view = everything() if view is None else view
        self.steps = None if steps is None else as_step_sizes(steps)
        self.sync_every = _checks.whole("sync_every", sync_every)
        self.after = _checks.whole("after", after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts steps.")
        self.seed = _checks.whole("seed", seed, at_least=0)
        self.monitor: Monitor | None = None
        self._parts: Innovations | None = None  # of the monitor
        self._updates: list[FloatArray] = []  # of the warm-up
        self._number = 0  # of the last round
        self._note = ""

    def request(self, server_round: int) -> Request:
        """Nothing: that is the point."""
        return {}

    def faults(self, seen: Round) -> tuple[str, ...]:
        """Uploads that the monitor would not take for a mean."""
        if self._parts is None:
            return ()
        rows = [self._update(seen, vector(upload.arrays, seen.before)) for upload in seen.uploads]
        return implausible(self._parts, seen, np.stack(rows), self._updates[-1])

    def judge(self, seen: Round, after: Views) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if seen.number < self._number:
            self._start_again()
        self._number = seen.number
        update = self._update(seen, vector(after, seen.before))
        if self.monitor is not None:
            return with_note(self.monitor.update(update), self._note)
        if seen.number > self.after and self._long_enough(len(update)):
            self._warm(seen.number, update)
        return None

    def _update(self, seen: Round, after: FloatArray) -> FloatArray:
        way = self.view(seen.origin - after)
        if self.steps is None:
            return way
        last = seen.number * self.sync_every
        return way / float(step_sizes_between(self.steps, last - self.sync_every, last).sum())

    def _start_again(self) -> None:
        """Rounds count from the first again: a new run, perhaps from elsewhere, whose mean update may be another."""
        if self.monitor is None:
            self._updates.clear()
        else:
            self.monitor.reset()
        _log.warning("fedgauss: rounds begin anew, and so does the watch of the mean update.")

    def _long_enough(self, dim: int) -> bool:
        needed = dof_needed(dim) + 1
        if self.warm_up < needed and not self._note:
            self._note = f"warm_up must be at least {needed} rounds for {dim} dimensions; got {self.warm_up}."
            _log.error("fedgauss: nothing is watched. %s Watch fewer, or wait longer.", self._note)
        return self.warm_up >= needed

    def _warm(self, number: int, update: FloatArray) -> None:
        self._updates = [*self._updates, update][-self.warm_up :]
        if len(self._updates) < self.warm_up:
            return
        rows = np.stack(self._updates)
        try:
            if not (p := _same_mean(rows)) >= _STILL:
                _log.warning("fedgauss: the mean update still moves (p = %.2g); no monitor yet.", p)
                return
            self._begin(number, rows)
        except (ValueError, ArithmeticError) as error:  # a frozen parameter, or one client's nonsense
            _log.warning("fedgauss: no monitor can be made of the last %d rounds. %s", self.warm_up, error)

    def _begin(self, number: int, rows: FloatArray) -> None:
        dim, averaging = rows.shape[1], Averaging(self.sync_every)
        # The row before the first is where a path would begin; with this schedule it does not matter.
        lin = server_only(np.eye(dim), np.concatenate([rows[:1], rows]), averaging, self.sync_every)
        monitor = Monitor(lin, averaging, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        monitor.reset(step=number * self.sync_every, y=rows[-1], round=number)
        self.monitor, self._parts = monitor, innovations(lin, averaging)
        self._note = (
            f"Server-only mode: {dim} numbers of the mean update, their noise from the {self.warm_up} rounds up to "
            f"{number}; an attack shows while the model moves."
        )


def _same_mean(rows: FloatArray) -> float:
    """The p-value of Hotelling's test that both halves of the rows (J, q) have one mean."""
    half, dim = len(rows) // 2, rows.shape[1]
    parts = rows[:half], rows[half:]
    freedom = len(rows) - 2
    within = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / freedom
    gap = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    t2 = half * (len(rows) - half) / len(rows) * gap @ np.linalg.pinv(within, hermitian=True) @ gap
    return float(fdtrc(dim, freedom - dim + 1, t2 * (freedom - dim + 1) / (dim * freedom)))
