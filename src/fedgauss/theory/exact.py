"""Exact means and covariances of local SGD on a linear model with Gaussian design: the oracle of the tests.

Client k draws x ~ N(0, H_k) and y = x' beta_k + e with Var(e) = sigma_k^2, and steps along x (x' theta - y).
Given theta the update is affine in x x' and x e, so means and covariances obey closed recursions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.networks import Network, as_network
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


# t; E theta_t (K, d) and Cov(theta_t) (Kd, Kd); mean (d,) and covariance (d, d) of S_t = sum_{s <= t} Y_s.
_Law = tuple[int, FloatArray, FloatArray, FloatArray, FloatArray]
_NEEDED = ("coefficients", "noise_var", "design_cov", "weights")


@dataclass(frozen=True, repr=False)
class ExactMeans(Shown):
    """Expectations after n steps.

    mean_average   E Ybar_n                                  (d,)
    mean_last      E Y_n                                     (d,)
    mean_path      E Y_t for t = 1..n                        (n, d)
    client_means   E theta_n^k                               (K, d)
    optimum        theta*_K, to subtract from any of them    (d,)
    """

    mean_average: FloatArray
    mean_last: FloatArray
    mean_path: FloatArray
    client_means: FloatArray
    optimum: FloatArray

    def __str__(self) -> str:
        with np.printoptions(precision=4, suppress=True, threshold=36):
            return _in_words(self, "means", len(self.mean_path))


@dataclass(frozen=True, repr=False)
class ExactMoments(Shown):
    """Expectations and covariances after n steps. Covariances are those of the iterate, not scaled by n.

    mean_average, cov_average   of Ybar_n = n^-1 sum_t Y_t       (d,), (d, d)
    mean_last, cov_last         of Y_n = K^-1 sum_k theta_n^k    (d,), (d, d)
    client_means, client_cov    of theta_n^1, ..., theta_n^K     (K, d), (K, d, K, d)
    optimum                     theta*_K                         (d,)
    """

    mean_average: FloatArray
    cov_average: FloatArray
    mean_last: FloatArray
    cov_last: FloatArray
    client_means: FloatArray
    client_cov: FloatArray
    optimum: FloatArray
    n_steps: int

    @property
    def disagreement(self) -> float:
        """E |Theta_n (I - J)|_F^2 = sum_k |E theta^k - E Y|^2 + sum_k tr Cov(theta^k) - K tr Cov(Y)."""
        apart = ((self.client_means - self.mean_last) ** 2).sum()
        noise = np.einsum("kiki->", self.client_cov) - len(self.client_means) * np.trace(self.cov_last)
        return float(apart + noise)

    def __str__(self) -> str:
        with np.printoptions(precision=4, threshold=36):
            covariances = f"n Cov(average)\n{self.n_steps * self.cov_average}\nCov(last)\n{self.cov_last}"
            means = _in_words(self, "moments", self.n_steps)
            return f"{means}\n{covariances}"


def _in_words(found: ExactMeans | ExactMoments, what: str, n_steps: int) -> str:
    n_clients, dim = found.client_means.shape
    return (
        f"Exact {what} after {n_steps} steps, {n_clients} clients in {dim} dimensions\n"
        f"optimum              {found.optimum}\n"
        f"E average - optimum  {found.mean_average - found.optimum}\n"
        f"E last - optimum     {found.mean_last - found.optimum}"
    )


@dataclass(frozen=True)
class ExactPath:
    """Moments after each step t = 1..n, along the first axis.

    mean, cov                   of Y_t                            (n, d), (n, d, d)
    mean_average, cov_average   of Ybar_t                         (n, d), (n, d, d)
    disagreement                E |Theta_t (I - J)|_F^2           (n,)
    """

    mean: FloatArray
    cov: FloatArray
    mean_average: FloatArray
    cov_average: FloatArray
    disagreement: FloatArray

    @property
    def sd(self) -> FloatArray:
        """Standard deviations of the coordinates of Y_t, (n, d)."""
        return np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))


def exact_moments(
    model: LinearModel,
    network: Network | ArrayLike,
    steps: Steps,
    n_steps: int,
    sync_every: int | ArrayLike | None,
    start_mean: ArrayLike,
    start_cov: ArrayLike | None = None,
    sync_phase: int = 0,
) -> ExactMoments:
    """Mean and covariance of Ybar_n, Y_n and every client after n steps of Algorithm 1.

    With a_k = eta_{t,k} K w_k, mean mu, Delta_k = mu_k - beta_k, covariance P, M_k = P_kk + Delta_k Delta_k':

        mu_k  <-  mu_k - a_k H_k Delta_k
        P_kl  <-  (I - a_k H_k) P_kl (I - a_l H_l)'  +  1{k = l} a_k^2 N_k
        N_k    =  H_k M_k H_k + tr(H_k M_k) H_k + sigma_k^2 H_k

    then both are mixed by C on synchronisation steps. N_k is the gradient's covariance averaged over theta^k
    (E[x x' M x x'] = 2 H M H + tr(H M) H for Gaussian x). S_t = sum_{s<=t} Y_s is carried along by
    Cov(theta_t, S_t) = T_t Cov(theta_{t-1}, S_{t-1}) + Cov(theta_t, Y_t), T_t the linear map of step t.

    Parameters
    ----------
    model : LinearModel
        A linear regression, such as `problems.linear` or `problems.random_effects`.
    network : Network, matrix or networkx graph
        Who averages with whom.
    steps : StepSizes or array of shape (n,) or (n, K)
        eta_t.
    n_steps : int
        n.
    sync_every : int, array of n booleans or None
        tau, as in `simulate`.
    start_mean : array of shape (d,) or (K, d)
        E Theta_0.
    start_cov : array of shape (d, d) or (K, d, K, d), optional
        (d, d) for one random start that all clients share, (K, d, K, d) in general; None for a fixed start.
    sync_phase : int
        As in `simulate`.

    Returns
    -------
    ExactMoments
    """
    data = _Data(model, network, steps, n_steps, sync_every, sync_phase)
    *_, last = _laws(data, start_mean, start_cov)
    return _moments(data, *last)


def exact_path(
    model: LinearModel,
    network: Network | ArrayLike,
    steps: Steps,
    n_steps: int,
    sync_every: int | ArrayLike | None,
    start_mean: ArrayLike,
    start_cov: ArrayLike | None = None,
    sync_phase: int = 0,
) -> ExactPath:
    """`exact_moments` for every t up to n, from one pass of the recursion.

    Parameters
    ----------
    model, network, steps, n_steps, sync_every, start_mean, start_cov, sync_phase
        As in `exact_moments`.

    Returns
    -------
    ExactPath
    """
    data = _Data(model, network, steps, n_steps, sync_every, sync_phase)
    laws = (_moments(data, *law) for law in _laws(data, start_mean, start_cov))
    rows = [(m.mean_last, m.cov_last, m.mean_average, m.cov_average, m.disagreement) for m in laws]
    return ExactPath(*(np.stack(column) for column in zip(*rows, strict=True)))


def _moments(
    data: _Data, t: int, mean: FloatArray, cov: FloatArray, mean_sum: FloatArray, var_sum: FloatArray
) -> ExactMoments:
    """What `_laws` yields as a result, made exactly symmetric."""
    k, d = mean.shape
    cov = ((cov + cov.T) / 2).reshape(k, d, k, d)
    return ExactMoments(
        mean_average=mean_sum / t,
        cov_average=(var_sum + var_sum.T) / (2 * t**2),
        mean_last=mean.mean(axis=0),
        cov_last=cov.mean(axis=(0, 2)),
        client_means=mean,
        client_cov=cov,
        optimum=data.optimum,
        n_steps=t,
    )


def _laws(data: _Data, start_mean: ArrayLike, start_cov: ArrayLike | None) -> Iterator[_Law]:
    """The recursion of `exact_moments`, one step at a time."""
    k, d = data.coefficients.shape
    what = f"the covariance of {k:,} clients in {d:,} dimensions"
    check_memory(what, 40 * (k * d) ** 2, "Use mean_recursion for the means alone, or fewer clients.")
    mean = _start_mean(start_mean, k, d)
    cov = _start_cov(start_cov, k, d)
    mixing = data.network.matrix

    cov_sum = np.zeros((k * d, d))  # Cov(theta_t, S_t)
    var_sum = np.zeros((d, d))
    mean_sum = np.zeros(d)
    diagonal = np.arange(k)
    to_mean = np.tile(np.eye(d), (k, 1)) / k  # a matrix product is faster than a mean over an inner axis
    for t, (scale, synchronise) in enumerate(zip(data.scales, data.sync, strict=True), start=1):
        offset = mean - data.coefficients
        blocks = cov.reshape(k, d, k, d)[diagonal, :, diagonal, :]
        noise = data.gradient_cov(blocks + offset[:, :, None] * offset[:, None, :])
        drift = np.eye(d) - scale[:, None, None] * data.design_cov

        mean = mean - scale[:, None] * np.einsum("kij,kj->ki", data.design_cov, offset)
        # P is symmetric, so multiplying from the left, transposing and doing it again gives T P T'.
        cov = _left(drift, _left(drift, cov).T)
        cov.reshape(k, d, k, d)[diagonal, :, diagonal, :] += scale[:, None, None] ** 2 * noise
        cov_sum = _left(drift, cov_sum)
        if synchronise:
            mean = mixing.T @ mean
            cov = _mix(mixing, _mix(mixing, cov).T)
            cov_sum = _mix(mixing, cov_sum)

        with_mean = cov @ to_mean  # Cov(theta_t, Y_t)
        step_cov = cov_sum.reshape(k, d, d).mean(axis=0)  # Cov(Y_t, S_{t-1})
        var_sum = var_sum + step_cov + step_cov.T + with_mean.reshape(k, d, d).mean(axis=0)
        cov_sum = cov_sum + with_mean
        mean_sum = mean_sum + mean.mean(axis=0)
        yield t, mean, cov, mean_sum, var_sum


def mean_recursion(
    model: LinearModel,
    network: Network | ArrayLike,
    steps: Steps,
    n_steps: int,
    sync_every: int | ArrayLike | None,
    start_mean: ArrayLike,
    sync_phase: int = 0,
) -> ExactMeans:
    """The means of `exact_moments` alone: mu_k <- mu_k - eta_{t,k} K w_k H_k (mu_k - beta_k), then mixing.

    It needs no Gaussian design, only E[x x'] = H_k, and no K x K covariance, so K may be large. With unequal Hessians
    or weights, client drift biases E Ybar_n even from theta* (D_3 of Theorem 2.1's proof).

    Parameters
    ----------
    model, network, steps, n_steps, sync_every, start_mean, sync_phase
        As in `exact_moments`.

    Returns
    -------
    ExactMeans
    """
    data = _Data(model, network, steps, n_steps, sync_every, sync_phase)
    mean = _start_mean(start_mean, *data.coefficients.shape)
    path = np.empty((len(data.sync), mean.shape[1]))
    for t, (scale, synchronise) in enumerate(zip(data.scales, data.sync, strict=True)):
        pull = np.matmul(data.design_cov, (mean - data.coefficients)[:, :, None])[:, :, 0]
        mean = mean - scale[:, None] * pull
        if synchronise:
            mean = data.network.sparse.T @ mean + data.network.uniform * mean.mean(axis=0)
        path[t] = mean.mean(axis=0)
    return ExactMeans(path.mean(axis=0), path[-1].copy(), path, mean, data.optimum)


class _Data:
    """A model, a network and a schedule, checked and as arrays."""

    def __init__(
        self,
        model: LinearModel,
        network: Network | ArrayLike,
        steps: Steps,
        n_steps: int,
        sync_every: int | ArrayLike | None,
        sync_phase: int,
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
        weighted = self.weights[:, None, None] * self.design_cov
        # theta*_K = (sum_k w_k H_k)^-1 sum_k w_k H_k beta_k
        self.optimum = np.linalg.solve(weighted.sum(axis=0), np.einsum("kij,kj->i", weighted, self.coefficients))

    def gradient_cov(self, second: FloatArray) -> FloatArray:
        """E Var(x (x' theta - y) | theta) = H M H + (tr(H M) + sigma^2) H, with M as in `exact_moments`."""
        hm = np.matmul(self.design_cov, second)
        level = np.trace(hm, axis1=1, axis2=2) + self.noise_var
        return np.matmul(hm, self.design_cov) + level[:, None, None] * self.design_cov


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


def _start_mean(value: ArrayLike, n_clients: int, dim: int) -> FloatArray:
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
