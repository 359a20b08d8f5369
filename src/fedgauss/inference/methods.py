"""Methods that share no Hessians: the multiplier bootstrap, random scaling and increasing batch means.

The bootstrap runs B chains beside the run, on the same data, each with its own random multipliers. The others read a
covariance off the path of the mean.
"""

from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._random import Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.engine.simulate import padded
from fedgauss.inference.client_steps import Preconditioned
from fedgauss.inference.passes import Pass, run_window
from fedgauss.networks import Network, as_network
from fedgauss.networks.random_network import need_unchanging
from fedgauss.problems.base import Problem, WrappedProblem, pytree

SPREAD = 0.5  # multipliers are 1 - SPREAD or 1 + SPREAD: bounded, of mean 1 and variance SPREAD^2
CHAINS = "method='bootstrap', whose chains would each draw links of their own,"  # what a random network is not for
_BATCH_POWER = 4  # batch i ends at step i^4 and is 4 t^.75 long: longer than the memory of eta_t ~ t^-.75, about t^.75


@pytree
class Chains(WrappedProblem):
    """Replicate 0 is the run; the others are chains on its data, with multipliers u_b of mean 1.

        theta^b <- theta^b - eta_t (p_k + u_b (g(theta^b, xi_t) - p_k))

    Here p_k is the client's mean gradient at the estimate. Each chain has its own iterate in its gradient, so that it
    forgets its past as the run does. (With the gradient at the run's iterate, as printed, multipliers only add up, and
    intervals are tens of times too wide.) They act on noise alone: clients that differ pull all the time, and p_k
    multiplied would pass for noise. Data are drawn once for all chains.
    """

    run: np.uint32  # which replicate of `problem` this is
    pulls: FloatArray  # p_k, (d, K, 1)
    at_the_run: bool = field(default=False, metadata={"static": True})

    @property
    def plain_steps(self) -> bool:  # type: ignore[override]
        """As the problem's are."""
        return self.problem.plain_steps

    def sample(self, noise: Noise, t: JaxArray) -> tuple[Any, JaxArray]:
        """The run's data, and a multiplier for each client and chain, (K, R)."""
        one = _of_replicate(noise, self.run)
        bits = noise.stream("multipliers").numbered(self.run).words(1)[0] & np.uint32(1)
        signs = 2.0 * bits.astype(jnp.float32) - 1.0
        chain = jax.lax.broadcasted_iota(jnp.uint32, signs.shape, 1) + jnp.uint32(noise.first)
        return self.problem.sample(one, t), jnp.where(chain == 0, 1.0, 1.0 + SPREAD * signs)

    def gradient(self, theta: JaxArray, data: tuple[Any, JaxArray]) -> JaxArray:
        """p_k + u_b (g - p_k) at each chain's own iterate."""
        xi, multiplier = data
        place = theta[..., :1] if self.at_the_run else theta
        gradient = self.problem.gradient(place, self.problem.shared(xi, place.shape[-1]))
        return multiplier * gradient + (1.0 - multiplier) * jnp.asarray(self.pulls)


def _of_replicate(noise: Noise, run: JaxArray) -> Noise:
    """The noise that one replicate would see, as if it were alone."""
    of_run = None if noise.of_run is None else _of_replicate(noise.of_run, run)
    return replace(noise, first=run, n_replicates=1, of_run=of_run)


def bootstrap_deviations(
    problem: Problem,
    network: Network | ArrayLike | None,
    one_pass: Pass,
    sync_every: int,
    chains: int,
    seed: int = 0,
    run: int = 0,
    last: bool = False,
    at_the_run: bool = False,
    progress: bool | None = None,
) -> FloatArray:
    """theta^b - theta of B chains, over the multipliers' spread: draws from the error's law; (B, d).

    The run is replicate `run` of `one_pass`, with its matrices P; of the averages, or of the last iterates. With
    `at_the_run` they are as printed: gradients are those of the run, and clients' pulls are multiplied too.
    """

    need_unchanging(CHAINS, as_network(network, problem.n_clients))

    average = np.asarray(one_pass.runs.average, dtype=float)
    pulls = one_pass.clients.gradients_at(average)[run].T * (0.0 if at_the_run else 1.0)

    def stepping(matrix: FloatArray, guard: Any) -> Chains:
        shaped = problem
        if one_pass.preconditioned:
            shaped = Preconditioned(problem, matrix, padded(one_pass.schedule.eta), guard)
        return Chains(shaped, np.uint32(run), (matrix @ pulls)[..., None], at_the_run)

    first, later = stepping(one_pass.first[run], "damped"), stepping(one_pass.second[run], "capped")
    runs = run_window(
        first,
        later,
        network,
        one_pass.schedule,
        one_pass.start,
        sync_every=sync_every,
        replicates=chains + 1,
        seed=seed,
        progress=progress,
    )
    values = np.asarray(runs.last if last else runs.average, dtype=float)
    return (values[1:] - values[0]) / SPREAD


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
