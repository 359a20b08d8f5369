"""`Chained`: a monitor whose noise comes from Client-GA chains that clients run themselves."""

from __future__ import annotations

import logging

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import innovations
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.answers import PARTITION, Request, read
from fedgauss.integrations.flower.arrays import Views, vector
from fedgauss.integrations.flower.reports import next_steps, stable_hessian
from fedgauss.integrations.flower.rounds import Round
from fedgauss.integrations.flower.whole import Whole, with_note
from fedgauss.step_sizes import StepSizes, as_step_sizes

_NOTE = "Noise from clients' chains: a client that is missing counts as if it had taken part."
_log = logging.getLogger("flwr")


class Chained:
    """Two rounds after `after`: clients send Hessians; with A = sum_k w_k H_k known they run chains; a monitor begins.

    n_chains  B. Sums over clients of w_k times their ends are B independent Gaussian vectors with the law of
              Theorem 3.2, from which V_K is estimated with B - 1 degrees of freedom. Thresholds are calibrated for that
    the rest  as in `Reported`

    It knows V_K and no client's covariance, so `suspects` is not to be had, and rounds in which clients are missing are
    judged as if they were not. What a curious server could still find out stands in `run_chains`.
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
        n_chains: int = 400,
    ) -> None:
        self.steps = as_step_sizes(steps)
        self.sync_every = _checks.whole("sync_every", sync_every)
        self.n_clients = _checks.whole("n_clients", n_clients)
        self.after = _checks.whole("after", after, at_least=0, fix="It counts rounds.")
        self.alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
        self.n_chains = _checks.whole("n_chains", n_chains, at_least=20)
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts steps.")
        self.seed = _checks.whole("seed", seed, at_least=0)
        self._hessian: FloatArray | None = None  # A, once clients have sent theirs
        self.lin: Linearization | None = None  # A, and V_K as the chains have it
        self._whole: Whole | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._whole is None else self._whole.monitor

    def request(self, server_round: int) -> Request:
        """Which client is which; Hessians, then chains."""
        request: dict[str, ArrayLike] = {PARTITION: 1.0}
        if self._whole is not None or server_round <= self.after:
            return request
        if self._hessian is None:
            return request | {"hessian only": 1.0}
        eta = next_steps(self.steps, server_round - 1, self.sync_every)
        return request | {"hessian": self._hessian, "eta": eta, "n_chains": float(self.n_chains)}

    def faults(self, seen: Round) -> tuple[str, ...]:
        """Those that the monitor finds."""
        return () if self._whole is None else self._whole.faults(seen)

    def judge(self, seen: Round, after: Views) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self._whole is not None:
            return with_note(self._whole.judge(seen, after), _NOTE)
        if seen.number > self.after:
            dim = len(seen.origin)
            try:
                if self._hessian is None:
                    mean = self._mean_over_clients(seen, "hessian", (dim, dim))
                    self._hessian = _checks.covariance("hessian A", mean, definite=True)
                else:
                    self._begin(seen, after, self._mean_over_clients(seen, "ends", (self.n_chains, dim)))
            except ValueError as error:
                _log.warning("fedgauss: no monitor yet, clients are asked again. %s", error)
        return None

    def _mean_over_clients(self, seen: Round, name: str, shape: tuple[int, int]) -> FloatArray:
        """sum_k w_k of what clients sent, with w_k by their examples; all of them must have."""
        found = {u.client: u for u in seen.uploads if name in u.answer}
        if sorted(found) != list(range(self.n_clients)):
            raise ValueError(f"{name} must come from all of {self.n_clients} clients; it came from {sorted(found)}.")
        eta = next_steps(self.steps, seen.number, self.sync_every)
        values = []
        for k, upload in found.items():
            try:
                value = read(upload.answer, name, shape)
                values.append(stable_hessian(value, eta) if name == "hessian" else value)
            except ValueError as error:
                raise ValueError(f"What client {k} sent is refused: {error}") from error
        weights = np.array([1.0 if u.examples is None else u.examples for u in found.values()])
        return np.tensordot(weights / weights.sum(), np.stack(values), axes=1)

    def _begin(self, seen: Round, after: Views, ends: FloatArray) -> None:
        """With B ends of a round that was asked for; where they give no monitor, the Hessian may be to blame."""
        assert self._hessian is not None
        hessian, self._hessian = self._hessian, None
        try:
            lin = noise_of_chains(hessian, ends, self.steps, (seen.number - 1) * self.sync_every, self.sync_every)
            monitor = Monitor(lin, self.steps, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        except ArithmeticError as error:
            raise ValueError(f"The chains give no monitor: {error}") from error
        monitor.reset(step=seen.number * self.sync_every, y=vector(after, seen.before), round=seen.number)
        self.lin, self._whole = lin, Whole(monitor)


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
