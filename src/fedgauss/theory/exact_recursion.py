"""The recursion of means and covariances behind `exact_moments`, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple, Protocol

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._rounds import need_rounds, participants, round_numbers
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.networks import Network, RandomNetwork, as_network
from fedgauss.step_sizes import Steps, sync_mask
from fedgauss.theory.covariances import client_eta


class LinearModel(Protocol):
    """What a model must provide: y = x' beta_k + e, x ~ N(0, H_k), Var(e) = sigma_k^2, weights w_k."""

    @property
    def coefficients(self) -> ArrayLike:
        """beta_k, (K, d)."""

    @property
    def noise_var(self) -> ArrayLike:
        """sigma_k^2, (K,)."""

    @property
    def design_cov(self) -> ArrayLike:
        """H_k, (K, d, d)."""

    @property
    def weights(self) -> ArrayLike:
        """w_k, (K,)."""


_NEEDED = ("coefficients", "noise_var", "design_cov", "weights")
_MOST_SETS = 2000  # sets of clients over which an expectation is taken


class Law(NamedTuple):
    """Means and covariances of theta_t and of S_t = sum_{s <= t} Y_s."""

    mean: FloatArray  # E theta_t, (K, d)
    cov: FloatArray  # Cov(theta_t), (Kd, Kd)
    mean_sum: FloatArray  # E S_t, (d,)
    cov_sum: FloatArray  # Cov(theta_t, S_t), (Kd, d)
    var_sum: FloatArray  # Cov(S_t), (d, d)


class Recursion:
    """A model, a network and a schedule, checked and as arrays; and how the law of theta_t follows from them."""

    def __init__(
        self,
        model: LinearModel,
        network: Network | ArrayLike,
        steps: Steps,
        n_steps: int,
        sync_every: int | ArrayLike | None,
        sync_phase: int,
        participation: float | None = None,
    ) -> None:
        n = _checks.whole("n_steps", n_steps)
        _check_linear(model)
        self.coefficients = _checks.real_array("model.coefficients", model.coefficients, shape=(None, None))
        k, d = self.coefficients.shape
        self.noise_var = _checks.real_array("model.noise_var", model.noise_var, shape=(k,))
        if np.any(self.noise_var < 0):
            raise ValueError(f"model.noise_var must not be negative; its smallest is {self.noise_var.min():g}.")
        self.design_cov = _checks.real_array("model.design_cov", model.design_cov, shape=(k, d, d))
        _checks.covariance("model.design_cov", self.design_cov)
        self.weights = _checks.client_weights(model.weights, k)
        check_memory(f"{n:,} steps of {k:,} clients", 24 * n * k, "Use fewer steps or clients.")
        self.scales = client_eta(steps, n, k).reshape(n, -1) * (k * self.weights)  # a_k = eta_{t,k} K w_k, (n, K)
        self.sync = sync_mask(sync_every, n, sync_phase)
        self.network = as_network(network, k)
        self.sets = [np.ones(k, dtype=bool)] if participation is None else self._sets(participation, k)
        self.begins = np.diff(round_numbers(self.sync), prepend=-1) > 0  # whether step t is the first of a round
        weighted = self.weights[:, None, None] * self.design_cov
        # theta*_K = (sum_k w_k H_k)^-1 sum_k w_k H_k beta_k
        self.optimum = np.linalg.solve(weighted.sum(axis=0), np.einsum("kij,kj->i", weighted, self.coefficients))

    def _sets(self, participation: float, n_clients: int) -> list[BoolArray]:
        """All sets of clients that may take part in a round, which are equally likely."""
        need_rounds("participation", self.sync)
        m = participants(participation, n_clients)
        if comb(n_clients, m) > _MOST_SETS:
            raise ValueError(
                f"exact moments take an expectation over all sets of clients, {_MOST_SETS:,} at most; {m} of "
                f"{n_clients} clients form {comb(n_clients, m):,}. Use fewer clients, or simulate."
            )
        return [np.isin(np.arange(n_clients), chosen) for chosen in combinations(range(n_clients), m)]

    def laws(self, start_mean: ArrayLike, start_cov: ArrayLike | None) -> Iterator[Law]:
        """The law after each step t = 1..n: given who takes part in the round, and pooled over them."""
        k, d = self.coefficients.shape
        what = f"the covariance of {k:,} clients in {d:,} dimensions"
        check_memory(what, 40 * (k * d) ** 2, "Use mean_recursion for the means alone, or fewer clients.")
        pooled = Law(
            start_mean_of(start_mean, k, d),
            _start_cov(start_cov, k, d),
            np.zeros(d),
            np.zeros((k * d, d)),
            np.zeros((d, d)),
        )
        given: list[Law] = []
        for t, (begins, synchronise) in enumerate(zip(self.begins, self.sync, strict=True)):
            if begins:
                given = [pooled] * len(self.sets)
            given = [self._stepped(law, self.scales[t] * here) for law, here in zip(given, self.sets, strict=True)]
            if synchronise:
                given = [self._mixed(law, here) for law, here in zip(given, self.sets, strict=True)]
            given = [_summed(law) for law in given]
            pooled = _pooled(given)
            yield pooled

    def _stepped(self, law: Law, scale: FloatArray) -> Law:
        """After the clients' own steps, a_k = `scale`."""
        k, d = self.coefficients.shape
        diagonal = np.arange(k)
        offset = law.mean - self.coefficients
        blocks = law.cov.reshape(k, d, k, d)[diagonal, :, diagonal, :]
        noise = self.gradient_cov(blocks + offset[:, :, None] * offset[:, None, :])
        drift = np.eye(d) - scale[:, None, None] * self.design_cov
        mean = law.mean - scale[:, None] * np.einsum("kij,kj->ki", self.design_cov, offset)
        # P is symmetric, so multiplying from the left, transposing and doing it again gives T P T'.
        cov = _left(drift, _left(drift, law.cov).T)
        cov.reshape(k, d, k, d)[diagonal, :, diagonal, :] += scale[:, None, None] ** 2 * noise
        return law._replace(mean=mean, cov=cov, cov_sum=_left(drift, law.cov_sum))

    def _mixed(self, law: Law, here: BoolArray) -> Law:
        """After mixing among those present. C_t is independent of everything before it:

        Cov(C'theta) = (E C)' P (E C) + E[C' M C] - (E C)' M (E C),    M = P + mu mu'
        """
        network = self.network
        mixing = network.matrix if here.all() else network.among(here)
        cov = _mix(mixing, _mix(mixing, law.cov).T)
        if isinstance(network, RandomNetwork):
            k, d = law.mean.shape
            second = law.cov.reshape(k, d, k, d) + law.mean[:, :, None, None] * law.mean
            spread = network.spread(second.transpose(1, 3, 0, 2), here)
            cov = cov + spread.transpose(2, 0, 3, 1).reshape(k * d, k * d)
        return law._replace(mean=mixing.T @ law.mean, cov=cov, cov_sum=_mix(mixing, law.cov_sum))

    def gradient_cov(self, second: FloatArray) -> FloatArray:
        """E Var(x (x' theta - y) | theta) = H M H + (tr(H M) + sigma^2) H, with M as in `exact_moments`."""
        hm = np.matmul(self.design_cov, second)
        level = np.trace(hm, axis1=1, axis2=2) + self.noise_var
        return np.matmul(hm, self.design_cov) + level[:, None, None] * self.design_cov


