"""Where the gradient of all rows of a run vanishes, by Newton steps from sums and from a few rows that are kept.

A run begins far from where it ends, and its first rows meet references that are far off: there a gradient is no longer
straight. So each client keeps its first rows, max(100, 40 d / K) of them, and reads them again at the end. Later rows
met references that differ from the estimate by u; their linear gradients lack

    1/2 sum_t H'(theta)[u_t, u_t]  =  1/2 n sum_i (g(theta + a_i) + g(theta - a_i) - 2 g(theta)) + higher order

with sum_i a_i a_i' = sum_t u_t u_t' / n, and g the mean over the rows that were kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._lanes import add_up, times
from fedgauss._random import Key, Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.inference.client_sums import ClientStatistics, second_derivative
from fedgauss.inference.row_sums import RowTotals
from fedgauss.problems.base import Problem

_MOST_STEPS = 8
_SINGULAR = 1e-8
_SETTLED = 1e-3  # standard errors: the last Newton step


@dataclass(frozen=True)
class Solution:
    """Where the mean gradient of all rows vanishes, of R runs, and the clients' statistics there."""

    params: FloatArray  # (R, d)
    clients: ClientStatistics  # over all rows, with gradients at `params`
    last_step: FloatArray  # (R, d): it has settled where this is small
    bend: FloatArray  # (R, d): how far second order has moved it
    kurtosis: FloatArray  # (R,): of gradients along a direction, over that of a normal law; 3 for least squares


