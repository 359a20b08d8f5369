"""`Reported`: a monitor that begins once all clients have reported Hessian and gradient covariance."""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord

from fedgauss import _checks
from fedgauss._linearization import Linearization, linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import vector
from fedgauss.integrations.flower.rounds import Round
from fedgauss.integrations.flower.whole import Whole
from fedgauss.step_sizes import StepSizes

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
    A report with wrong shapes, or numbers that are no covariance, is refused, and that client asked again.
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
        self.steps = steps
        self.sync_every = _checks.whole("sync_every", sync_every)
        self.n_clients = _checks.whole("n_clients", n_clients)
        self.after = _checks.whole("after", after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.horizon, self.seed = horizon, seed
        self.reports: dict[int, Report] = {}
        self.lin: Linearization | None = None  # what the reports add up to
        self._whole: Whole | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._whole is None else self._whole.monitor

    def request(self, server_round: int) -> ArrayRecord | None:
        """Moments, when the warm start is over."""
        waiting = self._whole is None and server_round > self.after
        return ArrayRecord({"moments": Array(np.array(1.0))}) if waiting else None

    def judge(self, seen: Round) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self._whole is not None:
            return self._whole.judge(seen)
        if seen.number > self.after:
            self._collect(seen)
            if len(self.reports) == self.n_clients and seen.sound:
                self._begin(seen)
        return None

    def _collect(self, seen: Round) -> None:
        dim = len(vector(seen.before, seen.before))
        for upload in seen.uploads:
            if upload.client >= self.n_clients or upload.answer is None:
                continue
            try:
                self.reports[upload.client] = _report(upload.answer, dim, upload.examples)
            except (KeyError, ValueError, TypeError, EOFError) as error:
                _log.warning("fedgauss: the report of client %d is refused. %s", upload.client, error)
        missing = sorted(set(range(self.n_clients)) - set(self.reports))
        if missing:
            _log.warning("fedgauss: no monitor yet, since clients %s have not reported.", missing)

    def _begin(self, seen: Round) -> None:
        assert seen.after is not None
        reports = [self.reports[k] for k in range(self.n_clients)]
        hessians, covariances, kurtosis, gradients, counts, examples = zip(*reports, strict=True)
        self.lin = linearization(
            np.stack(hessians),
            np.stack(covariances),
            weights=_shares(examples),
            n_warmup=min(counts),
            optimum=vector(seen.before, seen.before),
            kurtosis=np.array(kurtosis),
            gradients=np.stack(gradients),
        )
        monitor = Monitor(self.lin, self.steps, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        monitor.reset(step=seen.number * self.sync_every, y=vector(seen.after, seen.before), round=seen.number)
        self._whole = Whole(monitor)


def _report(answer: ArrayRecord, dim: int, examples: float | None) -> Report:
    """A report as numbers, or an error that says what is wrong with it."""
    found = {name: answer[name].numpy() for name in Report._fields[:-1]}
    kurtosis = _checks.real("kurtosis", float(found["kurtosis"]), above=0.0)
    return Report(
        _checks.covariance("hessian", _checks.real_array("hessian", found["hessian"], shape=(dim, dim))),
        _checks.covariance("covariance", _checks.real_array("covariance", found["covariance"], shape=(dim, dim))),
        kurtosis,
        _checks.real_array("gradient", found["gradient"], shape=(dim,)),
        _checks.whole("n_warmup", int(found["n_warmup"]), at_least=2),
        examples,
    )


def _shares(examples: tuple[float | None, ...]) -> FloatArray | None:
    """w_k by examples; equal ones where the strategy has none."""
    known = [n for n in examples if n is not None]
    return np.array(known) / sum(known) if len(known) == len(examples) else None
