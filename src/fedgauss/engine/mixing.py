"""Theta C_t at a synchronisation: by a dense product for few clients, by the edges of the graph for many, or forged.

C_t may be drawn anew each time, and only some clients may be present.
"""

import abc
from dataclasses import field, replace

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse as sp

from fedgauss._lanes import add_up, client_mean
from fedgauss._random import Noise
from fedgauss._types import FloatArray, Int32Array, JaxArray
from fedgauss.engine.participation import Presence
from fedgauss.networks import FailingNetwork, Network, PairGossip, RandomNetwork, TamperedNetwork
from fedgauss.problems.base import pytree

# Up to here one small matrix product is as fast as its edges, and every network shares one compilation.
_DENSE_CLIENTS = 64


class Mixing(abc.ABC):
    """Averaging with neighbours."""

    @abc.abstractmethod
    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """Theta C_t for theta (d, K, R), after step t; `noise` is that of the run."""


@pytree
class DenseMixing(Mixing):
    """The whole matrix C, (K, K)."""

    matrix: FloatArray

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """Theta C."""
        matrix = jnp.asarray(self.matrix)
        return sum(theta[:, k : k + 1] * matrix[k, :, None] for k in range(theta.shape[1]))


@pytree
class ServerMixing(Mixing):
    """C = J: everybody receives the mean."""

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """The mean in every column."""
        return jnp.broadcast_to(client_mean(theta)[:, None], theta.shape)


@pytree
class NeighbourMixing(Mixing):
    """C = sparse + uniform J, with each client's neighbours in a row of a table padded by zero weights."""

    neighbours: Int32Array  # (width, K)
    weights: FloatArray  # (width, K)
    uniform: float

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
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

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
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

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """Honest mixing, and what the forger adds to one client."""
        forged = (self.factor - 1.0) * theta[:, self.source] + jnp.asarray(self.shift)[:, None]
        weight = jnp.where(t >= self.start, self.weight, 0.0)
        return self.inner.mix(theta, t, noise).at[:, self.target].add(weight * forged)


@pytree
class FailingMixing(Mixing):
    """C_t = I - sum_e c_e L_e over the links e = (i, j) that are up, L_e = (e_i - e_j)(e_i - e_j)'.

    Each link stands in the lists twice, once for what either end receives.
    """

    source: Int32Array  # (2E,)
    target: Int32Array  # (2E,), sorted
    link: Int32Array  # (2E,), the number of the link
    weights: FloatArray  # (2E,), c_e
    probability: float  # of a link to be down
    n_links: int = field(metadata={"static": True})

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """Theta, and for each client the sum of what its links bring it."""
        draws = replace(noise.at_step(t).stream("links"), n_clients=self.n_links).uniform(1)[0]
        weights = self.weights[:, None] * (draws >= self.probability)[self.link]
        brought = jnp.moveaxis(weights * (theta[:, self.source] - theta[:, self.target]), 1, 0)
        sums = jax.ops.segment_sum(brought, self.target, theta.shape[1], indices_are_sorted=True)
        return theta + jnp.moveaxis(sums, 0, 1)


@pytree
class PairMixing(Mixing):
    """Clients in a random order: the first two average, the next two, and so on for a number of pairs."""

    pairs: int = field(metadata={"static": True})

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """The mean of each client and its partner, which for clients without one is the client itself."""
        order = jnp.argsort(noise.at_step(t).stream("pairs").words(1)[0], axis=0)
        place = np.arange(theta.shape[1])
        beside = order[np.where(place < 2 * self.pairs, place ^ 1, place)]
        partner = jnp.take_along_axis(beside, jnp.argsort(order, axis=0), axis=0)
        return (theta + jnp.take_along_axis(theta, partner[None], axis=1)) / 2.0


@pytree
class PresentMixing(Mixing):
    """C = S + u J among those present, p_k = 1, or 0 for absent clients: `Network.among`.

    theta_k  <-  (1 - u) theta_k + p_k sum_j s_jk p_j (theta_j - theta_k) + u (mean of those present)
    """

    presence: Presence
    links: Mixing | None  # by S; None if it links nobody
    uniform: float  # u

    def mix(self, theta: JaxArray, t: JaxArray, noise: Noise) -> JaxArray:
        """What links bring follows from S applied to p_k theta_k and to p_k."""
        here = self.presence.at(noise, t)
        mixed = (1.0 - self.uniform) * theta
        if self.links is not None:
            sent = jnp.concatenate([jnp.where(here, theta, 0.0), here[None].astype(theta.dtype)])
            *heard, weight = self.links.mix(sent, t, noise)
            mixed = mixed + here * (jnp.stack(heard) - weight * theta)
        mean = add_up(jnp.where(here, theta, 0.0), axis=1) / self.presence.count
        return mixed + self.uniform * mean[:, None]


def mixing_of(network: Network, dim: int, presence: Presence | None = None) -> Mixing:
    """The cheapest way to mix parameters of `dim` dimensions on this network, with what a forger does to it."""
    if presence is not None:
        return _mixing_among(network, presence)
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
    if isinstance(network, RandomNetwork):
        return _random_mixing(network)
    return _fixed_mixing(network.sparse, network.uniform)


def _mixing_among(network: Network, presence: Presence) -> Mixing:
    if isinstance(network, TamperedNetwork):
        raise ValueError(
            "participation needs a network without forged messages; got one with a man in the middle. "
            "Use the honest network, or leave out participation."
        )
    if isinstance(network, RandomNetwork):
        return PresentMixing(presence, _random_mixing(network), 0.0)
    linked = network.sparse.nnz > np.count_nonzero(network.sparse.diagonal())
    return PresentMixing(presence, _fixed_mixing(network.sparse, 0.0) if linked else None, network.uniform)


def _random_mixing(network: RandomNetwork) -> Mixing:
    if isinstance(network, PairGossip):
        return PairMixing(network.pairs)
    if not isinstance(network, FailingNetwork):
        raise ValueError(
            f"a random network must be made by networks.failing or networks.gossip_pairs; got {network!r}."
        )
    i, j = network.links.T.astype(np.int32)
    ends = np.stack([np.append(i, j), np.append(j, i), np.tile(np.arange(len(i), dtype=np.int32), 2)])
    source, target, link = ends[:, np.argsort(ends[1], kind="stable")]
    return FailingMixing(source, target, link, network.link_weights[link], network.probability, len(i))


def _fixed_mixing(sparse: sp.csr_array, uniform: float) -> Mixing:
    """By C = sparse + uniform J."""
    n_clients = sparse.shape[0]
    if n_clients <= _DENSE_CLIENTS:
        return DenseMixing(sparse.toarray() + uniform / n_clients)
    table = sparse.tocsr()
    degrees = np.diff(table.indptr)
    width = int(degrees.max())
    if width * n_clients > 4 * table.nnz:
        target = np.repeat(np.arange(n_clients, dtype=np.int32), degrees)
        return EdgeMixing(table.indices.astype(np.int32), target, table.data, uniform)
    column = np.arange(table.nnz) - np.repeat(table.indptr[:-1], degrees)
    client = np.repeat(np.arange(n_clients), degrees)
    neighbours = np.zeros((width, n_clients), dtype=np.int32)
    weights = np.zeros((width, n_clients))
    neighbours[column, client] = table.indices
    weights[column, client] = table.data
    return NeighbourMixing(neighbours, weights, uniform)
