"""Theta C at a synchronisation: by a dense product for few clients, by the edges of the graph for many, or forged."""

import abc

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import client_mean
from fedgauss._types import FloatArray, Int32Array, JaxArray
from fedgauss.networks import Network, TamperedNetwork
from fedgauss.problems.base import pytree

# Up to here one small matrix product is as fast as its edges, and every network shares one compilation.
_DENSE_CLIENTS = 64


class Mixing(abc.ABC):
    """Averaging with neighbours."""

    @abc.abstractmethod
    def mix(self, theta: JaxArray, t: JaxArray) -> JaxArray:
        """Theta C for theta (d, K, R), after step t."""


@pytree
class DenseMixing(Mixing):
    """The whole matrix C, (K, K)."""

    matrix: FloatArray

    def mix(self, theta: JaxArray, t: JaxArray) -> JaxArray:
        """Theta C."""
        matrix = jnp.asarray(self.matrix)
        return sum(theta[:, k : k + 1] * matrix[k, :, None] for k in range(theta.shape[1]))


@pytree
class NeighbourMixing(Mixing):
    """C = sparse + uniform J, with each client's neighbours in a row of a table padded by zero weights."""

    neighbours: Int32Array  # (width, K)
    weights: FloatArray  # (width, K)
    uniform: float

    def mix(self, theta: JaxArray, t: JaxArray) -> JaxArray:
        """One gather for each column of the table."""
        mixed = self.uniform * client_mean(theta)[:, None] + jnp.zeros_like(theta)
        for neighbour, weight in zip(self.neighbours, self.weights, strict=True):
            mixed = mixed + weight[:, None] * theta[:, neighbour]
        return mixed


@pytree
class EdgeMixing(Mixing):
    """C = sparse + uniform J as a list of edges, for graphs with hubs, where a padded table would be K x K."""

    source: Int32Array  # (edges,)
    target: Int32Array  # (edges,), sorted
    weights: FloatArray  # (edges,)
    uniform: float

    def mix(self, theta: JaxArray, t: JaxArray) -> JaxArray:
        """A segment sum over the edges into each client."""
        messages = jnp.moveaxis(self.weights[:, None] * theta[:, self.source], 1, 0)
        sums = jax.ops.segment_sum(messages, self.target, theta.shape[1], indices_are_sorted=True)
        return jnp.moveaxis(sums, 0, 1) + self.uniform * client_mean(theta)[:, None]


@pytree
class TamperedMixing(Mixing):
    """From step `start` on, what `target` receives from `source` is c theta_source + mu in place of theta_source.

        (Theta C)_target + C_{source, target} ((c - 1) theta_source + mu)

    The other clients, and the source itself, receive theta_source as it is.
    """

    inner: Mixing
    source: np.int32
    target: np.int32
    weight: float  # C_{source, target}
    start: np.int32
    factor: float  # c
    shift: FloatArray  # mu, (d,)

    def mix(self, theta: JaxArray, t: JaxArray) -> JaxArray:
        """Honest mixing, and what the forger adds to one client."""
        forged = (self.factor - 1.0) * theta[:, self.source] + jnp.asarray(self.shift)[:, None]
        weight = jnp.where(t >= self.start, self.weight, 0.0)
        return self.inner.mix(theta, t).at[:, self.target].add(weight * forged)


def mixing_of(network: Network, dim: int) -> Mixing:
    """The cheapest way to mix parameters of `dim` dimensions on this network, with what a forger does to it."""
    if isinstance(network, TamperedNetwork):
        if network.shift.shape not in ((), (dim,)):
            raise ValueError(
                f"shift of man_in_the_middle must be a number or have shape ({dim},), one entry per parameter; "
                f"got shape {network.shift.shape}."
            )
        return TamperedMixing(
            mixing_of(network.honest, dim),
            np.int32(network.source),
            np.int32(network.target),
            network.weight,
            np.int32(network.start),
            network.factor,
            np.broadcast_to(network.shift, (dim,)),
        )
    if network.n_clients <= _DENSE_CLIENTS:
        return DenseMixing(network.matrix)
    table = network.sparse.tocsr()
    degrees = np.diff(table.indptr)
    width = int(degrees.max())
    if width * network.n_clients > 4 * table.nnz:
        target = np.repeat(np.arange(network.n_clients, dtype=np.int32), degrees)
        return EdgeMixing(table.indices.astype(np.int32), target, table.data, network.uniform)
    column = np.arange(table.nnz) - np.repeat(table.indptr[:-1], degrees)
    client = np.repeat(np.arange(network.n_clients), degrees)
    neighbours = np.zeros((width, network.n_clients), dtype=np.int32)
    weights = np.zeros((width, network.n_clients))
    neighbours[column, client] = table.indices
    weights[column, client] = table.data
    return NeighbourMixing(neighbours, weights, network.uniform)