@dataclass(frozen=True)
class KeptRows:
    """The first `count` rows of each client, as the run drew them."""

    problem: Problem
    key: Key
    replicates: int
    count: int

    def sums_at(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums of g, g g' and H at one parameter a replicate, (R, d)."""
        place = jnp.asarray(theta.T[:, None], jnp.float32)
        sums = _sums_at(self.problem, self.key, place, self.replicates, np.int32(self.count))
        gradients, squares, hessians = (np.moveaxis(np.asarray(s, dtype=float), (-1, -2), (0, 1)) for s in sums)
        return gradients, squares, (hessians + np.swapaxes(hessians, -1, -2)) / 2

    def bends_at(self, theta: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """1/2 H'(theta)[spread] by a client's rows, for spreads (R, K, d, d): mean (R, K, d) and its covariance."""
        values, vectors = np.linalg.eigh(spread)
        away = np.moveaxis(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :], (0, 1), (-1, -2))
        place, a = jnp.asarray(theta.T[:, None], jnp.float32), jnp.asarray(away, jnp.float32)
        sums = _bends_at(self.problem, self.key, place, a, self.replicates, np.int32(self.count))
        mean, square = (np.moveaxis(np.asarray(s, dtype=float), (-1, -2), (0, 1)) / self.count for s in sums)
        return mean, (square - mean[..., :, None] * mean[..., None, :]) / (self.count - 1)

    def kurtosis(self, theta: FloatArray, clients: ClientStatistics, weights: FloatArray) -> FloatArray:
        """Mardia's, E (u' V^-1 u)^2 / (d (d + 2)), u a gradient less its client's mean, V their covariance; (R,)."""
        share = weights**2 / (weights @ weights)
        whitening = np.moveaxis(_inverse(clients.noise(share**0.5)), 0, -1)[:, :, None]
        means = np.moveaxis(self.sums_at(theta)[0] / self.count, (0, 1), (-1, -2))
        arrays = (jnp.asarray(a, jnp.float32) for a in (theta.T[:, None], means, whitening))
        total = _fourth_at(self.problem, self.key, *arrays, self.replicates, np.int32(self.count))
        dim = theta.shape[1]
        return share @ np.asarray(total, dtype=float) / (self.count * dim * (dim + 2))


def solve(kept: KeptRows, later: RowTotals, weights: FloatArray, start: FloatArray) -> Solution:
    """Newton steps from `start` (R, d) until the gradient of all rows vanishes, and one for what is of second order.

    That last step comes from few rows. As with Breiman's garrote b becomes b (1 - s^2 / b^2), or zero if that is
    negative, s its standard error: where rows are heavy-tailed, noise would otherwise do more harm than bias.
    """
    straight, clients, step = _newton(kept, later, weights, start)
    if later.count == 0:
        return Solution(straight, clients, step, np.zeros_like(start), kept.kurtosis(straight, clients, weights))
    spread = later.at(np.broadcast_to(straight[:, None], later.reference.shape)).spread / later.count
    bends, noise = kept.bends_at(straight, spread)
    lever = _inverse(clients.hessian(weights)) * later.count / clients.count
    shift = -np.einsum("rij,k,rkj->ri", lever, weights, bends)
    variance = np.einsum("rij,k,rkjl,ril->ri", lever, weights**2, noise, lever)
    bend = shift * np.maximum(0.0, 1.0 - variance / np.maximum(shift**2, np.finfo(float).tiny))
    params = straight + bend
    clients = _statistics(kept, later, params)
    return Solution(params, clients, step, bend, kept.kurtosis(params, clients, weights))


def _newton(
    kept: KeptRows, later: RowTotals, weights: FloatArray, start: FloatArray
) -> tuple[FloatArray, ClientStatistics, FloatArray]:
    """Where gradients vanish if those of later rows are straight, the statistics one step before, and that step."""
    theta = start
    for _ in range(_MOST_STEPS):
        clients = _statistics(kept, later, theta)
        bread = _inverse(clients.hessian(weights))
        step = np.einsum("rij,k,rkj->ri", bread, weights, clients.gradients)
        theta = theta - step
        errors = np.sqrt(np.einsum("rij,rjl,rli->ri", bread, clients.noise(weights), bread) / clients.count)
        if np.all(np.abs(step) <= _SETTLED * errors):
            break
    return theta, clients, step


def _inverse(hessians: FloatArray) -> FloatArray:
    """Where a Hessian is singular, which is refused later on (`check_hessian`), along what can be inverted."""
    return np.asarray(np.linalg.pinv(hessians, rcond=_SINGULAR, hermitian=True), dtype=float)


def _statistics(kept: KeptRows, later: RowTotals, theta: FloatArray) -> ClientStatistics:
    """Over all rows, with gradients at theta."""
    first_gradients, first_squares, first_hessians = kept.sums_at(theta)
    place = np.broadcast_to(theta[:, None], later.reference.shape)
    count = kept.count + later.count
    gradients = (first_gradients + later.at(place).moved) / count
    mean, squares = (first_gradients + later.gradients) / count, (first_squares + later.squares) / count
    noise = (squares - mean[..., :, None] * mean[..., None, :]) * (count / (count - 1))
    hessians = (first_hessians + later.hessians) / count
    return ClientStatistics(hessians, noise, place, gradients, place, np.zeros_like(gradients), count)


@partial(jax.jit, static_argnames="replicates")
def _sums_at(
    problem: Problem, key: Key, theta: JaxArray, replicates: int, rows: JaxArray
) -> tuple[JaxArray, JaxArray, JaxArray]:
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    place = jnp.broadcast_to(theta, (problem.dim, problem.n_clients, replicates))
    zero, square = jnp.zeros_like(place), jnp.zeros((problem.dim, *place.shape), place.dtype)

    def add(t: JaxArray, total: tuple[JaxArray, JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray, JaxArray]:
        data = problem.sample(noise.at_step(t), t)
        g = problem.gradient(place, data)
        return total[0] + g, total[1] + g[:, None] * g[None], total[2] + second_derivative(problem, place, data)

    return lax.fori_loop(1, rows + 1, add, (zero, square, square))


@partial(jax.jit, static_argnames="replicates")
def _bends_at(
    problem: Problem, key: Key, theta: JaxArray, away: JaxArray, replicates: int, rows: JaxArray
) -> tuple[JaxArray, JaxArray]:
    """Sums of b = 1/2 sum_i (g(theta + a_i) + g(theta - a_i) - 2 g(theta)) and b b', a_i columns of (d, d, K, R)."""
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    place = jnp.broadcast_to(theta, (problem.dim, problem.n_clients, replicates))
    columns = jnp.moveaxis(away, 1, 0)

    def add(t: JaxArray, total: tuple[JaxArray, JaxArray]) -> tuple[JaxArray, JaxArray]:
        data = problem.sample(noise.at_step(t), t)
        here = problem.gradient(place, data)
        pairs = jax.vmap(lambda a: problem.gradient(place + a, data) + problem.gradient(place - a, data) - 2 * here)
        bend = pairs(columns).sum(axis=0) / 2
        return total[0] + bend, total[1] + bend[:, None] * bend[None]

    zero = jnp.zeros_like(place), jnp.zeros((problem.dim, *place.shape), place.dtype)
    return lax.fori_loop(1, rows + 1, add, zero)


@partial(jax.jit, static_argnames="replicates")
def _fourth_at(
    problem: Problem, key: Key, theta: JaxArray, means: JaxArray, whitening: JaxArray, replicates: int, rows: JaxArray
) -> JaxArray:
    """Sums of (u' W u)^2, u the gradient of a row less its client's mean; (K, R)."""
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    place = jnp.broadcast_to(theta, (problem.dim, problem.n_clients, replicates))

    def add(t: JaxArray, total: JaxArray) -> JaxArray:
        u = problem.gradient(place, problem.sample(noise.at_step(t), t)) - means
        return total + add_up(u * times(whitening, u)) ** 2

    return lax.fori_loop(1, rows + 1, add, jnp.zeros_like(place[0]))
