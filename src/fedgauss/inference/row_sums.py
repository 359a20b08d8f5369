"""Reading rows: what a client adds up over a stretch of its rows at a parameter that all clients share.

    sum_t g_t,    sum_t g_t g_t',    sum_t H_t        with g_t the gradient and H_t the second derivative at row t

and max_t |g_t|, which shows whether one row outweighs the others. No run is needed for it. Rows are read eight at a
time, so that a d x d sum is read and written once for eight of them, and replicates as many at a time as the cache has
room for: with d = 100 both together are ten times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._lanes import add_up, times
from fedgauss._progress import ProgressBar
from fedgauss._random import Key, Noise
from fedgauss._types import FloatArray, IntArray, JaxArray
from fedgauss.inference.client_sums import second_derivative
from fedgauss.problems.base import Problem

_BLOCK = 8  # rows
_SEGMENT = 4096  # rows: sums over so many are added up in double precision, and Ctrl-C acts in between
_CACHE = 2**20  # bytes: the d x d sums of the replicates that are read for at once


class RowSums(NamedTuple):
    """Client by client, of R replicates."""

    gradients: FloatArray  # (R, K, d)
    squares: FloatArray  # (R, K, d, d)
    hessians: FloatArray  # (R, K, d, d)
    largest: FloatArray  # (R, K, d): of |g|, coordinate by coordinate


@dataclass(frozen=True)
class RowRange:
    """Rows first + 1, ..., last of each client, as the replicates with these R numbers draw them."""

    problem: Problem
    key: Key
    replicates: IntArray
    first: int
    last: int

    @property
    def count(self) -> int:
        """How many rows a client has here."""
        return self.last - self.first

    def sums_at(self, theta: FloatArray, bar: ProgressBar | None = None) -> RowSums:
        """Sums of g, g g' and H at one parameter a replicate, (R, d).

        Rows are read at r, which is theta in single precision; where theta is 1e7 that is up to 1/2 away. So gradients
        go on to theta along a straight line, g(r) + H(r) (theta - r).
        """
        place = theta.astype(np.float32).astype(float)
        folds = np.add, np.add, np.add, np.maximum
        gradients, squares, hessians, largest = self._folded(_sums, folds, _last(place), bar=bar)
        hessians = (hessians + np.swapaxes(hessians, -1, -2)) / 2
        return RowSums(gradients + np.einsum("rkij,rj->rki", hessians, theta - place), squares, hessians, largest)

    def moments_at(self, theta: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The mean gradient (R, d), the mean Hessian A and the noise V_K (R, d, d), of clients with these weights."""
        gradients, squares, hessians = (each / self.count for each in self.sums_at(theta)[:3])
        within = squares - gradients[..., :, None] * gradients[..., None, :]
        slope, hessian = (np.einsum("k,rk...->r...", weights, each) for each in (gradients, hessians))
        return slope, hessian, np.einsum("k,rkij->rij", weights**2, within)

    def bends_at(self, theta: FloatArray, reference: FloatArray) -> tuple[FloatArray, FloatArray]:
        """b = g(r) + H(r) (theta - r) - g(theta) over a client's rows: mean (R, K, d), and its covariance."""
        return self._mean_of(_bends, _last(theta), _last(reference))

    def second_order_at(
        self, theta: FloatArray, means: FloatArray, bread: FloatArray, root: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """u = w_k H A^-1 (g - mean of g) - D^2 g [v, v] / 2 over a client's rows: mean (R, K, d), and its covariance.

        Every row has a direction v ~ N(0, S) of its own. `bread` is A^-1, `root` a root of S, one a replicate.
        """
        matrices = (np.moveaxis(each, 0, -1)[:, :, None] for each in (bread, root))
        return self._mean_of(_second_order, _last(theta), np.moveaxis(means, (0, 1), (-1, -2)), *matrices)

    def fourths_at(self, theta: FloatArray, means: FloatArray, whitening: FloatArray) -> FloatArray:
        """Sums of (u' W u)^2, u a gradient less its client's mean (R, K, d), W one matrix a replicate; (R, K)."""
        own = np.moveaxis(means, (0, 1), (-1, -2)), np.moveaxis(whitening, 0, -1)[:, :, None]
        return self._folded(_fourths, (np.add,), _last(theta), *own)[0]

    def _mean_of(
        self, program: Callable[..., tuple[JaxArray, ...]], *arrays: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The mean of what `program` adds up, beside its squares, and the covariance of that mean."""
        total, squares = self._folded(program, (np.add, np.add), *arrays)
        mean = total / self.count
        return mean, (squares / self.count - mean[..., :, None] * mean[..., None, :]) / (self.count - 1)

    def _folded(
        self,
        program: Callable[..., tuple[JaxArray, ...]],
        folds: Sequence[np.ufunc],
        *arrays: FloatArray,
        bar: ProgressBar | None = None,
    ) -> list[FloatArray]:
        """What `program` finds over these rows, replicates and clients first; `arrays` have replicates last.

        `folds` say how the parts of two stretches of rows make up that of both.
        """
        problem, n_runs = self.problem, len(self.replicates)
        room = _CACHE // (8 * problem.n_clients * problem.dim**2)
        size, parts = min(1 << (n_runs - 1).bit_length(), max(16, room)), []  # powers of two share their compilation
        for begin in range(0, n_runs, size):
            # The last chunk may reach past the end, and repeats the last replicate there.
            index = np.minimum(np.arange(begin, begin + size), n_runs - 1)
            own = [jnp.asarray(array[..., index], jnp.float32) for array in arrays]
            numbers, total = self.replicates[index], None
            for since in range(self.first, self.last, _SEGMENT):
                until = min(since + _SEGMENT, self.last)
                found = program(problem, self.key, np.uint32(numbers), np.int32(since), np.int32(until), *own)
                sums = [np.moveaxis(np.asarray(part, dtype=float), (-1, -2), (0, 1)) for part in found]
                total = sums if total is None else [f(a, b) for f, a, b in zip(folds, total, sums, strict=True)]
                if bar is not None:
                    bar.advance(min(size, n_runs - begin) * (until - since))
            assert total is not None
            parts.append([part[: n_runs - begin] for part in total])
        return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _last(theta: FloatArray) -> FloatArray:
    """(R, d) as (d, 1, R)."""
    return theta.T[:, None]


@jax.jit
def _sums(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, theta: JaxArray
) -> tuple[JaxArray, ...]:
    place = _everywhere(problem, theta)

    def terms(data: Any, noise: Noise) -> Any:
        return problem.gradient(place, data), problem.hessian_factors(place, data), data

    def add(total: tuple[JaxArray, ...], block: Any, counts: JaxArray) -> tuple[JaxArray, ...]:
        gradients, squares, hessians, largest = total
        g, factors, data = block
        if factors is None:

            def plus(b: JaxArray, hessians: JaxArray) -> JaxArray:
                row = jax.tree.map(lambda part: part[b], data)
                return hessians + jnp.where(counts[b], second_derivative(problem, place, row), 0.0)

            hessians = lax.fori_loop(0, _BLOCK, plus, hessians)
        else:
            hessians = _plus_products(hessians, *(f.reshape(-1, *place.shape) for f in factors))
        largest = jnp.maximum(largest, jnp.abs(g).max(axis=0))
        return gradients + add_up(g), _plus_products(squares, g, g), hessians, largest

    vector, square = jnp.zeros_like(place), jnp.zeros((problem.dim, *place.shape), place.dtype)
    return _in_blocks(problem, key, numbers, since, until, place, terms, add, (vector, square, square, vector))


@jax.jit
def _bends(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, theta: JaxArray, r: JaxArray
) -> tuple[JaxArray, ...]:
    place, reference = _everywhere(problem, theta), _everywhere(problem, r)

    def terms(data: Any, noise: Noise) -> JaxArray:
        straight = problem.gradient(reference, data) + problem.curvature(reference, data, place - reference)
        return straight - problem.gradient(place, data)

    return _vectors_and_squares(problem, key, numbers, since, until, place, terms)


@jax.jit
def _second_order(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, theta: JaxArray,
    means: JaxArray, bread: JaxArray, root: JaxArray,
) -> tuple[JaxArray, ...]:  # fmt: skip
    place, weights = _everywhere(problem, theta), jnp.asarray(problem.weights, theta.dtype)[:, None]

    def terms(data: Any, noise: Noise) -> JaxArray:
        pull = times(bread, problem.gradient(place, data) - means)
        v = times(root, noise.stream("directions").normal(problem.dim))
        twice = jax.jvp(lambda at: problem.curvature(at, data, v), (place,), (v,))[1]
        return weights * problem.curvature(place, data, pull) - twice / 2

    return _vectors_and_squares(problem, key, numbers, since, until, place, terms)


def _vectors_and_squares(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, place: JaxArray,
    terms: Callable[[Any, Noise], JaxArray],
) -> tuple[JaxArray, ...]:  # fmt: skip
    def add(total: tuple[JaxArray, ...], vectors: JaxArray, counts: JaxArray) -> tuple[JaxArray, ...]:
        return total[0] + add_up(vectors), _plus_products(total[1], vectors, vectors)

    nothing = jnp.zeros_like(place), jnp.zeros((problem.dim, *place.shape), place.dtype)
    return _in_blocks(problem, key, numbers, since, until, place, terms, add, nothing)


@jax.jit
def _fourths(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, theta: JaxArray,
    means: JaxArray, whitening: JaxArray,
) -> tuple[JaxArray, ...]:  # fmt: skip
    place = _everywhere(problem, theta)

    def terms(data: Any, noise: Noise) -> JaxArray:
        u = problem.gradient(place, data) - means
        return add_up(u * times(whitening, u)) ** 2

    def add(total: tuple[JaxArray, ...], fourths: JaxArray, counts: JaxArray) -> tuple[JaxArray, ...]:
        return (total[0] + add_up(fourths),)

    return _in_blocks(problem, key, numbers, since, until, place, terms, add, (jnp.zeros_like(place[0]),))


def _in_blocks(
    problem: Problem, key: Key, numbers: JaxArray, since: JaxArray, until: JaxArray, place: JaxArray,
    terms: Callable[[Any, Noise], Any], add: Callable[[Any, Any, JaxArray], Any], nothing: Any,
) -> Any:  # fmt: skip
    """Fold `add` over blocks of rows since + 1, ..., until: `terms` of its rows, zero where a row does not count."""
    # Noise counts replicates from its first one on: here each is told how far its own number is from that.
    offsets = numbers - jnp.arange(numbers.shape[0], dtype=jnp.uint32)
    noise = Noise(key, offsets, *place.shape[1:])

    def block(i: JaxArray, total: Any) -> Any:
        def row(t: JaxArray) -> Any:
            now = noise.at_step(t)
            found = terms(problem.sample(now, t), now)
            return jax.tree.map(lambda term: jnp.where(t <= until, term, jnp.zeros_like(term)), found)

        steps = since + _BLOCK * i + 1 + jnp.arange(_BLOCK)
        return add(total, lax.map(row, steps), steps <= until)

    return lax.fori_loop(0, (until - since + _BLOCK - 1) // _BLOCK, block, nothing)


def _everywhere(problem: Problem, theta: JaxArray) -> JaxArray:
    """(d, 1, R) as (d, K, R)."""
    return jnp.broadcast_to(theta, (problem.dim, problem.n_clients, theta.shape[-1]))


def _plus_products(total: JaxArray, left: JaxArray, right: JaxArray) -> JaxArray:
    """total + sum_b left_b right_b', a block at a time; (d, d, K, R) from (B, d, K, R)."""

    def add(i: JaxArray, total: JaxArray) -> JaxArray:
        u, v = (lax.dynamic_slice_in_dim(factor, i * _BLOCK, _BLOCK) for factor in (left, right))
        return total + sum(u[b][:, None] * v[b][None] for b in range(_BLOCK))

    return lax.fori_loop(0, left.shape[0] // _BLOCK, add, total)
