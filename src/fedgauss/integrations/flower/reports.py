"""`Reported`: a monitor that begins once all clients have reported Hessian and gradient covariance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import Channel
from fedgauss.detect.watch import DEFAULT_CHANNELS
from fedgauss.integrations.flower.answers import PARTITION, Answer, Request, read
from fedgauss.integrations.flower.arrays import Views
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.warm_up import ClientWarmUp, log, stable_hessian
from fedgauss.step_sizes import StepSizes

_MOST_STEPS = 10**9  # behind a client's moments


class Report(NamedTuple):
    """One client's, from the mod `report_moments`, and its weight in the strategy's average."""

    hessian: FloatArray
    covariance: FloatArray
    kurtosis: float
    gradient: FloatArray
    n_warmup: int
    examples: float | None


class Reported(ClientWarmUp):
    """After `after` rounds clients are asked for their moments; with the last report a monitor begins.

    Parameters
    ----------
    steps : StepSizes or array_like
        eta_t, counted from the run's first step.
    sync_every : int
        tau, the local steps of a round. Local epochs are steps too: tau = epochs * batches an epoch.
    n_clients : int
        K: partitions 0, ..., K - 1. Clients that are missing are asked again in the next round.
    after : int
        Rounds of training before that: the run should have arrived near its optimum.
    alpha, horizon, seed, channels
        As in `Monitor`; the horizon counts steps from where the monitor begins.

    Notes
    -----
    Weights are the clients' examples, as in FedAvg. A report with wrong shapes, or numbers that are not a covariance,
    is refused, and that client asked again. So are all clients when no monitor can be made of their reports; the log
    says why. A report that is plausible and false is accepted: see `report_moments` for what it can do.
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
        channels: Sequence[Channel] = DEFAULT_CHANNELS,
    ) -> None:
        super().__init__(steps, sync_every, n_clients, after, alpha, horizon, seed, channels)
        self.reports: dict[int, Report] = {}

    def request(self, server_round: int) -> Request:
        """Which client is which; moments, when the warm start is over."""
        waiting = self._feed is None and server_round > self.after
        return {PARTITION: 1.0, "moments": 1.0} if waiting else {PARTITION: 1.0}

    def warm(self, seen: TrainingRound, after: Views) -> None:
        """Collect reports, and begin with the last one."""
        eta = self.round_steps(seen.number)
        for upload in seen.uploads:
            if upload.client >= self.n_clients or "hessian" not in upload.answer:
                continue
            try:
                self.reports[upload.client] = _report(upload.answer, len(seen.origin), eta, upload.examples)
            except ValueError as error:
                log.warning("fedgauss: the report of client %d is refused. %s", upload.client, error)
        if missing := sorted(set(range(self.n_clients)) - set(self.reports)):
            log.warning("fedgauss: no monitor yet, since clients %s have not reported.", missing)
            return
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
            self.begin(lin, seen, after)
        except (ValueError, ArithmeticError):
            self.reports.clear()
            raise


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


def _shares(examples: tuple[float | None, ...]) -> FloatArray | None:
    """w_k by examples; equal ones where the strategy has none."""
    counted = [n for n in examples if n is not None]
    return np.array(counted) / sum(counted) if len(counted) == len(examples) else None
