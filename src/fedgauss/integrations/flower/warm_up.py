"""Monitors that begin after a warm-up in which clients answer: `Reported`, and `Chained`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization, linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import INVALID, Channel, checked_channels
from fedgauss.detect.innovations import innovations, step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.detect.watch import DEFAULT_CHANNELS
from fedgauss.integrations.flower.feed import MonitorFeed, far_off, with_note
from fedgauss.integrations.flower.records import PARTITION, Answer, Request, Views, log, read
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.step_sizes import StepSizes, as_step_sizes

_MOST_STEPS = 10**9  # behind a client's moments
_PATIENCE = 3  # rounds in which clients are asked for a report, before the monitor begins without some
_ENOUGH = 0.75  # of the clients must have reported then
_TIMES = 10.0  # the median report's: more noise would blind the monitor, and far fewer steps keep it from beginning
_FEWEST = 3  # reports of which a median says what is usual


class WarmUpSettings:
    """When a warm-up begins, and the monitor that comes of it. Subclasses are dataclasses with these fields."""

    sync_every: int
    after: int
    alpha: float
    horizon: int | None
    seed: int
    channels: Sequence[Channel]

    def __post_init__(self) -> None:
        self.sync_every = _checks.whole("sync_every", self.sync_every)
        self.after = _checks.whole("after", self.after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", self.alpha, fix="Use 0.05, one false alarm in 20 runs?")
        if self.horizon is not None:
            self.horizon = _checks.whole("horizon", self.horizon, fix="It counts steps.")
        self.seed = _checks.whole("seed", self.seed, at_least=0)
        self.channels = checked_channels(self.channels)

    def _monitor_after(self, number: int, lin: Linearization, steps: StepSizes, y: FloatArray) -> Monitor:
        """A monitor that begins after the round `number`, with the mean y there."""
        monitor = Monitor(lin, steps, self.sync_every, self.alpha, self.horizon, seed=self.seed, channels=self.channels)
        monitor.reset(step=number * self.sync_every, y=y, round=number)
        return monitor

    def _refused_in_warm_up(self, server_round: int, last: int, note: str) -> Verdict:
        step = server_round * self.sync_every
        return Verdict(True, math.inf, 0.0, INVALID, server_round, step, None, last, self.alpha, note=note)


@dataclass(eq=False, repr=False)
class ClientWarmUp(WarmUpSettings, ABC):
    """A warm-up in which all clients are asked for something: `Reported` and `Chained`."""

    steps: StepSizes | ArrayLike
    sync_every: int
    n_clients: int
    after: int
    alpha: float = 0.05
    horizon: int | None = None
    seed: int = 0
    channels: Sequence[Channel] = field(default=DEFAULT_CHANNELS, kw_only=True)

    note = ""  # to every verdict

    def __post_init__(self) -> None:
        super().__post_init__()
        self.steps = self._schedule = as_step_sizes(self.steps)
        self.n_clients = _checks.whole("n_clients", self.n_clients)
        self.lin: Linearization | None = None  # what clients' answers add up to
        self._feed: MonitorFeed | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._feed is None else self._feed.monitor

    def request(self, server_round: int) -> Request:
        """Which client is which; and what the monitor needs, once the warm start is over."""
        waiting = self._feed is None and server_round > self.after
        return {PARTITION: 1.0} | (self.wanted(server_round) if waiting else {})

    def faults(self, seen: TrainingRound) -> dict[int, str]:
        """Those that the monitor finds; in the warm-up uploads that are far off."""
        return far_off(seen) if self._feed is None else self._feed.faults(seen)

    def judge_uploads(self, seen: TrainingRound) -> None:
        """None: the monitor judges what the strategy makes of them."""

    def refuse(self, server_round: int, last: int, note: str) -> Verdict:
        """The monitor's own, once there is one."""
        if self._feed is not None:
            return self._feed.refuse(server_round, last, note)
        return self._refused_in_warm_up(server_round, last, note)

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
    def wanted(self, server_round: int) -> dict[str, ArrayLike]:
        """What clients are asked for in this round of the warm-up."""

    @abstractmethod
    def warm(self, seen: TrainingRound, after: Views) -> None:
        """Take in clients' answers, and begin when they are complete; a ValueError says why not yet."""

    def begin(self, lin: Linearization, seen: TrainingRound, after: Views) -> None:
        """Watch from here on."""
        self._feed = MonitorFeed(self._monitor_after(seen.number, lin, self._schedule, seen.vector(after)))
        self.lin = lin

    def round_steps(self, n_rounds: int) -> FloatArray:
        """eta_t of the round after the first `n_rounds`."""
        return step_sizes_between(self._schedule, n_rounds * self.sync_every, (n_rounds + 1) * self.sync_every)


