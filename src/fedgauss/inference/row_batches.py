"""Clients with unequal numbers of rows that finish a pass together: each reads in proportion to its rows."""

from __future__ import annotations

from dataclasses import field, replace

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from fedgauss._lanes import add_up
from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.arrays import ArrayProblem
from fedgauss.problems.base import Problem, pytree

Batch = tuple[JaxArray, JaxArray, JaxArray]  # x (B, p, K, 1), y (B, K, 1), and what each row counts for (B, K, 1)


@pytree
class RowBatches(Problem):
    """Step t of client k reads its rows floor((t - 1) n_k / n) to floor(t n_k / n) - 1, in the order they lie.

    Its gradient is n / n_k times the sum over these rows, so that over the n steps of a pass every row is read once
    and counts the same: the mean over the steps is the mean over the rows. Where n_k is a multiple of n this is the
    mean over a batch of n_k / n rows; a client with fewer rows than steps rests now and then.
    """

    rows: ArrayProblem
    edges: npt.NDArray[np.int64]  # (n + 1, K): rows read before step t + 1
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

    def busy(self, count: int) -> npt.NDArray[np.int64]:
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
    n_steps = steps_of_a_pass(len(order), rows.n_clients)
    edges = batch_edges(rows.counts, n_steps)
    mixed = replace(rows, features=rows.features[order], response=rows.response[order])
    return RowBatches(mixed, edges, int(np.diff(edges, axis=0).max()))


def shuffled(count: int, client: int, seed: int, number: int) -> npt.NDArray[np.int64]:
    """The order in which a client reads its rows, which it can work out by itself."""
    return np.random.default_rng([seed, number, client]).permutation(count)


def steps_of_a_pass(n_rows: int, n_clients: int) -> int:
    """As many as clients have rows on average."""
    return max(1, round(n_rows / n_clients))


def batch_edges(counts: npt.NDArray[np.int64], n_steps: int) -> npt.NDArray[np.int64]:
    """How many rows each client has read before step t + 1, (n + 1, K)."""
    return np.arange(n_steps + 1)[:, None] * counts // n_steps


def busy_steps(counts: npt.NDArray[np.int64], n_steps: int, count: int) -> npt.NDArray[np.int64]:
    """In how many of `count` steps clients with so many rows read any, (K,)."""
    return np.minimum(count, count * counts // n_steps)
