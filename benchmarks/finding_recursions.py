"""Exact moments of scalar linear clients, for `paper_findings.py`: no Monte-Carlo error enters.

Client k draws x ~ N(0, h_k) and y = x beta_k + e, Var(e) = s_k, and steps along x (x theta - y); weights are equal.
Then E[x^4] = 3 h^2 closes the recursions of second moments, as in `fedgauss.theory.exact`, which has them for vectors.
What is here and not there: differences of two runs that share their data, and means of many draws of clients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


class Clients(NamedTuple):
    """Coefficients beta_k, Hessians h_k and noise variances s_k, (K,) each or, for many draws at once, (draws, K)."""

    coefficients: Array
    hessians: Array
    noise: Array

    @property
    def optimum(self) -> Array:
        """theta*, the minimiser of the mean risk."""
        return (self.hessians * self.coefficients).sum(axis=-1) / self.hessians.sum(axis=-1)

    @property
    def gradients(self) -> Array:
        """g_k, the gradient of client k's risk at theta*."""
        return self.hessians * (self.optimum[..., None] - self.coefficients)

    @property
    def noise_cov(self) -> Array:
        """V_K = K^-2 sum_k Var(W^k), with Var(W^k) = s_k h_k + 2 g_k^2."""
        return (self.noise * self.hessians + 2 * self.gradients**2).sum(axis=-1) / self.hessians.shape[-1] ** 2


def drawn(n_clients: int, draw: int, follow: bool) -> Clients:
    """Offsets u_k ~ N(0, 1) and h_k = 1 + tanh(u_k) / 2; permuted among the clients unless they follow the offsets."""
    rng = np.random.default_rng([draw, n_clients])
    offsets = rng.standard_normal(n_clients)
    hessians = 1 + np.tanh(offsets) / 2
    return Clients(offsets, hessians if follow else rng.permutation(hessians), np.ones(n_clients))


def stack(clients: list[Clients]) -> Clients:
    """Many draws as one, along a new first axis."""
    return Clients(*(np.stack(parts) for parts in zip(*clients, strict=True)))


def kernel(mixing: Array, tau: int) -> Array:
    """S = (tau - 1)/2 (I - J) + tau sum_{r >= 1} (C^r - J): how far, per unit of eta and pull, clients are apart."""
    k = len(mixing)
    j, identity = np.full((k, k), 1 / k), np.eye(k)
    return (tau - 1) / 2 * (identity - j) + tau * (mixing - j) @ np.linalg.inv(identity - mixing + j)


def mean_bias(clients: Clients, mix: Callable[[Array], Array], eta: Array, tau: int) -> Array:
    """E Ybar_n - theta* from theta*, by the mean recursion, for every draw; `mix` acts on (draws, K)."""
    h, beta, optimum = clients.hessians, clients.coefficients, clients.optimum
    mean = np.broadcast_to(optimum[..., None], h.shape)
    total = np.zeros(h.shape[:-1])
    for t, step in enumerate(eta, start=1):
        mean = mean - step * h * (mean - beta)
        if t % tau == 0:
            mean = mix(mean)
        total += mean.mean(axis=-1)
    return total / len(eta) - optimum


def last_bias(clients: Clients, mix: Callable[[Array], Array], eta: Array, tau: int, horizons: Sequence[int]) -> Array:
    """(E Y_n - theta*) over tilde Sigma_n's root from theta*, for every horizon n and draw.

    tilde Sigma_n = V_K sum_s eta_s^2 (A_s^n)^2, A_s^n the product of 1 - eta_j A over s < j <= n, and n^beta aside.
    """
    h, beta, optimum, found = clients.hessians, clients.coefficients, clients.optimum, []
    curvature = h.mean(axis=-1)
    mean, variance = np.broadcast_to(optimum[..., None], h.shape), np.zeros(h.shape[:-1])
    for t, step in enumerate(eta, start=1):
        mean = mean - step * h * (mean - beta)
        if t % tau == 0:
            mean = mix(mean)
        variance = (1 - step * curvature) ** 2 * variance + step**2 * clients.noise_cov
        if t in horizons:
            found.append((mean.mean(axis=-1) - optimum) / np.sqrt(variance))
    return np.array(found)


class Law(NamedTuple):
    """After step t: means and covariance of the clients, and the variance of n Ybar_n = sum_t Y_t."""

    mean: Array
    cov: Array
    var_sum: float