def _summed(law: Law) -> Law:
    """S_t = S_{t-1} + Y_t."""
    k, d = law.mean.shape
    to_mean = np.tile(np.eye(d), (k, 1)) / k  # a matrix product is faster than a mean over an inner axis
    with_mean = law.cov @ to_mean  # Cov(theta_t, Y_t)
    step_cov = law.cov_sum.reshape(k, d, d).mean(axis=0)  # Cov(Y_t, S_{t-1})
    return law._replace(
        mean_sum=law.mean_sum + law.mean.mean(axis=0),
        cov_sum=law.cov_sum + with_mean,
        var_sum=law.var_sum + step_cov + step_cov.T + with_mean.reshape(k, d, d).mean(axis=0),
    )


def _pooled(laws: Sequence[Law]) -> Law:
    """The law if each of several is equally likely: covariances within, and between their means."""
    if len(laws) == 1:
        return laws[0]
    mean, cov, mean_sum, cov_sum, var_sum = (np.mean(part, axis=0) for part in zip(*laws, strict=True))
    apart = np.stack([(law.mean - mean).ravel() for law in laws])
    apart_sum = np.stack([law.mean_sum - mean_sum for law in laws])
    n = len(laws)
    return Law(
        mean,
        cov + apart.T @ apart / n,
        mean_sum,
        cov_sum + apart.T @ apart_sum / n,
        var_sum + apart_sum.T @ apart_sum / n,
    )


def _check_linear(model: LinearModel) -> None:
    """Reject what is not a linear model: the recursions would return numbers all the same."""
    missing = ", ".join(name for name in _NEEDED if not hasattr(model, name))
    family = type(getattr(model, "family", None)).__name__  # the class would load JAX
    if missing:
        rule = f"be linear and have {', '.join(_NEEDED)}; {type(model).__name__} has no {missing}"
    elif family not in {"NoneType", "Linear"}:
        rule = f"have the squared loss, under which moments obey closed recursions; got {family}"
    else:
        return
    raise ValueError(f"model must {rule}. Use problems.linear or problems.random_effects, or simulate.")


def _left(drift: FloatArray, matrix: FloatArray) -> FloatArray:
    """blockdiag(drift) @ matrix, with drift (K, d, d) and matrix (Kd, m)."""
    k, d, _ = drift.shape
    return np.matmul(drift, matrix.reshape(k, d, -1)).reshape(k * d, -1)


def _mix(mixing: FloatArray, matrix: FloatArray) -> FloatArray:
    """(C' kron I_d) @ matrix: client k becomes sum_j theta_j c_jk, as in Theta C."""
    k = len(mixing)
    return (mixing.T @ matrix.reshape(k, -1)).reshape(matrix.shape)


def start_mean_of(value: ArrayLike, n_clients: int, dim: int) -> FloatArray:
    """E Theta_0, (K, d)."""
    start = _checks.real_array("start_mean", value)
    if start.shape not in {(dim,), (n_clients, dim)}:
        raise ValueError(f"start_mean must have shape ({dim},) or ({n_clients}, {dim}); got {start.shape}.")
    return np.broadcast_to(start, (n_clients, dim)).copy()


def _start_cov(value: ArrayLike | None, n_clients: int, dim: int) -> FloatArray:
    """The covariance of the Kd starting values, (Kd, Kd)."""
    size = n_clients * dim
    if value is None:
        return np.zeros((size, size))
    start = _checks.real_array("start_cov", value)
    if start.shape == (dim, dim):
        return np.tile(_checks.covariance("start_cov", start), (n_clients, n_clients))
    if start.shape != (n_clients, dim, n_clients, dim):
        raise ValueError(
            f"start_cov must have shape ({dim}, {dim}) or ({n_clients}, {dim}, {n_clients}, {dim}); "
            f"got {start.shape}. Give None for a fixed start."
        )
    return _checks.covariance("start_cov", start.reshape(size, size))
