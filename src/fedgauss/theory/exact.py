"""Exact means and covariances of local SGD on a linear model with Gaussian design: the oracle of the tests.

Client k draws x ~ N(0, H_k) and y = x' beta_k + e with Var(e) = sigma_k^2, and steps along x (x' theta - y).
Given theta the update is affine in x x' and x e, so means and covariances obey closed recursions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedgauss._rounds import Optimiser
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.networks import Network
from fedgauss.step_sizes import Steps
from fedgauss.theory.exact_recursion import Law, LinearModel, Recursion, start_mean_of


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
    participation: float | None = None,
    local_steps: ArrayLike | None = None,
    optimiser: Optimiser | None = None,
) -> ExactMoments:
    """Mean and covariance of Ybar_n, Y_n and every client after n steps of Algorithm 1.

    With a_k = eta_{t,k} K w_k, mean mu, Delta_k = mu_k - beta_k, covariance P, M_k = P_kk + Delta_k Delta_k':

        mu_k  <-  mu_k - a_k H_k Delta_k
        P_kl  <-  (I - a_k H_k) P_kl (I - a_l H_l)'  +  1{k = l} a_k^2 N_k
        N_k    =  H_k M_k H_k + tr(H_k M_k) H_k + sigma_k^2 H_k

    then both are mixed by C on synchronisation steps. N_k is the gradient's covariance averaged over theta^k
    (E[x x' M x x'] = 2 H M H + tr(H M) H for Gaussian x). S_t = sum_{s<=t} Y_s is carried along by
    Cov(theta_t, S_t) = T_t Cov(theta_{t-1}, S_{t-1}) + Cov(theta_t, Y_t), T_t the linear map of step t.

    If C_t is random (`networks.failing`, `networks.gossip_pairs`), means are mixed by E C_t, and the covariance by
    E[C_t kron C_t]; with `participation` all this is given who takes part, and pooled at the end of each round. What an
    `optimiser` remembers is carried along as more columns of theta, on which its rule is linear.

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
    participation : float or int, optional
        As in `simulate`. The expectation is taken over all sets of clients, so they must not be too many.
    local_steps : array of K whole numbers, optional
        As in `simulate`.
    optimiser : Optimiser, optional
        As in `simulate`.

    Returns
    -------
    ExactMoments
    """
    recursion = Recursion(model, network, steps, n_steps, sync_every, sync_phase, participation, local_steps, optimiser)
    *_, last = recursion.laws(start_mean, start_cov)
    return _moments(recursion, n_steps, last)


def exact_path(
    model: LinearModel,
    network: Network | ArrayLike,
    steps: Steps,
    n_steps: int,
    sync_every: int | ArrayLike | None,
    start_mean: ArrayLike,
    start_cov: ArrayLike | None = None,
    sync_phase: int = 0,
    participation: float | None = None,
    local_steps: ArrayLike | None = None,
    optimiser: Optimiser | None = None,
) -> ExactPath:
    """`exact_moments` for every t up to n, from one pass of the recursion.

    Parameters
    ----------
    model, network, steps, n_steps, sync_every, start_mean, start_cov, sync_phase
        As in `exact_moments`.
    participation, local_steps, optimiser
        As in `exact_moments`.

    Returns
    -------
    ExactPath
    """
    recursion = Recursion(model, network, steps, n_steps, sync_every, sync_phase, participation, local_steps, optimiser)
    laws = (_moments(recursion, t, law) for t, law in enumerate(recursion.laws(start_mean, start_cov), start=1))
    rows = [(m.mean_last, m.cov_last, m.mean_average, m.cov_average, m.disagreement) for m in laws]
    return ExactPath(*(np.stack(column) for column in zip(*rows, strict=True)))


def _moments(recursion: Recursion, t: int, law: Law) -> ExactMoments:
    """What `laws` yields as a result, made exactly symmetric."""
    (k, size), d = law.mean.shape, recursion.remembered.dim
    cov = ((law.cov + law.cov.T) / 2).reshape(k, size, k, size)[:, :d, :, :d]
    client_means = law.mean[:, :d]
    return ExactMoments(
        mean_average=law.mean_sum / t,
        cov_average=(law.var_sum + law.var_sum.T) / (2 * t**2),
        mean_last=client_means.mean(axis=0),
        cov_last=cov.mean(axis=(0, 2)),
        client_means=client_means,
        client_cov=cov,
        optimum=recursion.optimum,
        n_steps=t,
    )


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
    data = Recursion(model, network, steps, n_steps, sync_every, sync_phase)
    mean = start_mean_of(start_mean, *data.coefficients.shape)
    path = np.empty((len(data.sync), mean.shape[1]))
    for t, (scale, synchronise) in enumerate(zip(data.scales, data.sync, strict=True)):
        pull = np.matmul(data.design_cov, (mean - data.coefficients)[:, :, None])[:, :, 0]
        mean = mean - scale[:, None] * pull
        if synchronise:
            mean = data.network.sparse.T @ mean + data.network.uniform * mean.mean(axis=0)
        path[t] = mean.mean(axis=0)
    return ExactMeans(path.mean(axis=0), path[-1].copy(), path, mean, data.optimum)