def _advanced(cov: Array, contraction: Array, added: Array, mixing: Array | None) -> Array:
    moved = contraction[:, None] * cov * contraction
    moved[np.diag_indices_from(moved)] += added
    return moved if mixing is None else mixing @ moved @ mixing


def laws(clients: Clients, mixing: Array, eta: Array, tau: int) -> Iterator[Law]:
    """Of a run from theta*, before the first step and after each."""
    h, k = clients.hessians, len(clients.hessians)
    mean, cov = np.full(k, clients.optimum), np.zeros((k, k))
    with_sum, var_sum = np.zeros(k), 0.0
    yield Law(mean, cov, var_sum)
    for t, step in enumerate(eta, start=1):
        c = mixing if t % tau == 0 else None
        added = step**2 * (second_moment(clients, mean, cov) - (h * (mean - clients.coefficients)) ** 2)
        contraction = 1 - step * h
        added -= (step * h) ** 2 * np.diag(cov)  # the contraction has this much of it already
        mean = mean - step * h * (mean - clients.coefficients)
        cov = _advanced(cov, contraction, added, c)
        with_sum = contraction * with_sum
        if c is not None:
            mean, with_sum = c @ mean, c @ with_sum
        var_sum += 2 * with_sum.mean() + cov.mean()
        with_sum = with_sum + cov.mean(axis=0)
        yield Law(mean, cov, var_sum)


def second_moment(clients: Clients, mean: Array, cov: Array) -> Array:
    """E g^2 of each client's gradient: 3 h^2 E(theta - beta)^2 + s h."""
    square = np.diag(cov) + (mean - clients.coefficients) ** 2
    return 3 * clients.hessians**2 * square + clients.noise * clients.hessians


def resampled_gaps(
    clients: Clients, mixing: Array, eta: Array, tau: int, changed: int, lags: tuple[int, ...]
) -> list[tuple[float, float]]:
    """E|Y_t - Y'_t|^2 and E|(Theta_t - Theta'_t)(I - J)|^2 at t = i + lag: the copy has other data at step i alone."""
    h, step = clients.hessians, eta[changed - 1]
    for _, law in zip(range(changed), laws(clients, mixing, eta[:changed], tau), strict=False):
        before = law
    pull = h * (before.mean - clients.coefficients)
    variance = second_moment(clients, before.mean, before.cov) - pull**2 - h**2 * np.diag(before.cov)
    mixed = mixing if changed % tau == 0 else None
    cov = _advanced(np.zeros_like(mixing), np.ones_like(h), 2 * step**2 * variance, mixed)
    found = {}
    for t in range(changed + 1, changed + max(lags) + 1):
        a = eta[t - 1] * h
        cov = _advanced(cov, 1 - a, 2 * a**2 * np.diag(cov), mixing if t % tau == 0 else None)
        found[t - changed] = (float(cov.mean()), float(np.trace(cov) - cov.mean() * len(h)))
    return [found[lag] for lag in lags]


def bootstrap_variances(
    clients: Clients, mixing: Array, eta: Array, tau: int, spread: float
) -> Iterator[tuple[float, float, float]]:
    """n times the variance of Ybar_n; of Ybar_n^b - Ybar_n over spread^2, as printed and with own iterates; for each n.

    Multipliers have mean 1 and variance spread^2. Given the data a chain's mean is the run, so the expected square of
    the difference obeys a recursion of its own.
    """
    h, k = clients.hessians, len(clients.hessians)
    printed, own = np.zeros((k, k)), np.zeros((k, k))
    sums = [np.zeros(k), np.zeros(k)]
    totals = [0.0, 0.0]
    path = laws(clients, mixing, eta, tau)
    law = next(path)
    for t, step in enumerate(eta, start=1):
        c = mixing if t % tau == 0 else None
        driven = (step * spread) ** 2 * second_moment(clients, law.mean, law.cov)
        a = step * h
        echo = a**2 * (3 * (1 + spread**2) - 1) * np.diag(own)
        printed = _advanced(printed, np.ones(k), driven, c)
        own = _advanced(own, 1 - a, driven + echo, c)
        for which, (cov, contraction) in enumerate(((printed, np.ones(k)), (own, 1 - a))):
            moved = contraction * sums[which]
            moved = moved if c is None else c @ moved
            totals[which] += 2 * moved.mean() + cov.mean()
            sums[which] = moved + cov.mean(axis=0)
        law = next(path)
        yield law.var_sum / t, totals[0] / t / spread**2, totals[1] / t / spread**2
