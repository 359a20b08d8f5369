"""Innovations of single clients: what an upload shows of a client's own data, and sums of them over rounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._contraction import pulls_and_product
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.innovations import step_sizes_between
from fedgauss.step_sizes import StepSizes, as_step_sizes

_RIDGE = 1e-8  # of the trace: keeps a singular noise covariance invertible
_HUGE = 1e100  # a larger number is no innovation: the monitor refuses such updates, and here they count as missing


class ClientInnovations:
    """E^k of a round, the mean pull of client k's own data in it, whatever the others did.

    With eta_t' = eta_t K w_k, P = prod (I - eta_t' H_k) and W_t = eta_t' prod_{u > t} (I - eta_u' H_k) over the round,

        E^k = (sum_t W_t)^-1 (sent - P began) = H_k (I - P)^-1 (sent - P began),

    whose mean is H_k beta_k for a client with optimum beta_k and Hessian H_k, near the optimum, and whose covariance
    is about Var(W^k) / tau. A client that pulls elsewhere by mu shifts it by H_k mu.
    """

    def __init__(self, lin: Linearization, steps: StepSizes | ArrayLike, weights: FloatArray | None = None) -> None:
        self.steps = as_step_sizes(steps)
        self.scale = (lin.weights if weights is None else weights) * lin.n_clients
        self.values, self.vectors = np.linalg.eigh(lin.client_hessians * self.scale[:, None, None])

    def of_round(self, began: FloatArray, sent: FloatArray, after: int, last: int) -> FloatArray:
        """E^k (..., K, d) from where clients began steps after + 1, ..., last, and what they sent after them."""
        total, product = self._total_and_product(after, last)
        from_start, to_end = (np.einsum("kij,...ki->...kj", self.vectors, x) for x in (began, sent))
        pull = (to_end - product * from_start) / total
        return np.einsum("kij,...kj->...ki", self.vectors, pull) / self.scale[:, None]

    def sent(self, began: FloatArray, pull: FloatArray, after: int, last: int) -> FloatArray:
        """What clients send that show the innovations `pull` (K, d): the inverse of `of_round`."""
        total, product = self._total_and_product(after, last)
        from_start, pulled = (np.einsum("kij,ki->kj", self.vectors, x) for x in (began, pull * self.scale[:, None]))
        return np.einsum("kij,kj->ki", self.vectors, product * from_start + total * pulled)

    def _total_and_product(self, after: int, last: int) -> tuple[FloatArray, FloatArray]:
        """sum_t W_t and P in the eigenvectors of each H_k, (K, d)."""
        eta = step_sizes_between(self.steps, after, last).reshape(last - after, -1)  # one, or one a client
        pulls, product = pulls_and_product(eta, self.values)
        return pulls.sum(axis=0), product


def as_weighted_steps(
    began: FloatArray, sent: FloatArray, lin: Linearization, steps: StepSizes, after: int, last: int
) -> FloatArray:
    """What clients that step by eta_t, as in FedAvg, would have sent had they stepped by eta_t K w_k, (K, d).

    It shows the same innovations. To scale a client's way by K w_k instead is right to first order in eta only: far
    from its optimum, where an attacker drags the model, the second order looks like a move of an honest client.
    """
    alike = ClientInnovations(lin, steps, np.full(lin.n_clients, 1.0 / lin.n_clients))
    return ClientInnovations(lin, steps).sent(began, alike.of_round(began, sent, after, last), after, last)


def client_innovations(
    began: ArrayLike, sent: ArrayLike, lin: Linearization, steps: StepSizes | ArrayLike, sync_every: int, after: int = 0
) -> FloatArray:
    """E_j^k of every client in each of J rounds, as `ClientInnovations` defines it; of one run, or of several at once.

    Parameters
    ----------
    began : (..., J, K, d) array_like
        Where each client began round j, after the last mixing.
    sent : (..., J, K, d) array_like
        What it uploaded at the end of round j, before mixing; NaN where it took no part.
    lin : Linearization
        The clients' Hessians and weights.
    steps : StepSizes or array_like
        eta_t.
    sync_every : int
        Steps of a round.
    after : int
        Steps made before the first of these rounds.

    Returns
    -------
    (..., J, K, d) array
    """
    start, end = np.asarray(began, dtype=np.float64), np.asarray(sent, dtype=np.float64)
    shape = (lin.n_clients, lin.dim)
    if start.ndim < 3 or start.shape != end.shape or start.shape[-2:] != shape:
        raise ValueError(
            f"began and sent must both have shape (rounds, {shape[0]}, {shape[1]}): rounds, clients, dimensions; got "
            f"{start.shape} and {end.shape}."
        )
    tau, after = _checks.whole("sync_every", sync_every), _checks.whole("after", after, at_least=0)
    parts, found = ClientInnovations(lin, steps), np.empty_like(start)
    for j in range(start.shape[-3]):
        first = after + tau * j
        found[..., j, :, :] = parts.of_round(start[..., j, :, :], end[..., j, :, :], first, first + tau)
    return found


class Segment(NamedTuple):
    """Of client innovations less a reference e_k: rounds seen, sum of e, and sum of e' Var(W^k)^-1 e."""

    seen: FloatArray  # (K,)
    total: FloatArray  # (K, d)
    square: FloatArray  # (K,)

    def plus(self, rows: FloatArray, reference: FloatArray, inverses: FloatArray) -> Segment:
        """One more round (K, d), NaN for clients that took no part."""
        here = usable(rows)
        e = np.where(here[:, None], rows - reference, 0.0)
        return Segment(self.seen + here, self.total + e, self.square + np.einsum("ki,kij,kj->k", e, inverses, e))


def segment(rounds: FloatArray, reference: FloatArray, lin: Linearization) -> Segment:
    """The sums over rounds (J, K, d)."""
    sums = Segment(np.zeros(lin.n_clients), np.zeros_like(reference), np.zeros(lin.n_clients))
    inverses = noise_inverses(lin)
    for rows in rounds:
        sums = sums.plus(rows, reference, inverses)
    return sums


def noise_inverses(lin: Linearization) -> FloatArray:
    """Var(W^k)^-1, (K, d, d)."""
    noise = lin.client_noise_cov
    ridge = _RIDGE * np.trace(noise, axis1=1, axis2=2)[:, None, None] * np.eye(lin.dim)
    return np.linalg.inv(noise + ridge)


def first_seen(reference: FloatArray, rows: FloatArray) -> FloatArray:
    """The reference, with the first usable row of clients that have none (NaN): sums stay small and lose no digits."""
    fresh = np.isnan(reference).any(axis=1) & usable(rows)
    return np.where(fresh[:, None], rows, reference)


def usable(rows: FloatArray) -> BoolArray:
    """Which clients' rows are innovations: finite and not absurd, (K,)."""
    return np.asarray((np.abs(rows) < _HUGE).all(axis=1))
