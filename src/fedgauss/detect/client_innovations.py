"""Innovations of single clients: what a server learns from an upload about that client's own data."""

from __future__ import annotations

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.step_sizes import StepSizes, as_step_sizes


def client_innovations(
    began: ArrayLike, sent: ArrayLike, lin: Linearization, steps: StepSizes | ArrayLike, sync_every: int, after: int = 0
) -> FloatArray:
    """E_j^k (J, K, d), the mean pull of client k's own data in block j, whatever the others did.

    began  where each client began block j, after the last mixing           (J, K, d)
    sent   what it uploaded at the end of block j, before mixing            (J, K, d); NaN where it took no part
    after  steps made before the first of these blocks

    With eta_t' = eta_t K w_k, P = prod (I - eta_t' H_k) and W_t = eta_t' prod_{u > t} (I - eta_u' H_k) over the block,

        E_j^k = (sum_t W_t)^-1 (sent - P began) = H_k (I - P)^-1 (sent - P began),

    whose mean is H_k beta_k for a client with optimum beta_k and Hessian H_k, near the optimum, and whose covariance
    is about Var(W^k) / tau. A client that pulls elsewhere by mu shifts it by H_k mu.
    """
    start, end = np.asarray(began, dtype=np.float64), np.asarray(sent, dtype=np.float64)
    shape = (lin.n_clients, lin.dim)
    if start.ndim != 3 or start.shape != end.shape or start.shape[1:] != shape:
        raise ValueError(
            f"began and sent must both have shape (rounds, {shape[0]}, {shape[1]}): rounds, clients, dimensions; got "
            f"{start.shape} and {end.shape}."
        )
    tau, after = _checks.whole("sync_every", sync_every), _checks.whole("after", after, at_least=0)
    schedule = as_step_sizes(steps)
    values, vectors = np.linalg.eigh(lin.client_hessians * (lin.weights * lin.n_clients)[:, None, None])
    innovations = np.empty_like(start)
    for j in range(len(start)):
        eta = step_sizes_between(schedule, after + j * tau, after + (j + 1) * tau).reshape(
            tau, -1
        )  # one, or one a client
        contraction = 1.0 - eta[:, :, None] * values  # in the eigenvectors of each H_k: (tau, K, d)
        later = np.cumprod(np.concatenate([np.ones((1, *shape)), contraction[:0:-1]]), axis=0)[::-1]
        total = (eta[:, :, None] * later).sum(axis=0)
        from_start, to_end = (np.einsum("kij,ki->kj", vectors, x) for x in (start[j], end[j]))
        pull = (to_end - later[0] * contraction[0] * from_start) / total
        innovations[j] = np.einsum("kij,kj->ki", vectors, pull)
    return innovations / (lin.weights * lin.n_clients)[:, None]
