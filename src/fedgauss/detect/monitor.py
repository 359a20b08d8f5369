"""`Monitor`: watch a federated run as it goes, and be told when an attack began."""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect import storage
from fedgauss.detect.attribution import Attribution
from fedgauss.detect.client_record import ClientRecord
from fedgauss.detect.innovations import innovations, step_sizes_between
from fedgauss.detect.mean_channel import Peak
from fedgauss.detect.participation import participant_mask, participant_weights
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.detect.updates import client_table, fault, mean_vector
from fedgauss.detect.verdict import Channel, Verdict
from fedgauss.detect.watch import Watch, rounds_to_drop
from fedgauss.step_sizes import StepSizes

LONGEST_GAP = 1_000_000  # steps between two updates: their product is computed at once


class Monitor:
    """Raises an alarm when clients turn malicious, at a false-alarm rate that holds over the whole run.

        monitor = Monitor(lin, steps, sync_every=20, horizon=500)
        verdict = monitor.update(y)         # y = Y_t, the clients' mean, after every synchronisation
        if verdict.alarm: print(verdict)

    lin         Hessians and gradient noise: `linearize(problem)`, or `linearization(...)` from client reports
    steps       eta_t, the same for all clients
    sync_every  tau, the steps between two calls of `update`
    alpha       the chance of any false alarm: over the first `horizon` steps, or for ever when there is no horizon;
                .2 at most counts
    start       Y_0. Without it the first update only says where the run begins; nothing is lost, since the first
                ceil(20 / tau) rounds are left out anyway
    seed        of the simulation of thresholds where the package has none: when A and V were estimated in a warm-up,
                and in more than 40 dimensions

    A run with a non-linear loss that is still far from its optimum looks like a change. An alarm that the journey
    may explain is withheld: the verdict says "still travelling", and `reset` starts the watch once it has arrived.

    After an alarm `suspects` names the clients, where `update` was given what they uploaded. `alarm` is the first
    verdict of it: later ones never ask for a rollback to a later round, and `reset` ends it.

    State and time per round grow like log t: prefix sums of the innovations are kept at O(log t) rounds.
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
    ) -> None:
        tau, level, horizon = _settings(sync_every, alpha, horizon)
        parts = innovations(lin, steps)
        first = None if start is None else _checks.real_array("start", start, shape=(lin.dim,))
        seed = _checks.whole("seed", seed, at_least=0)
        limits = boundary(lin.dim, tau, level, horizon, seed, parts.whitening)
        self._begin(parts.lin, parts.steps, tau, level, horizon, first, limits)

    def _begin(
        self,
        lin: Linearization,
        steps: StepSizes,
        sync_every: int,
        alpha: float,
        horizon: int | None,
        start: FloatArray | None,
        limits: Boundary,
    ) -> None:
        self.sync_every, self.alpha, self.horizon, self.boundary = sync_every, alpha, horizon, limits
        self._innovations = innovations(lin, steps)
        self._weights: FloatArray | None = None  # those of lin
        self._round, self._step, self._mean = 0, 0, start
        self._clients: ClientRecord | None = None  # from the first upload on
        self._warned = False
        self._forget()

    @property
    def lin(self) -> Linearization:
        """A and V: what an honest run looks like."""
        return self._innovations.lin

    @property
    def steps(self) -> StepSizes:
        """eta_t."""
        return self._innovations.steps

    @property
    def round(self) -> int:
        """How many updates were taken in."""
        return self._round

    @property
    def step(self) -> int:
        """The step of SGD at the last of them."""
        return self._step

    @property
    def mean(self) -> FloatArray | None:
        """Y at the last of them, or where it was told to begin; None while it knows of none."""
        return None if self._mean is None else self._mean.copy()

    @property
    def has_uploads(self) -> bool:
        """Whether it was given what clients uploaded, which `suspects` needs."""
        return self._clients is not None

    @property
    def alarm(self) -> Verdict | None:
        """The first verdict of the alarm that is on, None when there is none; `reset` ends it."""
        return self._alarm

    def __repr__(self) -> str:
        lin, state = self.lin, "no alarm" if self.alarm is None else "ALARM"
        return f"<Monitor of {lin.n_clients} clients in {lin.dim} dimensions, round {self.round}: {state}>"

    def reset(self, step: int | None = None, y: ArrayLike | None = None, round: int | None = None) -> None:
        """Forget what was seen and watch anew from here, with a fresh alpha; after a false alarm, or a rollback.

        step, y, round  after a rollback: the step that the run goes on from, its mean there (without it the next update
                        only says where the run is), and how many rounds led to it
        """
        mean = self._mean
        if step is not None or y is not None or round is not None:
            now = _checks.whole("step", self._step if step is None else step, at_least=0, fix="Steps count from 0.")
            mean = None if y is None else mean_vector(y, self._innovations.dim)
            if mean is not None and not np.all(np.isfinite(mean)):
                raise ValueError("y must be finite: it is the mean that the run goes on from.")
            self._round = self._round if round is None else _checks.whole("round", round, at_least=0)
            self._step = now
        self._mean = mean
        self._forget()

    def _forget(self) -> None:
        self._origin_step, self._origin_round = self._step, self._round
        self._alarm: Verdict | None = None
        if self._clients is not None:
            self._clients.reset()
        tempering = self._innovations.whitening.tempering
        self._watch = Watch(self._innovations.dim, self.sync_every, tempering=tempering)

    def reweight(self, weights: ArrayLike | None) -> None:
        """Client weights from the next round on; None for those of `lin`.

        Clients step with eta_t K w_k. Where they differ in optimum other weights move the mean: see `participants`.
        """
        count = self._innovations.lin.n_clients
        self._weights = None if weights is None else _checks.client_weights(weights, count)
        if self._clients is not None:
            self._clients.reweight(self._weights)
        if weights is not None:
            self._warn_of_optima()

    def _warn_of_optima(self) -> None:
        """Said once: rounds of other clients cannot be made comparable."""
        if self._innovations.lin.client_gradients is None and not self._warned:
            self._warned = True
            warnings.warn(
                "alpha holds for rounds with other clients or weights only where all clients have one optimum, since "
                "lin has no client gradients. Use linearize(problem), or linearization(..., gradients=...).",
                _checks.FedgaussWarning,
                stacklevel=3,
            )

    def update(
        self,
        y: ArrayLike,
        clients: ArrayLike | None = None,
        participants: ArrayLike | None = None,
        step: int | None = None,
        began: ArrayLike | None = None,
    ) -> Verdict:
        """Judge a round from Y, the clients' mean after it.

        clients       what they uploaded, (K, d), before any averaging: checked for values that are not finite or not
                      plausible, and remembered for `suspects`
        participants  who took part in the round's steps: indices, or K booleans; everybody by default.
                      Where clients differ in optimum, who is missing moves the mean: `lin` must then know their
                      gradients (`linearize` does, and `linearization` when told), or alpha does not hold
        step          the step after which y was taken, where rounds were missed; sync_every after the last by default
        began         where each client began the round, (K, d): what the last mixing left it with; the last y by
                      default, as when a server sends the mean to everybody

        An update that is not finite, or absurdly large, is an alarm of its own and changes nothing here: send the
        round again, or go on with the next and its `step`. A wrong shape is a ValueError, and changes nothing either.
        """
        parts = self._innovations
        value = mean_vector(y, parts.dim)
        present = None if participants is None else participant_mask(participants, parts.lin.n_clients)
        sent, origin = (
            None if given is None else client_table(name, given, parts.lin.n_clients, parts.dim, present)
            for name, given in (("clients", clients), ("began", began))
        )
        now = self._next_step(step)
        if wrong := fault(parts, self._mean, value, sent, origin, present):
            threshold = self.boundary.at(now - self._origin_step)[0]
            return self._verdict("invalid update", np.inf, threshold, now, self._step + 1, self._round, note=wrong)
        if present is not None:
            self._warn_of_optima()
        if self._mean is None:
            step_sizes_between(parts.steps, now - 1, now)  # a schedule that has ended says so
            self._watch.skip()
            self._origin_step = now - self.sync_every
            peaks = None
        else:
            peaks = self._take_in(self._mean, value, present, now, sent, origin)
        self._mean, self._step, self._round = value, now, self._round + 1
        return self._judge(peaks)

    def _take_in(
        self,
        last: FloatArray,
        value: FloatArray,
        present: BoolArray | None,
        now: int,
        sent: FloatArray | None,
        began: FloatArray | None,
    ) -> tuple[Peak, Peak]:
        parts = self._innovations
        base = parts.lin.weights if self._weights is None else self._weights
        weights = self._weights if present is None else participant_weights(present, base)
        block = parts.block(self._step, now, weights)
        if not self._watch.to_drop:
            self._remember(last, began, sent, now)
        x, place = parts.whiten(block, last, value), parts.place(last)
        return self._watch.update(x[:, None], block.weight, self._step, place[:, None])

    def _remember(self, last: FloatArray, began: FloatArray | None, sent: FloatArray | None, now: int) -> None:
        """Keep the uploads of a round for `suspects`, or that there were none."""
        lin, position = self._innovations.lin, self._watch.mean.position
        if self._clients is None:
            if sent is None:
                return
            self._clients = ClientRecord(lin, self._innovations.steps)
            self._clients.reweight(self._weights)
            self._clients.reset(position)
        shape = (lin.n_clients, lin.dim)
        origin = np.broadcast_to(last, shape) if began is None else began
        self._clients.update(position, origin, np.full(shape, np.nan) if sent is None else sent, self._step, now)

    def suspects(self, rate: float = 0.10) -> Attribution:
        """Which clients turned malicious, the most suspect first, with a false-discovery rate of at most `rate`.

        It needs `clients` in `update` before the onset and after the alarm: only rounds after the alarm are set against
        those before the onset. More of them make it surer; a hundred steps are a good number.
        """
        level = _checks.probability("rate", rate, fix="It is a share of false discoveries, such as .10.")
        if self._alarm is None:
            raise ValueError("suspects needs an alarm, and the rounds after it; there was none. Go on watching.")
        if self._clients is None:
            raise ValueError("suspects needs what clients uploaded; there is nothing. Use update(y, clients=...).")
        return self._clients.attribution(level)

    def _judge(self, peaks: tuple[Peak, Peak] | None) -> Verdict:
        limits = self.boundary.at(self._step - self._origin_step)
        tops = (0.0, 0.0) if peaks is None else (float(peaks[0].statistic[0]), float(peaks[1].statistic[0]))
        # The channel that is furthest above its threshold speaks, or the one nearest to it.
        ratios = [top / limit for top, limit in zip(tops, limits, strict=True)]
        i = int(np.argmax(ratios))
        channel: Channel = "mean" if i == 0 else "spread"
        over = self.horizon is not None and self._step - self._origin_step > self.horizon
        note = f"The horizon of {self.horizon} steps is over, and with it the stated alpha." if over else ""
        if peaks is None or ratios[i] <= 1.0:
            return self._verdict(channel, tops[i], limits[i], self._step, note=note)
        found = peaks[i]
        onset = int(found.step[0]) + 1
        position = int(found.position[0])
        rounds = position if i == 0 else (position + 1) * self._watch.spread.group
        # A shift that has once been called an attack is not taken back as the journey to where the attack leads.
        if i == 0 and self._alarm is None and self._travelling(peaks[0]):
            return self._verdict(channel, tops[i], limits[i], self._step, onset, travelling=True, note=note)
        rollback = self._origin_round + rounds_to_drop(self.sync_every) + rounds
        if self._alarm is not None and self._alarm.rollback is not None:
            # Rounds are forgotten as they age, and a later estimate may lie on the next that is left: a poisoned one.
            rollback = min(rollback, self._alarm.rollback)
        verdict = self._verdict(channel, tops[i], limits[i], self._step, onset, rollback, note=note)
        if self._alarm is None:
            self._alarm = verdict
            if self._clients is not None:
                self._clients.freeze(rounds)
        return verdict

    def _travelling(self, peak: Peak) -> bool:
        last = int(peak.step[0])
        eta = step_sizes_between(self._innovations.steps, last - 1, last)[0]
        contraction = float(eta) * self._innovations.largest_curvature
        return bool(self._watch.travel.may_explain(self._watch.mean, peak, contraction)[0])

    def _verdict(
        self,
        channel: Channel,
        statistic: float,
        threshold: float,
        step: int,
        onset: int | None = None,
        rollback: int | None = None,
        travelling: bool = False,
        note: str = "",
    ) -> Verdict:
        alarm = statistic > threshold and not travelling
        where = self._round + (channel == "invalid update")  # a refused round was not counted
        return Verdict(alarm, statistic, threshold, channel, where, step, onset, rollback, self.alpha, travelling, note)

    def _next_step(self, step: int | None) -> int:
        if step is None:
            return self._step + self.sync_every
        now = _checks.whole("step", step, fix="Steps count from 1.")
        if now <= self._step:
            raise ValueError(
                f"step must grow from round to round; got {now} after {self._step}. "
                f"Use {self._step + self.sync_every}, or reset(step=..., y=...) after a rollback?"
            )
        gap = now - self._step
        if self._mean is not None and gap < self.sync_every:
            raise ValueError(
                f"step must lie at least sync_every = {self.sync_every} steps after the last; got {gap}. "
                "Thresholds are for rounds of that length or longer."
            )
        if gap > LONGEST_GAP:
            raise ValueError(
                f"step must lie at most {LONGEST_GAP:,} steps after the last, {self._step}; got {now}. "
                "Use reset(step=...) first, to begin in the middle of a run?"
            )
        return now

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; `Monitor.load` goes on from it and gives the same verdicts bit for bit."""
        words, arrays = self._state()
        storage.write(path, words, arrays)

    def _state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        steps, arrays = storage.steps_to_words(self._innovations.steps)
        lin = self._innovations.lin
        counters = [self._round, self._step, self._origin_round, self._origin_step]
        words = {
            "sync_every": self.sync_every,
            "alpha": self.alpha,
            "horizon": self.horizon,
            "n_warmup": lin.n_warmup,
            "freedom": lin.freedom,
            "steps": steps,
            "counters": counters,
            "alarm": storage.verdict_to_words(self._alarm),
        }
        arrays |= storage.lin_to_arrays(lin)
        arrays |= {"ends": self.boundary.ends, "above.mean": self.boundary.mean, "above.spread": self.boundary.spread}
        optional = {"last": self._mean, "weights": self._weights}
        arrays |= {name: array for name, array in optional.items() if array is not None}
        if self._clients is not None:
            arrays |= {f"clients.{name}": array for name, array in self._clients.arrays().items()}
        return words, arrays | {f"watch.{name}": array for name, array in self._watch.arrays().items()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Monitor:
        """The monitor that `save` wrote."""
        words, arrays = storage.read(path)
        try:
            return cls._restored(words, arrays)
        except Exception as error:  # a damaged file may break anything
            raise ValueError(
                f"{os.fspath(path)} must be a file that Monitor.save wrote; a part is missing or wrong ({error})."
            ) from error

    @classmethod
    def _restored(cls, words: dict[str, Any], arrays: storage.Arrays) -> Monitor:
        monitor = cls.__new__(cls)
        lin = storage.lin_from_arrays(arrays, words["n_warmup"], words["freedom"])
        steps = storage.steps_from_words(words["steps"], arrays)
        settings = _settings(words["sync_every"], words["alpha"], words["horizon"])
        monitor._begin(lin, steps, *settings, None, storage.boundary_from_arrays(arrays))
        # The origin may lie before step 0: it is sync_every steps before a first update that came early.
        least = (0, 0, 0, -settings[0])
        counters = (_checks.whole("counters", n, at_least=m) for n, m in zip(words["counters"], least, strict=True))
        monitor._round, monitor._step, monitor._origin_round, monitor._origin_step = counters
        if (last := arrays.get("last")) is not None:
            monitor._mean = _checks.real_array("last", last, shape=(lin.dim,))
        monitor._weights = storage.weights_from(arrays, "weights", lin.n_clients)
        monitor._alarm = storage.verdict_from_words(words.get("alarm"))
        monitor._watch.restore(storage.part(arrays, "watch."))
        if stored := storage.part(arrays, "clients."):
            monitor._clients = ClientRecord(monitor._innovations.lin, monitor._innovations.steps)
            monitor._clients.reweight(monitor._weights)
            monitor._clients.restore(stored)
        return monitor


def _settings(sync_every: Any, alpha: Any, horizon: Any) -> tuple[int, float, int | None]:
    """What a monitor is told, or finds in a file."""
    fix = "Use the number of steps between two updates."
    tau = _checks.whole("sync_every", sync_every, fix=fix, at_most=LONGEST_GAP)
    level = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
    if horizon is not None:
        horizon = _checks.whole("horizon", horizon, fix="It counts steps; use None for no end.")
    return tau, level, horizon
