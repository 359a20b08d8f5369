"""`ServerOnly`: a monitor of the mean update, for models and optimisers that the theory does not describe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import Channel
from fedgauss.detect.innovations import dof_needed, server_only, step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watch import DEFAULT_CHANNELS
from fedgauss.integrations.flower.feed import far_off, implausible, refusal_of, with_note
from fedgauss.integrations.flower.records import Request, Views, log
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.warm_up import WarmUpSettings
from fedgauss.step_sizes import StepSizes, as_step_sizes

_STILL = 0.01  # level of the test that the mean update does not move during the warm-up

View = Callable[[FloatArray], FloatArray]  # what of many parameters is watched


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


@dataclass(eq=False, repr=False)
class ServerOnly(WarmUpSettings):
    """Watches u_j = view(Y_{j-1} - Y_j) / sum eta, the mean gradient of a round, against its law in a warm-up.

    Parameters
    ----------
    warm_up : int
        Rounds from which the mean and covariance of u are estimated, at least 2 q + 5 for q watched dimensions.
    view : callable, optional
        `coordinates(...)` or `random_projection(...)` of the parameters; all of them by default.
    steps : StepSizes or array_like, optional
        eta_t where it changes and is known; None for a constant rate, or one that is not known.
    sync_every : int
        Local steps of a round, if only roughly: how much noise a round averages over.
    after : int
        Rounds of training before the warm-up.
    alpha, horizon, seed, channels
        As in `Monitor`.

    Notes
    -----
    Nothing is asked of clients, not even which partition they have, and neither rate, optimiser nor loss need be known:
    this is the mode for momentum, Adam, robust aggregation (FedMedian, Krum) and models with many parameters. Every
    verdict says that it was used.

    The cost: some of the parameters do not obey a closed recursion, so the run's return to its optimum cannot be taken
    out of u. A run that hovers has updates that undo each other, which makes alarms rarer than alpha; an attack shows
    only while the model moves to where it leads, some 1 / (eta lambda) steps, and best where that is long. A gradient
    that is still shrinking looks like a change: so the monitor does not begin before both halves of the last
    `warm_up` rounds have the same mean (Hotelling's test at .01), and training that goes on learning will alarm. Where
    no monitor can be made, from too few rounds or a parameter that never moves, the log says why and training goes on.
    """

    warm_up: int
    view: View | None = None
    steps: StepSizes | ArrayLike | None = None
    sync_every: int = 20
    after: int = 0
    alpha: float = 0.05
    horizon: int | None = None
    seed: int = 0
    channels: Sequence[Channel] = DEFAULT_CHANNELS

    monitor: Monitor | None = field(default=None, init=False)
    _updates: list[FloatArray] = field(default_factory=list, init=False)  # of the warm-up
    _number: int = field(default=0, init=False)  # of the last round
    _note: str = field(default="", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.warm_up = _checks.whole("warm_up", self.warm_up, at_least=7, fix="One watched dimension needs 7 rounds.")
        self._schedule = None if self.steps is None else as_step_sizes(self.steps)
        self.steps = self._schedule

    def request(self, server_round: int) -> Request:
        """Nothing: that is the point."""
        return {}

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """Uploads that the monitor would not take for a mean; in the warm-up those that are far off."""
        if self.monitor is None:
            return far_off(seen)
        rows = [self._update(seen, row) for row in seen.each]
        return implausible(self.monitor.innovations, seen, np.stack(rows), self._updates[-1])

    def judge_uploads(self, seen: TrainingRound) -> None:
        """None: what is watched is what the strategy makes of them."""

    def refuse(self, server_round: int, last: int, note: str) -> Verdict:
        """The monitor's own, once there is one."""
        if self.monitor is not None:
            return refusal_of(self.monitor, note)
        return self._refused_in_warm_up(server_round, last, note)

    def judge(self, seen: TrainingRound, after: Views) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if seen.number < self._number:
            self._start_again()
        self._number = seen.number
        update = self._update(seen, seen.vector(after))
        if self.monitor is not None:
            return with_note(self.monitor.update(update), self._note)
        if seen.number > self.after and self._long_enough(len(update)):
            self._warm(seen.number, update)
        return None

    def _update(self, seen: TrainingRound, after: FloatArray) -> FloatArray:
        way = seen.origin - after
        if self.view is not None:
            way = self.view(way)
        if self._schedule is None:
            return way
        last = seen.number * self.sync_every
        return way / float(step_sizes_between(self._schedule, last - self.sync_every, last).sum())

    def _start_again(self) -> None:
        """Rounds count from the first again: a new run, perhaps from elsewhere, whose mean update may be another."""
        if self.monitor is None:
            self._updates.clear()
        else:
            self.monitor.reset()
        log.warning("fedgauss: rounds begin anew, and so does the watch of the mean update.")

    def _long_enough(self, dim: int) -> bool:
        needed = dof_needed(dim) + 1
        if self.warm_up < needed and not self._note:
            self._note = f"warm_up must be at least {needed} rounds for {dim} dimensions; got {self.warm_up}."
            log.error("fedgauss: nothing is watched. %s Watch fewer, or wait longer.", self._note)
        return self.warm_up >= needed

    def _warm(self, number: int, update: FloatArray) -> None:
        self._updates = [*self._updates, update][-self.warm_up :]
        if len(self._updates) < self.warm_up:
            return
        rows, averaging, dim = np.stack(self._updates), Averaging(self.sync_every), len(update)
        try:
            if not (p := _same_mean(rows)) >= _STILL:
                log.warning("fedgauss: the mean update still moves (p = %.2g); no monitor yet.", p)
                return
            # The row before the first is where a path would begin; with this schedule it does not matter.
            lin = server_only(np.eye(dim), np.concatenate([rows[:1], rows]), averaging, self.sync_every)
            self.monitor = self._monitor_after(number, lin, averaging, update)
        except (ValueError, ArithmeticError) as error:  # a frozen parameter, or one client's nonsense
            log.warning("fedgauss: no monitor can be made of the last %d rounds. %s", self.warm_up, error)
            return
        self._note = (
            f"Server-only mode: {dim} numbers of the mean update, their noise from the {self.warm_up} rounds up to "
            f"{number}; an attack shows while the model moves."
        )


def _same_mean(rows: FloatArray) -> float:
    """The p-value of Hotelling's test that both halves of the rows (J, q) have one mean."""
    half, dim = len(rows) // 2, rows.shape[1]
    parts = rows[:half], rows[half:]
    dof = len(rows) - 2
    within = sum((part - part.mean(axis=0)).T @ (part - part.mean(axis=0)) for part in parts) / dof
    gap = parts[0].mean(axis=0) - parts[1].mean(axis=0)
    t2 = half * (len(rows) - half) / len(rows) * gap @ np.linalg.pinv(within, hermitian=True) @ gap
    return float(fdtrc(dim, dof - dim + 1, t2 * (dof - dim + 1) / (dim * dof)))


def coordinates(which: ArrayLike) -> View:
    """A view of some parameters.

    Parameters
    ----------
    which : (q,) array_like of int
        Their places in the arrays that are trained, laid end to end.
    """
    places = np.asarray(which)
    if places.ndim != 1 or not places.size or places.dtype.kind not in "iu" or places.min() < 0:
        raise ValueError(f"which must be places 0, 1, ... of parameters; got {which!r}.")
    if len(np.unique(places)) != len(places):
        raise ValueError(f"which must name each parameter once; got {which!r}.")

    def view(vector: FloatArray) -> FloatArray:
        if places.max() >= len(vector):
            raise ValueError(f"which must lie in 0..{len(vector) - 1}, the model's parameters; got {places.max()}.")
        return vector.take(places)

    return view


def random_projection(dim: int, seed: int = 0) -> View:
    """A view of `dim` sums: each parameter goes into one of them, drawn at random, with a random sign.

    A projection R (dim, D) with one entry of +-1 in each column: E |R x|^2 = |x|^2, in O(D) time.

    Parameters
    ----------
    dim : int
        The number of sums, at most 40.
    seed : int
        Keep it from clients: an attack that knows R may choose a direction with R x = 0.
    """
    rows = _checks.whole("dim", dim, at_most=40, fix="Thresholds reach to about 40 dimensions.")
    seed = _checks.whole("seed", seed, at_least=0)
    drawn: dict[int, tuple[npt.NDArray[np.int64], FloatArray]] = {}

    def view(vector: FloatArray) -> FloatArray:
        if len(vector) not in drawn:
            rng = np.random.default_rng(seed)
            drawn.clear()
            drawn[len(vector)] = rng.integers(rows, size=len(vector)), rng.choice(np.array([-1.0, 1.0]), len(vector))
        bucket, sign = drawn[len(vector)]
        return np.bincount(bucket, sign * vector, rows).astype(np.float64)

    return view
