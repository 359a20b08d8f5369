"""`Chained`: a monitor whose noise comes from Client-GA chains that clients run themselves."""

from __future__ import annotations

import logging

import numpy as np
from flwr.app import Array, ArrayRecord

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import innovations, step_sizes_between
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.flower.arrays import vector
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
        self.horizon, self.seed = horizon, seed
        self._hessian: FloatArray | None = None  # A, once clients have sent theirs
        self._asked_at = 0  # the step before which the chains' round began
        self.lin: Linearization | None = None  # A, and V_K as the chains have it
        self._whole: Whole | None = None

    @property
    def monitor(self) -> Monitor | None:
        """The monitor, once it has begun."""
        return None if self._whole is None else self._whole.monitor

    def request(self, server_round: int) -> ArrayRecord | None:
        """Hessians, then chains."""
        if self._whole is not None or server_round <= self.after:
            return None
        if self._hessian is None:
            return ArrayRecord({"hessian only": Array(np.array(1.0))})
        self._asked_at = (server_round - 1) * self.sync_every
        eta = step_sizes_between(self.steps, self._asked_at, self._asked_at + self.sync_every)
        sent = {"hessian": self._hessian, "eta": eta, "n_chains": np.array(self.n_chains)}
        return ArrayRecord({name: Array(np.asarray(value)) for name, value in sent.items()})

    def judge(self, seen: Round) -> Verdict | None:
        """None until the monitor has begun, then its verdict."""
        if self._whole is not None:
            return with_note(self._whole.judge(seen), _NOTE)
        if seen.number > self.after and seen.sound:
            dim = len(vector(seen.before, seen.before))
            name, shape = ("hessian", (dim, dim)) if self._hessian is None else ("ends", (self.n_chains, dim))
            try:
                mean = self._mean_over_clients(seen, name, shape)
                if self._hessian is None:
                    self._hessian = _checks.covariance("hessian A", mean, definite=True)
                else:
                    self._begin(seen, mean)
            except ValueError as error:
                _log.warning("fedgauss: no monitor yet, clients are asked again. %s", error)
        return None

    def _mean_over_clients(self, seen: Round, name: str, shape: tuple[int, int]) -> FloatArray:
        """sum_k w_k of what clients sent, with w_k by their examples; all of them must have."""
        found = {u.client: u for u in seen.uploads if u.answer is not None and name in u.answer}
        if sorted(found) != list(range(self.n_clients)):
            raise ValueError(f"{name} must come from all of {self.n_clients} clients; it came from {sorted(found)}.")
        weights = np.array([1.0 if u.examples is None else u.examples for u in found.values()])
        values = []
        for k, upload in found.items():
            assert upload.answer is not None
            values.append(_checks.real_array(f"{name} of client {k}", upload.answer[name].numpy(), shape=shape))
        return np.tensordot(weights / weights.sum(), np.stack(values), axes=1)

    def _begin(self, seen: Round, ends: FloatArray) -> None:
        assert seen.after is not None
        assert self._hessian is not None
        self.lin = noise_of_chains(self._hessian, ends, self.steps, self._asked_at, self.sync_every)
        monitor = Monitor(self.lin, self.steps, self.sync_every, self.alpha, self.horizon, seed=self.seed)
        monitor.reset(step=seen.number * self.sync_every, y=vector(seen.after, seen.before), round=seen.number)
        self._whole = Whole(monitor)


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
    return Linearization(np.zeros(dim), hessian[None], noise[None], np.ones(1), freedom=float(len(ends) - 1))
