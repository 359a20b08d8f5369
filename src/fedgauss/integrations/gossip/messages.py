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


def unpacked(values: FloatArray, n_chains: int, n_clients: int) -> Message | None:
    """The message in an array; None where no honest peer can have sent it."""
    dim = (len(values) - 1) // (2 + n_chains)
    if not np.all(np.abs(values) < _HUGE) or values[0] not in range(1, n_clients):  # NaN is not below anything
        return None
    sent, began, chains = np.split(values[1:], [dim, 2 * dim])
    return Message(int(values[0]), sent, began, chains.reshape(dim, n_chains))


def summary(lin: Linearization, client: int) -> FloatArray:
    """What a peer tells its neighbours of its gradients, once: w_k, their kurtosis, H_k, Var(W^k) and their mean."""
    tails = np.nan if lin.kurtosis is None else lin.kurtosis[client]
    pull = np.full(lin.dim, np.nan) if lin.client_gradients is None else lin.client_gradients[client]
    matrices = lin.client_hessians[client].ravel(), lin.client_noise_cov[client].ravel()
    return np.concatenate([[lin.weights[client], tails], *matrices, pull])


def neighbourhood_linearization(summaries: list[FloatArray], lin: Linearization) -> Linearization:
    """The clients of a neighbourhood as a federation of their own, from their summaries at the agreed `lin.optimum`."""
    table, dim = np.stack(summaries), lin.dim
    weights, tails, hessians, covariances, pulls = np.split(table, [1, 2, 2 + dim**2, 2 + 2 * dim**2], axis=1)
    shape = (len(table), dim, dim)
    return linearization(
        hessians.reshape(shape),
        covariances.reshape(shape),
        weights[:, 0] / weights.sum(),
        lin.n_warmup,
        lin.optimum,
        None if np.isnan(tails).any() else tails[:, 0],
        None if np.isnan(pulls).any() else pulls,
    )
