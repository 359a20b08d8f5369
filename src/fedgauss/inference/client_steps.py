"""What a client does in a pass: the rows of a step, a step along P g that suits the problem's shape, and sums.

These sums, of gradients, their squares and Hessians, are all that leaves a client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._lanes import add_up, times
from fedgauss._random import Key, Noise
from fedgauss._types import FloatArray, IntArray, JaxArray
from fedgauss.engine.loop import Step
from fedgauss.engine.observers import Periodic
from fedgauss.problems.arrays import ArrayProblem
from fedgauss.problems.base import Problem, WrappedProblem, pytree

Batch = tuple[JaxArray, JaxArray, JaxArray]  # x (B, p, K, 1), y (B, K, 1), and what each row counts for (B, K, 1)


@pytree
class RowBatches(Problem):
    """Step t of client k reads its rows floor((t - 1) n_k / n) to floor(t n_k / n) - 1, in the order they lie.

    Its gradient is n / n_k times the sum over these rows, so that over the n steps of a pass every row is read once
    and counts the same: the mean over the steps is the mean over the rows. Where n_k is a multiple of n this is the
    mean over a batch of n_k / n rows; a client with fewer rows than steps rests now and then.
    """

    rows: ArrayProblem
    edges: IntArray  # (n + 1, K): rows read before step t + 1
    largest: int = field(metadata={"static": True})  # batch

    @property
    def weights(self) -> FloatArray:  # type: ignore[override]
        """w_k."""
        return self.rows.weights

    @property
    def dim(self) -> int:
        """d."""
        return self.rows.dim

    @property
    def n_steps(self) -> int:
        """n, the steps of a pass."""
        return int(np.shape(self.edges)[0]) - 1

    def busy(self, count: int) -> IntArray:
        """In how many of `count` steps each client reads rows, (K,)."""
        return busy_steps(self.rows.counts, self.n_steps, count)

    def sample(self, noise: Noise, t: JaxArray) -> Batch:
        """The rows of step t, the same in every replicate; after a pass they come again."""
        rows = self.rows
        before, after = (jnp.asarray(self.edges)[(t - 1) % self.n_steps + i] for i in (0, 1))
        place = jnp.arange(self.largest)[:, None] + before
        read = place < after
        row = jnp.where(read, place + jnp.asarray(rows.firsts), 0)
        count = jnp.where(read, self.n_steps / jnp.asarray(rows.counts, jnp.float32), 0.0)
        x = jnp.moveaxis(jnp.asarray(rows.features)[row], -1, 1)
        return x[..., None], jnp.asarray(rows.response)[row][..., None], count[..., None]

    def gradient(self, theta: JaxArray, data: Batch) -> JaxArray:
        """The sum over the batch of x times residual, times n / n_k."""
        x, y, count = data
        each = jax.vmap(lambda x, y: self.rows.gradient(theta, (x, y)))(x, y)
        return add_up(count[:, None] * each)

    def steepness(self, theta: JaxArray, data: Batch, direction: JaxArray) -> JaxArray:
        """The same sum of h (x'v)^2."""
        x, y, count = data
        each = jax.vmap(lambda x, y: self.rows.steepness(theta, (x, y), direction))(x, y)
        return add_up(count * each)


def row_batches(rows: ArrayProblem, seed: int = 0, number: int = 0) -> RowBatches:
    """One pass over `rows` in a random order of each client's; `number` is that of the pass.

    A pass has as many steps as clients have rows on average.
    """
    pieces = enumerate(zip(rows.firsts, rows.counts, strict=True))
    order = np.concatenate([first + shuffled(int(count), k, seed, number) for k, (first, count) in pieces])
    mixed = replace(rows, features=rows.features[order], response=rows.response[order])
    return in_batches(mixed, steps_of_a_pass(len(order), rows.n_clients))


def shuffled(count: int, client: int, seed: int, number: int) -> IntArray:
    """The order in which a client reads its rows, which it can work out by itself."""
    return np.random.default_rng([seed, number, client]).permutation(count)


def steps_of_a_pass(n_rows: int, n_clients: int) -> int:
    """As many as clients have rows on average."""
    return max(1, round(n_rows / n_clients))


def in_batches(rows: ArrayProblem, n_steps: int) -> RowBatches:
    """One pass of so many steps over `rows`, in the order they lie."""
    edges = np.arange(n_steps + 1)[:, None] * rows.counts // n_steps
    return RowBatches(rows, edges, int(np.diff(edges, axis=0).max()))


def busy_steps(counts: IntArray, n_steps: int, count: int) -> IntArray:
    """In how many of `count` steps clients with so many rows read any, (K,)."""
    return np.minimum(count, count * counts // n_steps)


# How a step of relative size q is shortened: "damped" divides it by 1 + q, "capped" by q when q > 1.
Guard = Literal["damped", "capped"]


@pytree
class Preconditioned(WrappedProblem):
    """The clients of `problem`, stepping along P g in place of g: theta <- theta - eta_t K w_k P g / (guard).

    With P near the inverse Hessian all directions converge alike, whatever the scales and correlations of covariates;
    it is local SGD on covariates whitened by P^1/2, with the same optimum. The relative size of a step is

        q = eta_t K w_k (v' H v) / (g' v),    v = P g,  H the second derivative at the data of the step,

    which for a regression is eta_t K w_k h |x|_P^2, h the loss curvature: beyond 1 the step passes the minimum of
    its own observation.
    """

    plain_steps = False

    matrix: FloatArray  # P, (d, d), or (d, d, 1, R) where each replicate has its own
    eta: FloatArray  # eta_t, (N,)
    guard: Guard = field(metadata={"static": True})

    def sample(self, noise: Noise, t: JaxArray) -> tuple[JaxArray, Any]:
        """The step's eta_t beside its data."""
        return jnp.asarray(self.eta)[t - 1], self.problem.sample(noise, t)

    def shared(self, data: tuple[JaxArray, Any], n_replicates: int) -> tuple[JaxArray, Any]:
        """As the problem shares its own."""
        return data[0], self.problem.shared(data[1], n_replicates)

    def gradient(self, theta: JaxArray, data: tuple[JaxArray, Any]) -> JaxArray:
        """P g, shortened."""
        eta, xi = data
        g = self.problem.gradient(theta, xi)
        v = times(self.matrix, g)
        slope = add_up(g * v)
        share = (self.n_clients * jnp.asarray(self.weights))[:, None]
        steep = self.problem.steepness(theta, xi, v)
        q = eta * share * jnp.where(slope > 0.0, steep / jnp.where(slope > 0.0, slope, 1.0), 0.0)
        return v / (1.0 + q if self.guard == "damped" else jnp.maximum(q, 1.0))

    def replicates(self, first: int, count: int) -> Preconditioned:
        """With each replicate's own P; the last chunk may reach past the end, and repeats the last one there."""
        if self.matrix.ndim < 4 or self.matrix.shape[-1] == 1:
            return self
        index = np.minimum(np.arange(first, first + count), self.matrix.shape[-1] - 1)
        return replace(self, matrix=self.matrix[..., index])


THINNED = 7  # clients add up every seventh step; intervals cover as well as with every one


def unaligned(every: int, sync_every: int) -> int:
    """The least number from `every` on that has no factor in common with `sync_every`.

    Sums must see every place in a round alike: clients are furthest apart at its end, and drift would look twice as
    large if that were all they saw.
    """
    return next(step for step in count(every) if math.gcd(step, sync_every) == 1)


@pytree
class ClientSums(Periodic):
    """Sums over every `every`-th step, client by client: of g, g g', H and theta_k, at the client's own iterate.

    g is the gradient and H the second derivative of the loss at the step's data. From these sums each client knows its
    mean Hessian, its gradient covariance and its mean iterate; d x d numbers leave it, and no data.
    """

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty sums."""
        dim, *rest = theta.shape
        squares = jnp.zeros((dim, dim, *rest), theta.dtype)
        zero = jnp.zeros_like(theta)
        return jnp.int32(0), zero, squares, squares, zero

    def fill(self, state: Any, step: Step) -> Any:
        """Add one step's terms."""
        problem, data = step.problem, step.data
        if isinstance(problem, Preconditioned):  # sums are of the gradients themselves
            problem, data = problem.problem, data[1]
        g = problem.gradient(step.before, data)
        hessian = second_derivative(problem, step.before, data)
        terms = (1, g, g[:, None] * g[None], hessian, step.before)
        return tuple(total + term for total, term in zip(state, terms, strict=True))

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`summed` steps, and `gradient_sum`, `square_sum`, `hessian_sum`, `place_sum`, clients first."""
        count, gradients, squares, hessians, places = state
        n_replicates = gradients.shape[-1]
        return {
            "summed": jnp.broadcast_to(count, (n_replicates,)),
            "gradient_sum": jnp.swapaxes(gradients, 0, 1),
            "square_sum": jnp.moveaxis(squares, 2, 0),
            "hessian_sum": jnp.moveaxis(hessians, 2, 0),
            "place_sum": jnp.swapaxes(places, 0, 1),
        }


def second_derivative(problem: Problem, theta: JaxArray, data: Any) -> JaxArray:
    """H at each client's data and iterate, (d, d, K, R)."""
    directions = jnp.eye(problem.dim, dtype=theta.dtype)

    def column(direction: JaxArray) -> JaxArray:
        return problem.curvature(theta, data, jnp.broadcast_to(direction[:, None, None], theta.shape))

    return jax.vmap(column)(directions)


@dataclass(frozen=True)
class ClientStatistics:
    """Means and covariances of each client in R replicates."""

    hessians: FloatArray  # mean Hessian of each client, (R, K, d, d)
    noise_cov: FloatArray  # gradient covariance of each client, (R, K, d, d)
    places: FloatArray  # mean iterate of each client, (R, K, d)
    gradients: FloatArray  # mean gradient of each client, (R, K, d)
    count: int

    def gradients_at(self, theta: FloatArray) -> FloatArray:
        """The mean gradients of the first replicate's clients at one parameter, (K, d).

        Each client's own mean gradient, taken where the client was, is moved there with its Hessian.
        """
        return self.gradients[0] + np.einsum("kij,kj->ki", self.hessians[0], theta - self.places[0])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """A = sum_k w_k H_k, (R, d, d)."""
        return np.einsum("k,rkij->rij", weights, self.hessians)

    def noise(self, weights: FloatArray) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k), (R, d, d)."""
        return np.einsum("k,rkij->rij", weights**2, self.noise_cov)


def client_statistics(sums: dict[str, FloatArray]) -> ClientStatistics:
    """Means and covariances from the sums of `ClientSums`."""
    n_summed = int(sums["summed"][0])
    gradients, squares, hessians, places = (
        np.asarray(sums[name], dtype=float) / n_summed
        for name in ("gradient_sum", "square_sum", "hessian_sum", "place_sum")
    )
    noise = (squares - gradients[..., :, None] * gradients[..., None, :]) * (n_summed / max(n_summed - 1, 1))
    return ClientStatistics((hessians + np.swapaxes(hessians, -1, -2)) / 2, noise, places, gradients, n_summed)


@partial(jax.jit, static_argnames="replicates")
def warm_hessians(problem: Problem, key: Key, start: JaxArray, replicates: int, rows: JaxArray) -> JaxArray:
    """Sums of second derivatives at the start over the first rows of each client, (d, d, K, R)."""
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    theta = jnp.broadcast_to(start[:, None, None], (problem.dim, problem.n_clients, replicates))
    zero = jnp.zeros((problem.dim, *theta.shape), theta.dtype)

    def add(t: JaxArray, total: JaxArray) -> JaxArray:
        return total + second_derivative(problem, theta, problem.sample(noise.at_step(t), t))

    return lax.fori_loop(1, rows + 1, add, zero)
