"""Methods that read a covariance off the path of the mean: random scaling and increasing batch means."""

from typing import Any

import jax.numpy as jnp

from fedgauss._types import JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.problems.base import pytree

_BATCH_POWER = 4  # batch i ends at step i^4 and is 4 t^.75 long: longer than the memory of eta_t ~ t^-.75, about t^.75


@pytree
class RandomScaling(Observer):
    """n^-2 sum_s s^2 (Ybar_s - Ybar_n)(Ybar_s - Ybar_n)', n times the covariance of Ybar_n up to a random scale.

    Lee, Liao, Seo and Shin (2022). It needs the clients' mean after every step. With v_s = (S_s, s), S_s the sum of the
    first s means, all that is needed is sum_s v_s v_s'.
    """

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """v_0 and the sum of squares; means are taken about the first one, so that differences lose no digits."""
        mean = theta.mean(axis=1)
        return mean, *_nothing(mean)

    def update(self, state: Any, step: Step) -> Any:
        """One more s."""
        reference, v, squares = state
        v = v + _with_one(step.mean - reference)
        return reference, v, squares + v[:, None] * v[None]

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`random_scaling` (d, d)."""
        _, v, squares = state
        return {"random_scaling": _about(squares, v) / v[-1] ** 2}


@pytree
class BatchMeans(Observer):
    """sum_i (S_i - b_i Ybar)(S_i - b_i Ybar)' / n over batches of increasing length b_i, S_i the sum over batch i.

    Chen, Lee, Tong and Zhang (2020); Zhu, Chen and Wu (2023); with batches that end at steps i^4, for beta = .75. It
    keeps the sum over batches of v v', v = (S_i, b_i).
    """

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """No batch yet."""
        mean = theta.mean(axis=1)
        v, squares = _nothing(mean)
        return mean, jnp.float32(1), v, v, squares

    def update(self, state: Any, step: Step) -> Any:
        """Add Y_t to the open batch, and close it when it is long enough."""
        reference, number, total, v, squares = state
        one = _with_one(step.mean - reference)
        total, v = total + one, v + one
        full = total[-1] >= number**_BATCH_POWER
        squares = squares + jnp.where(full, v[:, None] * v[None], 0.0)
        return reference, number + jnp.where(full[0], 1.0, 0.0), total, jnp.where(full, 0.0, v), squares

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`batch_means` (d, d); the last batch counts as it is."""
        _, _, total, v, squares = state
        return {"batch_means": _about(squares + v[:, None] * v[None], total) / total[-1]}


# By the name of the method, which is also that of what the observer keeps.
PATH_METHODS: dict[str, Observer] = {"random_scaling": RandomScaling(), "batch_means": BatchMeans()}


def _nothing(mean: JaxArray) -> tuple[JaxArray, JaxArray]:
    """Zeros for v (d + 1, R) and for sums of v v'."""
    dim, *rest = mean.shape
    return jnp.zeros((dim + 1, *rest), mean.dtype), jnp.zeros((dim + 1, dim + 1, *rest), mean.dtype)


def _with_one(mean: JaxArray) -> JaxArray:
    return jnp.concatenate([mean, jnp.ones_like(mean[:1])])


def _about(squares: JaxArray, total: JaxArray) -> JaxArray:
    """sum (S - b a)(S - b a)' from the sum of (S, b)(S, b)', (d, d, R); `total` = (sum, n) gives a = sum / n."""
    average = total[:-1] / total[-1]
    cross = squares[:-1, -1:] * average[None]
    within = squares[:-1, :-1] - cross - jnp.swapaxes(cross, 0, 1)
    return within + squares[-1:, -1:] * average[:, None] * average[None]
