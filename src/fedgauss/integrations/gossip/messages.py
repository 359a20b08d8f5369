"""What travels along an edge: arrays of float64 of known length, and whether an honest peer can have sent them."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization, linearization
from fedgauss._types import FloatArray

_HUGE = 1e100  # as a monitor has it: more is broken or hostile
_RANGE = 1e6  # neighbours differ by less than this factor, or one of them is broken or hostile
_FINE = 32  # curvatures up to the largest that steps are tried with


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
        return np.concatenate([[self.degree], self.sent, self.began, self.chains.ravel()], dtype=float)


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


class Settings(NamedTuple):
    """What two peers must agree on, or neither could make sense of what the other sends."""

    n_clients: int
    dim: int
    chains: int
    n_steps: int
    sync_every: int


_HEADER = len(Settings._fields)


def introduction(settings: Settings, summary: FloatArray) -> FloatArray:
    """The first message of a peer."""
    return np.concatenate([settings, summary], dtype=float)


def summary_in(introduced: FloatArray) -> FloatArray:
    """The part of an introduction that is about gradients."""
    return introduced[_HEADER:]


def fault(theirs: FloatArray, ours: FloatArray, settings: Settings, eta: FloatArray) -> str:
    """Why an introduction is refused, in words; empty when an honest neighbour of this peer can have sent it.

    eta   eta_t, t = 1, ..., n
    """
    if theirs.shape != ours.shape:
        return f"an introduction must have {len(ours)} numbers here; it sent {theirs.size}."
    for name, value, wanted in zip(Settings._fields, theirs, ours, strict=False):
        if value != wanted:
            return f"{name} must be the same for all peers; it has {value:g}, and this peer {wanted:g}."
    if not np.array_equal(np.isfinite(theirs), np.isfinite(ours)):  # kurtosis and mean gradient may be unknown to all
        return "its summary must be of finite numbers, of as much as this peer knows."
    both = np.stack([summary_in(theirs), summary_in(ours)])
    weights, tails, hessians, covariances, pulls = parted(both, settings.dim)
    if not weights.sum() <= 1.0 + 1e-6:
        return f"its weight must leave room for this peer's {weights[1]:g}; it is {weights[0]:g}."
    for name, matrices in (("its Hessian", hessians), ("its covariance", covariances)):
        try:
            _checks.covariance(name, matrices[0])
        except ValueError as error:
            return str(error)
    noise, curvature = (np.trace(matrices, axis1=1, axis2=2) for matrices in (covariances, hessians))
    sizes = {"weight": weights, "Hessian": curvature, "covariance": noise, "kurtosis": np.nan_to_num(tails, nan=1.0)}
    for name, (size, mine) in sizes.items():
        if mine > 0.0 and not mine / _RANGE <= size <= mine * _RANGE:
            return f"its {name} must be within a factor {_RANGE:.0e} of this peer's {mine:.3g}; it is {size:.3g}."
    if np.linalg.norm(np.nan_to_num(pulls[0])) > _RANGE * np.sqrt(noise.sum()):
        return f"its mean gradient must be within {_RANGE:.0e} standard deviations of one gradient; it is not."
    reach, own_reach = settings.n_clients * weights * np.linalg.norm(hessians, ord=2, axis=(1, 2))
    grows, own_grows = (_growth(curvature, eta, settings.sync_every) for curvature in (reach, own_reach))
    if grows > max(1.0, own_grows):
        return f"its steps must not lead away from its optimum; with its Hessian they do, by a factor {grows:.3g}."
    return ""


def _growth(largest: float, eta: FloatArray, sync_every: int) -> float:
    """max |prod_t (1 - eta_t c)| over rounds and curvatures 0 < c <= largest: what the steps of a round may blow up."""
    rounds = eta.reshape(-1, sync_every)
    with np.errstate(over="ignore"):
        factors = [np.prod(1.0 - largest * i / _FINE * rounds, axis=1) for i in range(1, _FINE + 1)]
    return float(np.abs(factors).max())
