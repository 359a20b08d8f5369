"""What travels along an edge: arrays of float64 of a length that both ends know, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._linearization import Linearization, linearization
from fedgauss._types import FloatArray

_HUGE = 1e100  # as a monitor has it: more is broken or hostile


@dataclass(frozen=True)
class Message:
    """What a peer tells each neighbour at a synchronisation.

    degree  how many neighbours it has left
    sent    its parameter before mixing               (d,)
    began   its parameter when the round began        (d,)
    chains  its Client-GA chains before mixing        (d, R)
    """

    degree: int
    sent: FloatArray
    began: FloatArray
    chains: FloatArray

    def packed(self) -> FloatArray:
        """As one array, (1 + 2 d + d R,)."""
        return np.concatenate([[self.degree], self.sent, self.began, self.chains.ravel()], dtype=np.float64)


def unpacked(values: FloatArray, dim: int, n_chains: int, n_clients: int) -> Message | None:
    """The message in an array; None where no honest peer can have sent it."""
    if values.shape != (1 + dim * (2 + n_chains),) or not np.all(np.abs(values) < _HUGE):  # NaN is not below anything
        return None
    if values[0] not in range(1, n_clients):
        return None
    sent, began, chains = np.split(values[1:], [dim, 2 * dim])
    return Message(int(values[0]), sent, began, chains.reshape(dim, n_chains))


def summary(lin: Linearization, client: int) -> FloatArray:
    """What a peer tells its neighbours of its gradients, once: w_k, their kurtosis, H_k, Var(W^k) and their mean."""
    tails = np.nan if lin.kurtosis is None else lin.kurtosis[client]
    pull = np.full(lin.dim, np.nan) if lin.client_gradients is None else lin.client_gradients[client]
    matrices = lin.client_hessians[client].ravel(), lin.client_noise_cov[client].ravel()
    return np.concatenate([[lin.weights[client], tails], *matrices, pull])


def parted(summaries: FloatArray, dim: int) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Weights (n,), kurtoses (n,), Hessians and covariances (n, d, d) and mean gradients (n, d) of n summaries."""
    weights, tails, hessians, covariances, pulls = np.split(summaries, [1, 2, 2 + dim**2, 2 + 2 * dim**2], axis=1)
    shape = (len(summaries), dim, dim)
    return weights[:, 0], tails[:, 0], hessians.reshape(shape), covariances.reshape(shape), pulls


def neighbourhood_linearization(summaries: list[FloatArray], lin: Linearization) -> Linearization:
    """The clients of a neighbourhood as a federation of their own, from their summaries at the agreed `lin.optimum`."""
    weights, tails, hessians, covariances, pulls = parted(np.stack(summaries), lin.dim)
    return linearization(
        hessians,
        covariances,
        weights / weights.sum(),
        lin.n_warmup,
        lin.optimum,
        None if np.isnan(tails).any() else tails,
        None if np.isnan(pulls).any() else pulls,
    )
