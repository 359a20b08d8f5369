"""Sums that keep their digits, and whose rounding does not depend on how many replicates sit in the last axis.

XLA orders the terms of a reduction or a matrix product by the shapes involved, so their last bit would change with
the chunk size. Here every sum is written as additions of whole arrays, in an order fixed by the summed axis alone.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from fedgauss._types import JaxArray

# Longer sums are looped over rather than written out, to keep programs small.
_WRITTEN_OUT = 32


def add_up(x: JaxArray, axis: int = 0) -> JaxArray:
    """The sum over `axis`, by adding halves."""
    x = jnp.moveaxis(x, axis, 0)
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        pairs = x[:half] + x[half : 2 * half]
        x = jnp.concatenate([pairs, x[2 * half :]]) if x.shape[0] % 2 else pairs
    return x[0]


def client_mean(theta: JaxArray) -> JaxArray:
    """Y = Theta 1 / K: (d, K, R) gives (d, R)."""
    return add_up(theta, axis=1) / theta.shape[1]


def times(matrix: JaxArray, x: JaxArray) -> JaxArray:
    """Matrices times vectors x (d, K, R): (d, d), (K, d, d) one a client, or (d, d, 1, R) one a replicate."""
    matrix = jnp.asarray(matrix)
    if matrix.ndim == 4:
        columns = jnp.moveaxis(matrix, 1, 0)
    elif matrix.ndim == 3:
        columns = jnp.swapaxes(jnp.moveaxis(matrix, -1, 0), 1, 2)[..., None]  # (d, d, K, 1)
    else:
        columns = jnp.moveaxis(matrix, -1, 0)[..., None, None]
    if x.shape[0] <= _WRITTEN_OUT:
        return sum(columns[j] * x[j] for j in range(x.shape[0]))
    zero = jnp.zeros(jnp.broadcast_shapes(columns.shape[1:], x.shape), x.dtype)
    return lax.fori_loop(0, x.shape[0], lambda j, total: total + columns[j] * x[j], zero)


class Sum(NamedTuple):
    """A running sum with Neumaier's compensation, so that a million float32 terms lose nothing that matters."""

    total: JaxArray
    lost: JaxArray

    @classmethod
    def zero(cls, like: JaxArray) -> Sum:
        """The empty sum."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def add(self, term: JaxArray) -> Sum:
        """The sum with one more term."""
        total = self.total + term
        larger = jnp.abs(self.total) >= jnp.abs(term)
        lost = jnp.where(larger, (self.total - total) + term, (term - total) + self.total)
        return Sum(total, self.lost + lost)

    @property
    def result(self) -> JaxArray:
        """The compensated sum."""
        return self.total + self.lost