def stable_hessian(hessian: FloatArray, eta: FloatArray) -> FloatArray:
    """A client's Hessian, if its own steps stay bounded: then those of any mean over clients do."""
    checked = _checks.covariance("hessian", hessian)
    steepest, largest = float(np.linalg.eigvalsh(checked)[-1]), float(np.max(eta))
    if steepest * largest >= 2.0:
        raise ValueError(f"hessian must have eigenvalues below 2 / eta = {2.0 / largest:.3g}; got {steepest:.3g}.")
    return checked


class ClientReport(NamedTuple):
    """One client's, from the mod `report_moments`, and its weight in the strategy's average."""

    hessian: FloatArray
    covariance: FloatArray
    kurtosis: float
    gradient: FloatArray
    n_warmup: int
    examples: float


@dataclass(eq=False, repr=False)
class Reported(ClientWarmUp):
    """After `after` rounds clients are asked for their moments; with the last report a monitor begins.

    Parameters
    ----------
    steps : StepSizes or array_like
        eta_t, counted from the run's first step.
    sync_every : int
        tau, the local steps of a round. Local epochs are steps too: tau = epochs * batches an epoch.
    n_clients : int
        K: partitions 0, ..., K - 1. Clients that are missing are asked again in the next two rounds; then the monitor
        begins without their reports, if three in four clients have reported.
    after : int
        Rounds of training before that: the run should have arrived near its optimum.
    alpha, horizon, seed, channels
        As in `Monitor`; the horizon counts steps from where the monitor begins.

    Notes
    -----
    Weights are the clients' examples, as in FedAvg. A report with wrong shapes, or numbers that are not a covariance,
    is refused, and that client asked again. So is one whose covariance has a trace of more than ten times the median
    report's or less than a tenth of it, or that stands on less than a tenth of the median's steps. For a client that
    has sent no report after three rounds the median of the others' stands, entry by entry, and every verdict says so.
    All clients are asked again when no monitor can be made of their reports; the log says why. A report that is
    plausible and false is accepted: see `report_moments` for what it can do.
    """

    reports: dict[int, ClientReport] = field(default_factory=dict, init=False)  # of a warm-up that is not complete yet
    _asked: int = field(default=0, init=False)  # rounds in which clients could have reported

    def wanted(self, server_round: int) -> dict[str, ArrayLike]:
        """Moments."""
        return {"moments": 1.0}

    def warm(self, seen: TrainingRound, after: Views) -> None:
        """Collect reports, and begin with the last one, or without those that do not come."""
        self._asked += 1
        self._collect(seen)
        missing = sorted(set(range(self.n_clients)) - set(self.reports))
        if missing and (self._asked < _PATIENCE or len(self.reports) < _ENOUGH * self.n_clients):
            log.warning("fedgauss: no monitor yet, since clients %s have not reported.", missing)
            return
        reports, self.reports, self._asked = self.reports, {}, 0  # asked for again if no monitor comes of them
        if missing:
            usual = _median_report(list(reports.values()))
            weights = {upload.client: upload.examples for upload in seen.uploads}
            reports |= {k: usual._replace(examples=weights.get(k, usual.examples)) for k in missing}
        self.begin(_linearized([reports[k] for k in range(self.n_clients)], seen.origin), seen, after)
        if missing:
            who = f"client {missing[0]}" if len(missing) == 1 else f"clients {', '.join(map(str, missing))}"
            self.note = f"No report of {who} could be used: the median of the others' stands in its place."
            log.warning("fedgauss, round %d: %s", seen.number, self.note)

    def _collect(self, seen: TrainingRound) -> None:
        """Take in the reports of a round, and leave out those that are not like the others."""
        eta = self.round_steps(seen.number)
        for upload in seen.uploads:
            if upload.client >= self.n_clients or "hessian" not in upload.answer:
                continue
            try:
                self.reports[upload.client] = _report(upload.answer, len(seen.origin), eta, upload.examples)
            except ValueError as error:
                self._refuse_report(upload.client, str(error))
        for client, words in _unlike_the_others(self.reports).items():
            del self.reports[client]
            self._refuse_report(client, words)

    def _refuse_report(self, client: int, words: str) -> None:
        log.warning("fedgauss: the report of client %d is refused. %s", client, words)


