"""`Reported`: a monitor that begins once all clients have reported Hessian and gradient covariance."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization, linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.answers import PARTITION, Answer, Request, read
from fedgauss.integrations.flower.arrays import Views, vector
from fedgauss.integrations.flower.rounds import Round
from fedgauss.integrations.flower.whole import Whole
from fedgauss.step_sizes import StepSizes, as_step_sizes

_MOST_STEPS = 10**9  # behind a client's moments
_log = logging.getLogger("flwr")


class Report(NamedTuple):
    """One client's, from the mod `report_moments`, and its weight in the strategy's average."""

    hessian: FloatArray
    covariance: FloatArray
    kurtosis: float
    gradient: FloatArray
    n_warmup: int
    examples: float | None


class Reported:
    """After `after` rounds clients are asked for their moments; with the last report a monitor begins.

    steps, sync_every  eta_t, counted from the run's first step, and tau, the local steps of a round
    n_clients          K: partitions 0, ..., K - 1. Clients that are missing are asked again in the next round
    after              rounds of training before that: the run should have arrived near its optimum
    alpha, horizon, seed  of the `Monitor`; the horizon counts steps from where it begins

    Weights are the clients' examples, as FedAvg has them. Local epochs are steps too: tau = epochs * batches an epoch.
    A report with wrong shapes, or numbers that are no covariance, is refused, and that client asked again. So are all
    clients when no monitor can be made of their reports; the log says why. A report that is plausible and false is
    taken: see `report_moments` for what it can do.
    """

    def __init__(
        self,
        steps: StepSizes | ArrayLike,
        sync_every: int,
        n_clients: int,
        after: int,
        alpha: float = 0.05,
        horizon: int | None = None,
        seed: int = 0,
    ) -> None:
        self.steps = as_step_sizes(steps)
        self.sync_every = _checks.whole("sync_every", sync_every)
        self.n_clients = _checks.whole("n_clients", n_clients)
        self.after = _checks.whole("after", after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts steps.")
        self.seed = _checks.whole("seed", seed, at_least=0)
        self.reports: dict[int, Report] = {}
        self.lin: Linearization | None = None  # what the reports add up to
        self._whole: Whole | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._whole is None else self._whole.monitor

    def request(self, server_round: int) -> Request:
        """Which client is which; moments, when the warm start is over."""
        waiting = self._whole is None and server_round > self.after
        return {PARTITION: 1.0, "moments": 1.0} if waiting else {PARTITION: 1.0}

    def faults(self, seen: Round) -> tuple[str, ...]:
        """Those that the monitor finds."""
        return () if self._whole is None else self._whole.faults(seen)

    def judge(self, seen: Round, after: Views) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self._whole is not None:
            return self._whole.judge(seen, after)
        if seen.number > self.after:
            self._collect(seen)
            if len(self.reports) == self.n_clients:
                self._begin(seen, after)
        return None

    def _collect(self, seen: Round) -> None:
        eta = next_steps(self.steps, seen.number, self.sync_every)
        for upload in seen.uploads:
            if upload.client >= self.n_clients or "hessian" not in upload.answer:
                continue
            try:
                self.reports[upload.client] = _report(upload.answer, len(seen.origin), eta, upload.examples)
            except ValueError as error:
                _log.warning("fedgauss: the report of client %d is refused. %s", upload.client, error)
        missing = sorted(set(range(self.n_clients)) - set(self.reports))
        if missing:
            _log.warning("fedgauss: no monitor yet, since clients %s have not reported.", missing)

    def _begin(self, seen: Round, after: Views) -> None:
        reports = [self.reports[k] for k in range(self.n_clients)]
        hessians, covariances, kurtosis, gradients, counts, examples = zip(*reports, strict=True)
        try:
            lin = linearization(
                np.stack(hessians),
                np.stack(covariances),
                weights=_shares(examples),
                n_warmup=min(counts),
                optimum=seen.origin,
                kurtosis=np.array(kurtosis),
                gradients=np.stack(gradients),
            )
            monitor = Monitor(lin, self.steps, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        except (ValueError, ArithmeticError) as error:
            self.reports.clear()
            _log.warning("fedgauss: no monitor can be made of these reports; clients are asked again. %s", error)
            return
        monitor.reset(step=seen.number * self.sync_every, y=vector(after, seen.before), round=seen.number)
        self.lin, self._whole = lin, Whole(monitor)


def _report(answer: Answer, dim: int, eta: FloatArray, examples: float | None) -> Report:
    """A report as numbers, or an error that says what is wrong with it."""
    steps, kurtosis = (float(read(answer, name, (1,))[0]) for name in ("n_warmup", "kurtosis"))
    if not (steps == int(steps) and 2 <= steps <= _MOST_STEPS):
        raise ValueError(f"n_warmup must be a whole number from 2 to {_MOST_STEPS:,}; got {steps:g}.")
    if not 1.0 <= kurtosis <= max(steps, 3.0):  # the most and least that so many gradients can show
        raise ValueError(f"kurtosis must lie in [1, {max(steps, 3.0):g}] with n_warmup = {steps:g}; got {kurtosis:g}.")
    return Report(
        stable_hessian(read(answer, "hessian", (dim, dim)), eta),
        _checks.covariance("covariance", read(answer, "covariance", (dim, dim))),
        kurtosis,
        read(answer, "gradient", (dim,)),
        int(steps),
        examples,
    )


def next_steps(steps: StepSizes, n_rounds: int, sync_every: int) -> FloatArray:
    """eta_t of the round after the first `n_rounds`."""
    return step_sizes_between(steps, n_rounds * sync_every, (n_rounds + 1) * sync_every)


def stable_hessian(hessian: FloatArray, eta: FloatArray) -> FloatArray:
    """A client's Hessian, if its own steps stay bounded: then those of any mean over clients do."""
    found = _checks.covariance("hessian", hessian)
    steepest, largest = float(np.linalg.eigvalsh(found)[-1]), float(np.max(eta))
    if steepest * largest >= 2.0:
        raise ValueError(f"hessian must have eigenvalues below 2 / eta = {2.0 / largest:.3g}; got {steepest:.3g}.")
    return found


def _shares(examples: tuple[float | None, ...]) -> FloatArray | None:
    """w_k by examples; equal ones where the strategy has none."""
    known = [n for n in examples if n is not None]
    return np.array(known) / sum(known) if len(known) == len(examples) else None
