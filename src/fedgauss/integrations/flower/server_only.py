"""`ServerOnly`: a monitor of the mean update, for models and optimisers that the theory does not describe."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord
from scipy.special import fdtrc

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.server_only import server_only
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import vector
from fedgauss.integrations.flower.rounds import Round
from fedgauss.integrations.flower.views import View, everything
from fedgauss.integrations.flower.whole import refusal, with_note
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

    Nothing is asked of clients, and neither rate, optimiser nor loss need be known: this is the mode for momentum,
    Adam, robust aggregation (FedMedian, Krum) and models with many parameters. Every verdict says that it was used.

    What it costs. Parameters seen in part obey no closed recursion, so the run's return to its optimum cannot be taken
    out of u. A run that hovers has updates that undo each other, which makes alarms rarer than alpha; an attack shows
    only while the model moves to where it leads, some 1 / (eta lambda) steps, and best where that is long. A gradient
    that is still shrinking looks like a change: so the monitor does not begin before both halves of the last
    `warm_up` rounds have the same mean (Hotelling's test at .01), and training that goes on learning will alarm.
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
        self.horizon, self.seed = horizon, seed
        self.monitor: Monitor | None = None
        self._updates: list[FloatArray] = []
        self._note = ""

    def request(self, server_round: int) -> ArrayRecord | None:
        """Nothing: that is the point."""
        return None

    def judge(self, seen: Round) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self.monitor is None:
            if seen.sound and seen.number > self.after:
                self._warm(seen)
            return None
        if not seen.sound:
            return refusal(self.monitor, len(self._updates[-1]), " ".join(seen.faults))
        return with_note(self.monitor.update(self._update(seen)), self._note)

    def _update(self, seen: Round) -> FloatArray:
        assert seen.after is not None
        way = self.view(vector(seen.before, seen.before) - vector(seen.after, seen.before))
        if self.steps is None:
            return way
        last = seen.number * self.sync_every
        return way / float(step_sizes_between(self.steps, last - self.sync_every, last).sum())

    def _warm(self, seen: Round) -> None:
        self._updates = [*self._updates, self._update(seen)][-self.warm_up :]
        rows = np.stack(self._updates)
        if len(rows) < self.warm_up:
            return
        if (p := _same_mean(rows)) < _STILL:
            _log.warning("fedgauss: the mean update still moves (p = %.2g); no monitor yet.", p)
            return
        dim, averaging = rows.shape[1], Averaging(self.sync_every)
        # The row before the first is where a path would begin; with this schedule it does not matter.
        lin = server_only(np.eye(dim), np.concatenate([rows[:1], rows]), averaging, self.sync_every)
        monitor = Monitor(lin, averaging, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        monitor.reset(step=seen.number * self.sync_every, y=rows[-1], round=seen.number)
        self.monitor = monitor
        self._note = (
            f"Server-only mode: {dim} numbers of the mean update, their noise from the {self.warm_up} rounds up to "
            f"{seen.number}; an attack shows while the model moves."
        )


def _same_mean(rows: FloatArray) -> float:
    """The p-value of Hotelling's test that both halves of the rows (J, q) have one mean."""
    half, dim = len(rows) // 2, rows.shape[1]
    parts = rows[:half], rows[half:]
    freedom = len(rows) - 2
    if freedom < dim + 1:
        raise ValueError(f"warm_up must be at least {2 * dim + 5} rounds for {dim} dimensions; got {len(rows)}.")
    within = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / freedom
    gap = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    t2 = half * (len(rows) - half) / len(rows) * gap @ np.linalg.pinv(within, hermitian=True) @ gap
    return float(fdtrc(dim, freedom - dim + 1, t2 * (freedom - dim + 1) / (dim * freedom)))
