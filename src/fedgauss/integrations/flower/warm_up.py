"""What the warm-ups have in common: settings of the monitor to come, and the round in which it begins."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import Channel, checked_channels
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import Views, vector
from fedgauss.integrations.flower.feed import MonitorFeed, with_note
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.step_sizes import StepSizes, as_step_sizes

log = logging.getLogger("flwr")  # where Flower's users look


class WarmUpSettings:
    """When a warm-up begins, and the monitor that comes of it."""

    def __init__(
        self, sync_every: int, after: int, alpha: float, horizon: int | None, seed: int, channels: Sequence[Channel]
    ) -> None:
        self.sync_every = _checks.whole("sync_every", sync_every)
        self.after = _checks.whole("after", after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts steps.")
        self.seed = _checks.whole("seed", seed, at_least=0)
        self.channels = checked_channels(channels)

    def _monitor_after(self, number: int, lin: Linearization, steps: StepSizes, y: FloatArray) -> Monitor:
        """A monitor that begins after the round `number`, with the mean y there."""
        monitor = Monitor(lin, steps, self.sync_every, self.alpha, self.horizon, seed=self.seed, channels=self.channels)
        monitor.reset(step=number * self.sync_every, y=y, round=number)
        return monitor


class ClientWarmUp(WarmUpSettings, ABC):
    """A warm-up in which all clients are asked for something: `Reported` and `Chained`."""

    note = ""  # to every verdict

    def __init__(
        self,
        steps: StepSizes | ArrayLike,
        sync_every: int,
        n_clients: int,
        after: int,
        alpha: float,
        horizon: int | None,
        seed: int,
        channels: Sequence[Channel],
    ) -> None:
        super().__init__(sync_every, after, alpha, horizon, seed, channels)
        self.steps = as_step_sizes(steps)
        self.n_clients = _checks.whole("n_clients", n_clients)
        self.lin: Linearization | None = None  # what clients' answers add up to
        self._feed: MonitorFeed | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._feed is None else self._feed.monitor

    def faults(self, seen: TrainingRound) -> tuple[str, ...]:
        """Those that the monitor finds."""
        return () if self._feed is None else self._feed.faults(seen)

    def judge(self, seen: TrainingRound, after: Views) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self._feed is not None:
            return with_note(self._feed.judge(seen, after), self.note)
        if seen.number > self.after:
            try:
                self.warm(seen, after)
            except (ValueError, ArithmeticError) as error:
                log.warning("fedgauss: no monitor yet, clients are asked again. %s", error)
        return None

    @abstractmethod
    def warm(self, seen: TrainingRound, after: Views) -> None:
        """Take in clients' answers, and begin when they are complete; a ValueError says why not yet."""

    def begin(self, lin: Linearization, seen: TrainingRound, after: Views) -> None:
        """Watch from here on."""
        self._feed = MonitorFeed(self._monitor_after(seen.number, lin, self.steps, vector(after, seen.before)))
        self.lin = lin

    def round_steps(self, n_rounds: int) -> FloatArray:
        """eta_t of the round after the first `n_rounds`."""
        return step_sizes_between(self.steps, n_rounds * self.sync_every, (n_rounds + 1) * self.sync_every)


def stable_hessian(hessian: FloatArray, eta: FloatArray) -> FloatArray:
    """A client's Hessian, if its own steps stay bounded: then those of any mean over clients do."""
    checked = _checks.covariance("hessian", hessian)
    steepest, largest = float(np.linalg.eigvalsh(checked)[-1]), float(np.max(eta))
    if steepest * largest >= 2.0:
        raise ValueError(f"hessian must have eigenvalues below 2 / eta = {2.0 / largest:.3g}; got {steepest:.3g}.")
    return checked
