"""Robust means of what clients changed, in JAX, by the rules of Flower 1.41's strategies of these names.

All but the median are told f, the number of bad clients: Flower's FedTrimmedAvg takes it as beta = f / n, Krum,
MultiKrum and Bulyan as num_malicious_nodes. MultiKrum keeps n - f clients. All clients count the same, as they have as
many images.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp


def median(moves: jax.Array, f: int) -> jax.Array:
    """Of every coordinate; f is not needed."""
    return jnp.median(moves, axis=0)


def trimmed_mean(moves: jax.Array, f: int) -> jax.Array:
    """Of every coordinate, without the f largest and the f smallest."""
    return jnp.sort(moves, axis=0)[f : len(moves) - f].mean(axis=0)


def krum_order(moves: jax.Array, f: int) -> jax.Array:
    """Clients by the sum of squared distances to their n - f - 2 nearest, the smallest first."""
    products = jnp.matmul(moves, moves.T, precision=jax.lax.Precision.HIGHEST)
    squares = jnp.diag(products)
    apart = squares[:, None] + squares - 2 * products
    nearest = jnp.sort(apart, axis=1)[:, 1 : max(1, len(moves) - f - 2) + 1]  # the first is the client itself
    return jnp.argsort(nearest.sum(axis=1))


def krum(moves: jax.Array, f: int) -> jax.Array:
    """The move of one client."""
    return moves[krum_order(moves, f)[0]]


def multi_krum(moves: jax.Array, f: int) -> jax.Array:
    """The mean of n - f clients."""
    return moves[krum_order(moves, f)[: len(moves) - f]].mean(axis=0)


def bulyan(moves: jax.Array, f: int) -> jax.Array:
    """Of the n - 2f clients that Krum likes best, by coordinate, the mean of the n - 4f nearest to their median."""
    n = len(moves)
    if n < 4 * f + 3:
        raise ValueError(f"Bulyan needs 4 f + 3 = {4 * f + 3} clients; there are {n}.")
    chosen = moves[krum_order(moves, f)[: n - 2 * f]]
    nearest = jnp.argsort(jnp.abs(chosen - jnp.median(chosen, axis=0)), axis=0)[: n - 4 * f]
    return jnp.take_along_axis(chosen, nearest, axis=0).mean(axis=0)


RULES: dict[str, Callable[[jax.Array, int], jax.Array]] = {
    "median": median,
    "trimmed mean": trimmed_mean,
    "Krum": krum,
    "MultiKrum": multi_krum,
    "Bulyan": bulyan,
}
