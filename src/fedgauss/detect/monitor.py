"""`Monitor`: watch a federated run as it goes, and be told when an attack began."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect import storage
from fedgauss.detect.attribution import Attribution
from fedgauss.detect.channel import Channel, RoundSeen, checked_channels
from fedgauss.detect.client_record import ClientRecord
from fedgauss.detect.client_rounds import ClientInnovations
from fedgauss.detect.innovations import Block, innovations, step_sizes_between
from fedgauss.detect.locked import OwnLock, locked
from fedgauss.detect.monitor_state import MonitorState
from fedgauss.detect.stored_monitor import checked_settings, contents_of, read_into
from fedgauss.detect.stretch import Stretch, take_stretch
from fedgauss.detect.thresholds import boundary
from fedgauss.detect.updates import (
    client_table,
    fault,
    mean_vector,
    next_step,
    participant_mask,
    participant_weights,
    warn_of_optima,
)
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.verdict_on import refusal, verdict_on
from fedgauss.detect.watch import CHANNELS_WITH_UPLOADS, DEFAULT_CHANNELS
from fedgauss.step_sizes import StepSizes


class Monitor(MonitorState):
    """Raises an alarm when clients turn malicious, at a false-alarm rate that holds over the whole run.

    Parameters
    ----------
    lin : Linearization
        Hessians and gradient noise: `linearize(problem)`, or `linearization(...)` from client reports.
    steps : StepSizes or array_like
        eta_t, the same for all clients.
    sync_every : int
        tau, the number of steps between two calls of `update`.
    alpha : float
        The chance of any false alarm: over the first `horizon` steps, or for ever without a horizon. Values above 0.2
        are treated as 0.2.
    horizon : int, optional
        The number of steps over which alpha holds.
    start : (d,) array_like, optional
        Y_0. Without it the first update only sets the starting point; nothing is lost, since the first ceil(20 / tau)
        rounds are left out anyway.
    seed : int
        For thresholds that have to be simulated: when A and V were estimated in a warm-up, in more than 40 dimensions,
        and for channels that the package has no table of.
    channels : sequence of Channel, optional
        What is looked for; by default a mean gradient that moves (`MeanChannel`), noise that grows (`SpreadChannel`)
        or shrinks (`QuietChannel`), and, if clients' uploads come with the first update, clients that change
        (`ClientChannel`).
        Alpha is divided among channels in proportion to their `share`.

    Attributes
    ----------
    round : int
        The number of updates so far, refused ones aside.
    step : int
        The step of SGD at the last update.
    alarm : Verdict or None
        The first verdict of the current alarm, which lasts until `reset`. Later ones never name a later rollback.
    boundary : Boundary
        The thresholds of every channel.
    innovations : Innovations
        How rounds are whitened, with the weight that each one deserves.

    Notes
    -----
    A run with a non-linear loss that is still far from its optimum looks like a change. An alarm that this journey may
    explain is withheld: the verdict says "still travelling", and `reset` starts the watch once the run has arrived.

    State and time per round grow like log t: prefix sums of the innovations are kept at O(log t) rounds.

    Several threads may call one monitor: calls wait for each other.

    Examples
    --------
    The clients' mean after every tenth step; from round 41 on something pulls it away:

    >>> import numpy as np
    >>> import fedgauss as fg
    >>> lin = fg.linearization(hessians=[np.eye(2)] * 10, covariances=[np.eye(2)] * 10)
    >>> monitor = fg.Monitor(lin, fg.step_sizes.constant(0.05), sync_every=10, start=np.zeros(2))
    >>> rng, y = np.random.default_rng(0), np.zeros(2)
    >>> for number in range(1, 81):
    ...     for _ in range(10):
    ...         y = y - 0.05 * (y - 0.2 * (number > 40) + rng.normal(size=2) / np.sqrt(10))
    ...     verdict = monitor.update(y)
    ...     if verdict.alarm:
    ...         break
    >>> number, verdict.onset, verdict.onset_interval, verdict.rollback
    (44, 391, (371, 411), 37)
    """

    def __init__(
        self,
        lin: Linearization,
        steps: StepSizes | ArrayLike,
        sync_every: int = 20,
        alpha: float = 0.05,
        horizon: int | None = None,
        start: ArrayLike | None = None,
        seed: int = 0,
        channels: Sequence[Channel] | None = None,
    ) -> None:
        settings = checked_settings(sync_every, alpha, horizon)
        parts = innovations(lin, steps)
        watched = DEFAULT_CHANNELS if channels is None else checked_channels(channels)
        first = None if start is None else _checks.real_array("start", start, shape=(lin.dim,))
        seed = _checks.whole("seed", seed, at_least=0)
        limits = boundary(lin.dim, *settings, seed, parts.whitening, watched)
        self._blank()
        self.begin(parts, settings, limits, watched, seed)
        self.last, self.may_join = first, channels is None

    def _blank(self) -> None:
        """A monitor that may be filled."""
        self._lock = OwnLock()
        self._innovations_of_clients: ClientInnovations | None = None
        self._warned = False

    @property
    def mean(self) -> FloatArray | None:
        """Y at the last update, or the start; None before either is known."""
        return None if self.last is None else self.last.copy()

    @property
    def blind(self) -> str:
        """Empty: this monitor sees as much as it says from its first verdict on."""
        return ""

    @property
    def has_uploads(self) -> bool:
        """Whether clients' uploads were given, which `suspects` needs."""
        return self.uploads is not None

    def __repr__(self) -> str:
        lin, state = self.lin, "no alarm" if self.alarm is None else "ALARM"
        return f"<Monitor of {lin.n_clients} clients in {lin.dim} dimensions, round {self.round}: {state}>"

    @locked
    def reset(self, step: int | None = None, y: ArrayLike | None = None, round: int | None = None) -> None:
        """Forget what was seen and start watching again, with a fresh alpha: after a false alarm, or a rollback.

        Parameters
        ----------
        step : int, optional
            After a rollback, the step from which the run continues.
        y : (d,) array_like, optional
            Its mean there; without it the next update only sets the starting point.
        round : int, optional
            The number of rounds that led to it.
        """
        mean = self.last
        if step is not None or y is not None or round is not None:
            now = _checks.whole("step", self.step if step is None else step, at_least=0, fix="Steps count from 0.")
            mean = None if y is None else mean_vector(y, self.lin.dim)
            if mean is not None and not np.all(np.isfinite(mean)):
                raise ValueError("y must be finite: it is the mean from which the run continues.")
            self.round = self.round if round is None else _checks.whole("round", round, at_least=0)
            self.step = now
        self.last = mean
        self.forget()

    def _join_clients(self) -> None:
        """From the first round on there are uploads: clients are watched, too, and alpha is shared anew."""
        settings = (self.sync_every, self.alpha, self.horizon, self.seed)
        limits = boundary(self.lin.dim, *settings, self.innovations.whitening, CHANNELS_WITH_UPLOADS)
        self.may_join, self.channels, self.boundary = False, CHANNELS_WITH_UPLOADS, limits
        self.forget()

    @locked
    def reweight(self, weights: ArrayLike | None) -> None:
        """Change the clients' weights from the next round on.

        Parameters
        ----------
        weights : (K,) array_like or None
            w_k, with which clients step by eta_t K w_k; None for those of `lin`. Where clients differ in optimum other
            weights move the mean: see `participants` in `update`.
        """
        count = self.lin.n_clients
        self.weights = None if weights is None else _checks.client_weights(weights, count)
        self._innovations_of_clients = None
        if weights is not None:
            self._warn_of_optima()

    def _warn_of_optima(self) -> None:
        """Warn once that rounds of other clients cannot be made comparable."""
        if self.lin.client_gradients is None and not self._warned:
            self._warned = True
            warn_of_optima(stacklevel=5)

    @locked
    def update(
        self,
        y: ArrayLike,
        clients: ArrayLike | None = None,
        participants: ArrayLike | None = None,
        step: int | None = None,
        began: ArrayLike | None = None,
    ) -> Verdict:
        """Judge a round from Y, the clients' mean after it.

        Parameters
        ----------
        y : (d,) array_like
            The clients' mean after the round.
        clients : (K, d) array_like, optional
            What clients uploaded, before any averaging: checked for values that are not finite or not plausible, shown
            to channels, and remembered for `suspects`.
        participants : array_like, optional
            Who took part in the round's steps: indices, or K booleans; everybody by default. Where clients differ in
            optimum, missing clients move the mean: alpha then holds only if `lin` has the clients' gradients
            (`linearize` has them, and `linearization` when they are passed).
        step : int, optional
            The step after which y was taken, where rounds were missed; sync_every after the last by default.
        began : (K, d) array_like, optional
            Where each client began the round, after the last mixing; the last y by default, as when a server sends the
            mean to everybody.

        Returns
        -------
        Verdict
            An update that is not finite, or absurdly large, is an alarm of its own ("invalid update") and changes
            nothing: send the round again, or go on with the next and its `step`. So is one after which the statistic
            of a channel would not be a finite number.

        Raises
        ------
        ValueError
            For a wrong shape, or a step out of order. Nothing has changed then.
        """
        parts = self.innovations
        value = mean_vector(y, self.lin.dim)
        present = None if participants is None else participant_mask(participants, parts.lin.n_clients)
        sent, origin = (
            None if given is None else client_table(name, given, self.lin.n_clients, self.lin.dim, present)
            for name, given in (("clients", clients), ("began", began))
        )
        now = next_step(step, self.step, self.sync_every, self.last is not None)
        if wrong := fault(parts, self.last, value, sent, origin, present):
            return refusal(self, now, wrong)
        if present is not None:
            self._warn_of_optima()
        block = self._block(now, present)
        before, taken = (self.watch.copied(), self.may_join, self.channels, self.boundary), False
        try:
            if self.may_join and sent is not None and self.round == self.origin_round:
                self._join_clients()
            verdict = self._judged(value, now, block, sent, origin)
            taken = not verdict.invalid
            return verdict
        finally:
            if not taken:  # a channel of the user's may have failed, too, when others had taken the round in
                self.watch, self.may_join, self.channels, self.boundary = before

    @locked
    def update_many(self, means: FloatArray, alarms: bool) -> Stretch:
        """Judge rounds of sync_every steps, in which everybody took part, as long as they bring nothing new.

        Parameters
        ----------
        means : (n, d) array
            Y after each of them.
        alarms : bool
            Whether the statistic is to be above its threshold after each, as it may be once an alarm is on.

        Returns
        -------
        Stretch
            Of the rounds that were taken, as `update` would have taken them one after the other, to the bit. The next
            is for `update`: it alarms, is withheld or refused, or the monitor must be fed one round at a time.
        """
        return take_stretch(self, means, alarms)

    def _block(self, now: int, present: BoolArray | None) -> Block | None:
        """What the round's steps do; None where its beginning is not known."""
        if self.last is None:
            step_sizes_between(self.steps, now - 1, now)  # a schedule that has ended says so
            return None
        base = self.lin.weights if self.weights is None else self.weights
        weights = self.weights if present is None else participant_weights(present, base)
        return self.innovations.block(self.step, now, weights)

    def _judged(
        self, value: FloatArray, now: int, block: Block | None, sent: FloatArray | None, origin: FloatArray | None
    ) -> Verdict:
        """A checked round, taken in and judged; an invalid one has changed nothing but the channels."""
        parts, mean, pulls, where = self.innovations, self.last, None, None
        position, counted = self.watch.rounds, not self.watch.to_drop
        if block is None or mean is None:
            origin_step, peaks = now - self.sync_every, self.watch.skip()
        else:
            origin_step = self.origin_step
            where = np.broadcast_to(mean, (self.lin.n_clients, self.lin.dim)) if origin is None else origin
            pulls = None if sent is None else self._pulls(where, sent, now)
            x, place = parts.whiten(block, mean, value), parts.place(mean)
            # No channel may tell before it is kept.
            if not np.isfinite(block.weight * np.concatenate([x, place])).all():
                return refusal(self, now, "The innovation of the round would not be of finite numbers.")
            theirs = None if pulls is None else pulls[..., None]
            seen = RoundSeen(x[:, None], block.weight, self.step, place[:, None], sent, origin, theirs)
            peaks = self.watch.update(seen)
        if broken := [c.name for c, peak in zip(self.channels, peaks, strict=True) if not peak.finite]:
            return refusal(self, now, f"The statistic of the channel {broken[0]} would not be a finite number.")
        verdict, baseline = verdict_on(self, peaks, now, origin_step)
        if where is not None and counted:
            self._remember(position, where, pulls)
        self.last, self.step, self.round, self.origin_step = value, now, self.round + 1, origin_step
        if verdict.alarm and self.alarm is None:
            self.alarm = verdict
            if self.uploads is not None:
                self.uploads.freeze(baseline)
        return verdict

    def _pulls(self, began: FloatArray, sent: FloatArray, now: int) -> FloatArray:
        """Client innovations of a round, (K, d)."""
        if self._innovations_of_clients is None:
            self._innovations_of_clients = ClientInnovations(self.lin, self.steps, self.weights)
        return self._innovations_of_clients.of_round(began, sent, self.step, now)

    def _remember(self, position: int, began: FloatArray, pulls: FloatArray | None) -> None:
        """Keep what clients did in a round for `suspects`, or that nothing is known of it."""
        if self.uploads is None:
            if pulls is None:
                return
            self.uploads = ClientRecord(self.lin, position)
        self.uploads.update(position, began, np.full(began.shape, np.nan) if pulls is None else pulls)

    @locked
    def suspects(self, rate: float = 0.10) -> Attribution:
        """Which clients turned malicious, the most suspect first.

        Parameters
        ----------
        rate : float
            An upper bound for the false-discovery rate: the expected share of honest clients among those named.

        Returns
        -------
        Attribution
            From the rounds after the alarm against those before the onset. More rounds make it surer; a hundred steps
            after the alarm are a good number.

        Raises
        ------
        ValueError
            Without an alarm, or without `clients` in `update` both before the onset and after the alarm.
        """
        level = _checks.probability("rate", rate, fix="It is a share of false discoveries, such as .10.")
        if self.alarm is None:
            raise ValueError("suspects needs an alarm, and rounds after it; there was no alarm. Keep watching.")
        if self.uploads is None:
            raise ValueError("suspects needs the clients' uploads; none were given. Use update(y, clients=...).")
        return self.uploads.attribution(level)

    @locked
    def save(self, path: storage.Place) -> None:
        """Write everything to one file; `Monitor.load` continues from it with the same verdicts, bit for bit.

        Parameters
        ----------
        path : str or path-like
            The file, by convention with the suffix .npz. It is written completely or not at all, is on disk when this
            returns, and only its owner can read it.
        """
        storage.write(path, *self.state())

    @locked
    def state(self) -> storage.Contents:
        """All that is saved, as words and arrays."""
        return contents_of(self)

    @classmethod
    def load(cls, path: storage.Place, channels: Sequence[Channel] = CHANNELS_WITH_UPLOADS) -> Monitor:
        """The monitor that `save` wrote, by this version or an earlier one.

        One of an earlier version keeps its channels and what it has seen, and goes on with the statistics and
        thresholds of this version.

        Parameters
        ----------
        path : str or path-like
            The file.
        channels : sequence of Channel
            The channels that it was saved with, where these are not the default ones: a file holds their state, but no
            code.

        Returns
        -------
        Monitor

        Raises
        ------
        ValueError
            If the file is not one that `save` wrote, is damaged, or has other channels.
        """
        monitor = cls.__new__(cls)
        monitor._blank()
        read_into(monitor, path, checked_channels(channels))
        return monitor