def _unlike_the_others(reports: Mapping[int, ClientReport]) -> dict[int, str]:
    """Reports that one client could blind the monitor with, or keep it from beginning; what is wrong, by client."""
    if len(reports) < _FEWEST:
        return {}
    noise = {k: float(np.trace(report.covariance)) for k, report in reports.items()}
    usual, steps = float(np.median(list(noise.values()))), float(np.median([r.n_warmup for r in reports.values()]))
    found = {
        k: f"The trace of its covariance, {trace:.3g}, is not within {_TIMES:g} times the median report's, {usual:.3g}."
        for k, trace in noise.items()
        if not usual / _TIMES <= trace <= usual * _TIMES
    }
    return found | {
        k: f"n_warmup must be at least a tenth of the median report's, {steps:g}; got {report.n_warmup}."
        for k, report in reports.items()
        if report.n_warmup < steps / _TIMES
    }


def _median_report(reports: Sequence[ClientReport]) -> ClientReport:
    """Entry by entry."""
    hessians, covariances, kurtosis, gradients, counts, examples = zip(*reports, strict=True)
    return ClientReport(
        _median_matrix(np.stack(hessians)),
        _median_matrix(np.stack(covariances)),
        float(np.median(kurtosis)),
        np.median(np.stack(gradients), axis=0),
        int(np.median(counts)),
        float(np.median(examples)),
    )


def _median_matrix(matrices: FloatArray) -> FloatArray:
    """The median of each entry, with eigenvalues no further out than those of the matrices (K, d, d), and none below 0.

    Medians of entries need not be a covariance, though each of the matrices is one.
    """
    values, vectors = np.linalg.eigh(np.median(matrices, axis=0))
    most = float(np.linalg.eigvalsh(matrices)[:, -1].max())
    return np.asarray((vectors * np.clip(values, 0.0, most)) @ vectors.T)


def _linearized(reports: Sequence[ClientReport], optimum: FloatArray) -> Linearization:
    hessians, covariances, kurtosis, gradients, counts, examples = zip(*reports, strict=True)
    return linearization(
        np.stack(hessians),
        np.stack(covariances),
        weights=np.array(examples) / sum(examples),
        n_warmup=min(counts),
        optimum=optimum,
        kurtosis=np.array(kurtosis),
        gradients=np.stack(gradients),
    )


def _report(answer: Answer, dim: int, eta: FloatArray, examples: float) -> ClientReport:
    """A report as numbers, or an error that says what is wrong with it."""
    steps, kurtosis = (float(read(answer, name, (1,))[0]) for name in ("n_warmup", "kurtosis"))
    if not (steps == int(steps) and 2 <= steps <= _MOST_STEPS):
        raise ValueError(f"n_warmup must be a whole number from 2 to {_MOST_STEPS:,}; got {steps:g}.")
    if not 1.0 <= kurtosis <= max(steps, 3.0):  # the most and least that so many gradients can show
        raise ValueError(f"kurtosis must lie in [1, {max(steps, 3.0):g}] with n_warmup = {steps:g}; got {kurtosis:g}.")
    return ClientReport(
        stable_hessian(read(answer, "hessian", (dim, dim)), eta),
        _checks.covariance("covariance", read(answer, "covariance", (dim, dim))),
        kurtosis,
        read(answer, "gradient", (dim,)),
        int(steps),
        examples,
    )


