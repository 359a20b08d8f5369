"""Networks that change from one mixing to the next: links that fail, and clients that meet in random pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse as sp

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import FloatArray
from fedgauss.networks.network import Network
from fedgauss.networks.random_network import RandomNetwork, need_unchanging
from fedgauss.networks.tampered import TamperedNetwork


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FailingNetwork(RandomNetwork):
    """A network each of whose links is down now and then: see `failing`."""

    probability: float

    @property
    def link_weights(self) -> FloatArray:
        """c_ij of each link while it is up, (E,)."""
        return self._mean_weights / (1.0 - self.probability)

    @property
    def weight_cov(self) -> FloatArray:
        """p (1 - p) c_ij^2 of each link: they fail independently."""
        return self.probability * (1.0 - self.probability) * self.link_weights**2

    @property
    def law(self) -> str:
        """In a few words."""
        return f"each link down with probability {self.probability:g}"

    @property
    def _mean_weights(self) -> FloatArray:
        return np.asarray(self.sparse[self.links[:, 0], self.links[:, 1]], float).ravel()

    def _mean_square(self) -> sp.csr_array:
        """(E C)^2 + 2 sum_e Var(v_e) L_e, without a dense matrix."""
        i, j = self.links.T
        weights = sp.coo_array((2.0 * self.weight_cov, (i, j)), shape=self.sparse.shape)
        both = weights + weights.T
        return sp.csr_array(self.sparse @ self.sparse + sp.diags_array(both.sum(axis=1)) - both)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairGossip(RandomNetwork):
    """Clients who meet in random pairs: see `gossip_pairs`."""

    pairs: int

    @cached_property
    def weight_cov(self) -> FloatArray:
        """v_e is 1/2 if e is one of the m pairs and else 0, and no two pairs have a client in common."""
        k, m = self.n_clients, self.pairs
        size = 40 * len(self.links) ** 2
        check_memory(f"covariances of {len(self.links):,} pairs", size, "Use fewer clients, or simulate.")
        met = m / (k * (k - 1) / 2)  # the chance of one pair
        both = met * (m - 1) / max((k - 2) * (k - 3) / 2, 1)  # and of two that have no client in common
        shared = (self.links[:, None, :, None] == self.links[None, :, None, :]).sum(axis=(2, 3))  # clients, (E, E)
        return np.choose(shared, [both, 0.0, met]) / 4 - met**2 / 4

    @property
    def law(self) -> str:
        """In a few words."""
        return f"{self.pairs} random pairs average" if self.pairs > 1 else "one random pair averages"

    @cached_property
    def second_eigenvalue(self) -> float:
        """sqrt(1 - m / (K - 1)): C_t is a projection, so E[C C'] = E C."""
        return float(np.sqrt(1.0 - self.pairs / (self.n_clients - 1)))


def failing(network: Network, probability: float) -> FailingNetwork:
    """A network whose links fail: at each mixing, each of them is down with this probability, independently.

        C_t = I - sum over links (i, j) that are up of c_ij (e_i - e_j)(e_i - e_j)'

    Two clients whose link is down keep what they would have sent each other, so the mean of all stays as it is. A
    network with a server, such as `complete`, is taken as links between all pairs; for clients that do not reach the
    server in time, use `simulate(..., participation=...)`.

    Parameters
    ----------
    network : Network
        With the weights c_ij of links that are up.
    probability : float
        Of a link to be down, in [0, 1).

    Returns
    -------
    FailingNetwork

    Examples
    --------
    >>> import fedgauss as fg
    >>> print(fg.networks.failing(fg.networks.ring(10), 0.3))
    Network ring, each link down with probability 0.3: 10 clients, 10 edges, contraction factor 0.9206
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"network must be made by fedgauss.networks; got {type(network).__name__}. Use networks.from_matrix(...)?"
        )
    if isinstance(network, TamperedNetwork):
        raise ValueError("failing needs a network without forged messages; got one with a man in the middle.")
    need_unchanging("failing", network)
    p = _checks.real("probability", probability, fix="Use 0.1?")
    if not 0.0 <= p < 1.0:
        raise ValueError(f"probability of a link to be down must lie in [0, 1); got {p:g}. Use 0.1?")
    k = network.n_clients
    weights = sp.csr_array(network.sparse) if network.uniform == 0.0 else sp.csr_array(network.matrix)
    upper = sp.coo_array(sp.triu(weights, k=1))
    i, j = upper.coords
    mean = sp.coo_array(((1.0 - p) * upper.data, (i, j)), shape=(k, k))
    both = sp.csr_array(mean + mean.T)
    links = np.stack([i, j], axis=1).astype(np.int64)
    sparse = sp.csr_array(both + sp.diags_array(1.0 - both.sum(axis=1)))
    return FailingNetwork(network.name, sparse, links=links, probability=p)


def gossip_pairs(n_clients: int, pairs: int | None = None) -> PairGossip:
    """Pairwise gossip: at each mixing clients meet in random pairs, and the two of a pair take their mean.

        C_t = I - sum over pairs (i, j) of (e_i - e_j)(e_i - e_j)' / 2

    Parameters
    ----------
    n_clients : int
        K, at least 2.
    pairs : int, optional
        How many pairs meet, from 1 (asynchronous gossip) to K // 2, the default: everybody meets somebody, but for one
        client if K is odd. All ways to choose so many pairs are equally likely.

    Returns
    -------
    PairGossip

    Examples
    --------
    >>> import fedgauss as fg
    >>> print(fg.networks.gossip_pairs(10))
    Network gossip, 5 random pairs average: 10 clients, 45 edges, contraction factor 0.6667
    """
    k = _checks.whole("n_clients", n_clients, at_least=2)
    fix = f"With {k} clients there are at most {k // 2} pairs."
    m = k // 2 if pairs is None else _checks.whole("pairs", pairs, at_most=k // 2, fix=fix)
    check_memory(f"all pairs of {k:,} clients", 50 * k**2, "Use fewer clients, or failing(ring(n_clients), 0.5).")
    links = np.stack(np.triu_indices(k, 1), axis=1)
    # c_ij = m / (K (K - 1)) for all pairs, and the rest stays with the client
    mean = np.full((k, k), m / (k * (k - 1))) + (1.0 - m / (k - 1)) * np.eye(k)
    return PairGossip("gossip", sp.csr_array(mean), links=links, pairs=m)
