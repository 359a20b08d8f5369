"""Methods that read a covariance off the path of the mean: random scaling and increasing batch means."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.folds import Observer, Step
from fedgauss.problems.base import pytree

_BATCH_POWER = 4  # batch i ends at step i^4 and is 4 t^.75 long: longer than the memory of eta_t ~ t^-.75, about t^.75


@pytree
class RandomScaling(Observer):
    """n^-2 sum_s s^2 (Ybar_s - Ybar_n)(Ybar_s - Ybar_n)', n times the covariance of Ybar_n up to a random scale.

    Lee, Liao, Seo and Shin (2022). It needs the clients' mean after every step.
    """

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Sums of s^2 Ybar_s Ybar_s', s^2 Ybar_s and s^2, about the first mean: differences lose no digits then."""
        mean = theta.mean(axis=1)
        zero = jnp.zeros_like(mean)
        return jnp.float32(0), mean, zero, jnp.zeros((len(mean), *mean.shape), mean.dtype), zero, jnp.float32(0)

    def update(self, state: Any, step: Step) -> Any:
        """One more s."""
        s, reference, total, squares, crossed, weights = state
        s = s + 1
        total = total + (step.mean - reference)
        # s^2 Ybar_s Ybar_s' is the square of the partial sum itself.
        return s, reference, total, squares + total[:, None] * total[None], crossed + s * total, weights + s * s

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`random_scaling` (d, d)."""
        n, _, total, squares, crossed, weights = state
        average = total / n
        cross = crossed[:, None] * average[None]
        value = squares - cross - jnp.swapaxes(cross, 0, 1) + weights * average[:, None] * average[None]
        return {"random_scaling": value / n**2}


@pytree
class BatchMeans(Observer):
    """sum_i (S_i - b_i Ybar)(S_i - b_i Ybar)' / n over batches of increasing length b_i, S_i the sum over batch i.

    Chen, Lee, Tong and Zhang (2020); Zhu, Chen and Wu (2023); with batches that end at steps i^4, for beta = .75.
    """

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """No batch yet."""
        mean = theta.mean(axis=1)
        zero = jnp.zeros_like(mean)
        squares = jnp.zeros((len(mean), *mean.shape), mean.dtype)
        return jnp.float32(0), mean, zero, jnp.float32(0), jnp.float32(1), zero, squares, zero, jnp.float32(0)

    def update(self, state: Any, step: Step) -> Any:
        """Add Y_t to the open batch, and close it when it is long enough."""
        s, reference, batch, length, number, total, squares, crossed, lengths = state
        s = s + 1
        batch, length, total = batch + (step.mean - reference), length + 1, total + (step.mean - reference)
        full = s >= number**_BATCH_POWER
        squares = squares + jnp.where(full, 1.0, 0.0) * batch[:, None] * batch[None]
        crossed = crossed + jnp.where(full, length, 0.0) * batch
        lengths = lengths + jnp.where(full, length**2, 0.0)
        kept = jnp.where(full, 0.0, 1.0)
        number = number + jnp.where(full, 1.0, 0.0)
        return s, reference, kept * batch, kept * length, number, total, squares, crossed, lengths

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`batch_means` (d, d); the last batch counts as it is."""
        s, _, batch, length, _, total, squares, crossed, lengths = state
        average = total / s
        squares = squares + batch[:, None] * batch[None]
        crossed, lengths = crossed + length * batch, lengths + length**2
        cross = crossed[:, None] * average[None]
        value = squares - cross - jnp.swapaxes(cross, 0, 1) + lengths * average[:, None] * average[None]
        return {"batch_means": value / s}


@cache
def _random_scaling_draws(dim: int) -> FloatArray:
    """Sorted draws of W(1)' [int (W(r) - r W(1)) (W(r) - r W(1))' dr]^-1 W(1), W a Brownian motion in `dim` dimensions.

    By simulation with a fixed seed: 20,000 paths, of 1,000 steps in one dimension and fewer in more.
    """
    generator, steps = np.random.default_rng(20220901), max(200, 1000 // dim)
    draws: list[FloatArray] = []
    for _ in range(20):
        path = np.cumsum(generator.standard_normal((1000, steps, dim)), axis=1) / np.sqrt(steps)
        last = path[:, -1]
        bridge = path - np.arange(1, steps + 1)[:, None] / steps * last[:, None]
        scale = np.einsum("psi,psj->pij", bridge, bridge) / steps
        draws.append(np.einsum("pi,pi->p", last, np.linalg.solve(scale, last[..., None])[..., 0]))
    return np.sort(np.concatenate(draws))


def random_scaling_critical(level: float, dim: int = 1) -> float:
    """The `level` quantile of the statistic of a joint test of `dim` parameters.

    For one parameter its root is what an interval reaches out by: 6.75 at .95, with an error of about one per cent.
    """
    return float(np.quantile(_random_scaling_draws(dim), level))


def random_scaling_p_value(statistic: FloatArray | float, dim: int = 1) -> FloatArray:
    """The chance of a larger statistic under the hypothesis; the least that 20,000 draws can tell is 1 / 20,001."""
    draws = _random_scaling_draws(dim)
    return np.asarray((1.0 + len(draws) - np.searchsorted(draws, statistic)) / (1.0 + len(draws)), dtype=np.float64)
