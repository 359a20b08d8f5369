"""`Chained`: a monitor whose noise comes from Client-GA chains that clients run themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.channel import Channel
from fedgauss.detect.innovations import innovations
from fedgauss.detect.watch import DEFAULT_CHANNELS
from fedgauss.integrations.flower.answers import PARTITION, Request, read
from fedgauss.integrations.flower.arrays import Views
from fedgauss.integrations.flower.rounds import TrainingRound
from fedgauss.integrations.flower.warm_up import ClientWarmUp, stable_hessian
from fedgauss.step_sizes import StepSizes


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

    note = "Noise from clients' chains: a missing client counts as if it had taken part."

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
        channels: Sequence[Channel] = DEFAULT_CHANNELS,
    ) -> None:
        super().__init__(steps, sync_every, n_clients, after, alpha, horizon, seed, channels)
        self.n_chains = _checks.whole("n_chains", n_chains, at_least=20)
        self._hessian: FloatArray | None = None  # A, once clients have sent theirs

    def request(self, server_round: int) -> Request:
        """Which client is which; Hessians, then chains."""
        request: dict[str, ArrayLike] = {PARTITION: 1.0}
        if self._feed is not None or server_round <= self.after:
            return request
        if self._hessian is None:
            return request | {"hessian only": 1.0}
        eta = self.round_steps(server_round - 1)
        return request | {"hessian": self._hessian, "eta": eta, "n_chains": float(self.n_chains)}

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
        self.begin(noise_of_chains(hessian, ends, self.steps, before, self.sync_every), seen, after)

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
        weights = np.array([1.0 if u.examples is None else u.examples for u in sent.values()])
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
