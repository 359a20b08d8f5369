"""What a client does in a pass: the rows of a step, and a step along P g that suits the problem's shape."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import add_up, times
from fedgauss._random import Noise
from fedgauss._types import FloatArray, IntArray, JaxArray
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

    def max_steps(self) -> int | None:
        """A pass: a row that is read again tells nothing new."""
        return self.n_steps

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

    def hessian_factors(self, theta: JaxArray, data: Batch) -> tuple[JaxArray, JaxArray] | None:
        """Those of its rows."""
        x, y, count = data
        each = jax.vmap(lambda x, y: self.rows.hessian_factors(theta, (x, y)))(x, y)
        if each is None:
            return None
        u, v = (factor.reshape(-1, *theta.shape) for factor in each)
        return u, jnp.repeat(count, len(v) // len(count), axis=0)[:, None] * v

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
    order = np.concatenate([first + shuffle(int(count), k, seed, number) for k, (first, count) in pieces])
    return in_batches(rows, order, steps_of_a_pass(len(order), rows.n_clients))


def shuffle(count: int, client: int, seed: int, number: int = 0) -> IntArray:
    """The order in which a client reads its rows, which it can work out by itself."""
    return np.random.default_rng([seed, number, client]).permutation(count)


def steps_of_a_pass(n_rows: int, n_clients: int) -> int:
    """As many as clients have rows on average."""
    return max(1, round(n_rows / n_clients))


def in_batches(rows: ArrayProblem, order: IntArray, n_steps: int) -> RowBatches:
    """One pass of so many steps over `rows` in this order."""
    mixed = replace(rows, features=rows.features[order], response=rows.response[order])
    edges = read_before(np.arange(n_steps + 1)[:, None], rows.counts, n_steps)
    return RowBatches(mixed, edges, int(np.diff(edges, axis=0).max()))


def read_before(steps: Any, counts: Any, n_steps: int) -> Any:
    """How many rows clients with so many have read after so many steps of a pass."""
    return steps * counts // n_steps


def busy_steps(counts: IntArray, n_steps: int, count: int) -> IntArray:
    """In how many of `count` steps clients with so many rows read any, (K,)."""
    return np.minimum(count, count * counts // n_steps)


def steps_with_rows(problem: Problem, count: int) -> IntArray:
    """In how many of `count` steps each client of a problem has rows, (K,)."""
    return problem.busy(count) if isinstance(problem, RowBatches) else np.full(problem.n_clients, count)


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
    round_start: FloatArray | None = None  # (d, K, R), where the round began, if the run sets in within one

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
        """With each replicate's own P and start; the last chunk may reach past the end, and repeats the last there."""
        if self.matrix.ndim < 4 or self.matrix.shape[-1] == 1:
            return self
        index = np.minimum(np.arange(first, first + count), self.matrix.shape[-1] - 1)
        start = None if self.round_start is None else self.round_start[..., index]
        return replace(self, matrix=self.matrix[..., index], round_start=start)