@dataclass(eq=False, repr=False)
class Chained(ClientWarmUp):
    """Two rounds after `after`: clients send Hessians; with A = sum_k w_k H_k known they run chains; a monitor begins.

    Parameters
    ----------
    n_chains : int
        B. Sums over clients of w_k times the ends of their chains are B independent Gaussian vectors with the law of
        Theorem 3.2, from which V_K is estimated with B - 1 degrees of freedom. Thresholds are calibrated for that.
    steps, sync_every, n_clients, after, alpha, horizon, seed, channels
        As in `Reported`.

    Notes
    -----
    The monitor knows V_K and no client's covariance, so it cannot name suspects, and rounds in which clients are
    missing are judged as if they were not. What a curious server could still find out is described in `run_chains`.
    """

    n_chains: int = 400
    _hessian: FloatArray | None = field(default=None, init=False)  # A, once clients have sent theirs

    note = "Noise from clients' chains: a missing client counts as if it had taken part."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.n_chains = _checks.whole("n_chains", self.n_chains, at_least=20)

    def wanted(self, server_round: int) -> dict[str, ArrayLike]:
        """Hessians, then chains."""
        if self._hessian is None:
            return {"hessian only": 1.0}
        eta = self.round_steps(server_round - 1)
        return {"hessian": self._hessian, "eta": eta, "n_chains": float(self.n_chains)}

    def warm(self, seen: TrainingRound, after: Views) -> None:
        """First A, then the ends of chains, from all clients."""
        dim = len(seen.origin)
        if self._hessian is None:
            mean = self._mean_over_clients(seen, "hessian", (dim, dim))
            self._hessian = _checks.covariance("hessian A", mean, definite=True)
            return
        ends, hessian = self._mean_over_clients(seen, "ends", (self.n_chains, dim)), self._hessian
        self._hessian = None  # asked for again if no monitor comes of it
        before = (seen.number - 1) * self.sync_every
        self.begin(noise_of_chains(hessian, ends, self._schedule, before, self.sync_every), seen, after)

    def _mean_over_clients(self, seen: TrainingRound, name: str, shape: tuple[int, int]) -> FloatArray:
        """sum_k w_k of what clients sent, with w_k by their examples; all of them must have."""
        sent = {u.client: u for u in seen.uploads if name in u.answer}
        if sorted(sent) != list(range(self.n_clients)):
            raise ValueError(f"{name} must come from all {self.n_clients} clients; it came from {sorted(sent)}.")
        eta = self.round_steps(seen.number)
        values = []
        for k, upload in sent.items():
            try:
                value = read(upload.answer, name, shape)
                values.append(stable_hessian(value, eta) if name == "hessian" else value)
            except ValueError as error:
                raise ValueError(f"The answer of client {k} is refused: {error}") from error
        weights = np.array([u.examples for u in sent.values()])
        return np.tensordot(weights / weights.sum(), np.stack(values), axes=1)


def noise_of_chains(
    hessian: FloatArray, ends: FloatArray, steps: StepSizes, after: int, sync_every: int
) -> Linearization:
    """A linearisation from where B chains of a round, begun at zero, end: (B, d).

    An end is sum_t W_t Z_t, and its innovation E has a covariance near V_K / w (`Innovations`), so that V_K is
    estimated by w times the covariance of E: a Wishart matrix with B - 1 degrees of freedom.
    """
    dim = len(hessian)
    # Only A is used before V is known; any V will do.
    parts = innovations(Linearization(np.zeros(dim), hessian[None], np.eye(dim)[None], np.ones(1)), steps)
    block = parts.block(after, after + sync_every)
    e = np.stack([parts.whiten(block, np.zeros(dim), end) for end in ends])
    noise = block.mean_weight * np.atleast_2d(np.cov(e.T))
    return Linearization(np.zeros(dim), hessian[None], noise[None], np.ones(1), dof=float(len(ends) - 1))
