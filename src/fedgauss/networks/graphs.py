"""Who averages with whom: networks by name, from graphs and from matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse import csgraph

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._types import ArrayLike
from fedgauss.networks.network import Network

if TYPE_CHECKING:
    import networkx as nx

_MANY = 0.02  # of all pairs, from which on NumPy draws them by shuffling all
_DRAWS = 100  # random graphs drawn before giving up on a connected one


def ring(n_clients: int) -> Network:
    """Clients in a circle: c_ij = 1/3 for a client and its two neighbours (K >= 3).

    Parameters
    ----------
    n_clients : int
        K.

    Returns
    -------
    Network

    Examples
    --------
    >>> import fedgauss as fg
    >>> print(fg.networks.ring(10))
    Network ring: 10 clients, 10 edges, second eigenvalue 0.8727
    """
    k = np.arange(_number_of_clients(n_clients))
    return _metropolis("ring", len(k), k, np.roll(k, -1))


def path(n_clients: int) -> Network:
    """Clients in a line, with Metropolis weights: a ring that does not close.

    Parameters
    ----------
    n_clients : int
        K.

    Returns
    -------
    Network
    """
    k = np.arange(_number_of_clients(n_clients))
    return _metropolis("path", len(k), k[:-1], k[1:])


def star(n_clients: int) -> Network:
    """Client 0 in the middle, with Metropolis weights: c_0k = 1/K.

    Parameters
    ----------
    n_clients : int
        K.

    Returns
    -------
    Network
    """
    k = np.arange(_number_of_clients(n_clients))
    return _metropolis("star", len(k), np.zeros_like(k), k)


def torus(rows: int, cols: int) -> Network:
    """A grid whose sides wrap around, with Metropolis weights.

    Parameters
    ----------
    rows, cols : int
        The size of the grid, K = rows * cols; the client at (r, c) is number r * cols + c.

    Returns
    -------
    Network
    """
    rows, cols = _checks.whole("rows", rows), _checks.whole("cols", cols)
    _number_of_clients(rows * cols, edges=2)
    k = np.arange(rows * cols).reshape(rows, cols)
    neighbours = np.concatenate([np.roll(k, -1, axis=0).ravel(), np.roll(k, -1, axis=1).ravel()])
    return _metropolis(f"torus({rows}, {cols})", rows * cols, np.tile(k.ravel(), 2), neighbours)


def complete(n_clients: int) -> Network:
    """All clients average with each other: C = J = 11'/K, as with the server of centralised federated learning.

    Parameters
    ----------
    n_clients : int
        K.

    Returns
    -------
    Network
    """
    k = _number_of_clients(n_clients, edges=0)
    return Network("complete", sp.csr_array((k, k)), uniform=1.0)


def lazy(n_clients: int, rho: float) -> Network:
    """C = rho I + (1 - rho) J, a network with a given second eigenvalue.

    Parameters
    ----------
    n_clients : int
        K.
    rho : float
        The second eigenvalue, in [0, 1).

    Returns
    -------
    Network
    """
    k = _number_of_clients(n_clients, edges=0)
    rho = _checks.real("rho", rho)
    if not 0 <= rho < 1:
        raise ValueError(
            f"rho must lie in [0, 1) (Assumption 2.1: lambda_2 < 1); got {rho:g}. Use 0 for plain averaging."
        )
    return Network(f"lazy({rho:g})", rho * sp.eye_array(k, format="csr"), uniform=1.0 - rho)


def erdos_renyi(n_clients: int, probability: float, seed: int) -> Network:
    """A random graph in which each pair is linked independently, redrawn until it is connected.

    Parameters
    ----------
    n_clients : int
        K.
    probability : float
        Of a link, in (0, 1].
    seed : int
        Fixes the graph.

    Returns
    -------
    Network
        With Metropolis weights.
    """
    n = _checks.whole("n_clients", n_clients)
    probability = _checks.real("probability", probability, above=0.0)
    if probability > 1:
        raise ValueError(f"probability must be at most 1; got {probability:g}. Use networks.complete({n})?")
    seed = _checks.seed(seed)
    pairs = n * (n - 1) // 2
    each = 25 + 230 * probability if probability > _MANY else 280 * probability  # bytes, of a pair that may be linked
    size = int(1e6 * each) * pairs // 10**6 + 100 * n
    check_memory(f"{n:,} clients that are linked with probability {probability:g}", size, "Use fewer clients.")
    for draw in range(_DRAWS):
        i, j = _random_pairs(n, probability, np.random.default_rng((seed, draw)))
        if csgraph.connected_components(_adjacency(n, i, j), directed=False)[0] == 1:
            return _metropolis(f"erdos_renyi({probability:g})", n, i, j)
    threshold = np.log(n) / n
    raise ValueError(
        f"mixing must connect all clients (Assumption 2.1); none of {_DRAWS} random graphs did with "
        f"probability {probability:g}. Connection is likely above log(K)/K = {threshold:.3g}: "
        f"use probability={min(1.0, 2 * threshold):.2g}?"
    )


def from_graph(graph: nx.Graph) -> Network:
    """Metropolis weights on a networkx graph: c_ij = 1 / (1 + max(deg_i, deg_j)), c_ii = 1 - sum_j c_ij.

    Parameters
    ----------
    graph : networkx.Graph
        Undirected. Client k is the k-th of `graph.nodes`. Self loops and edge weights are ignored.

    Returns
    -------
    Network
    """
    import networkx as nx

    if graph.is_directed():
        raise ValueError(
            "graph must be undirected (Assumption 2.1: C is symmetric); got a directed graph. "
            "Use graph.to_undirected()?"
        )
    if graph.is_multigraph():
        raise ValueError("graph must have at most one edge per pair; got a multigraph. Use networkx.Graph(graph)?")
    if len(graph) == 0:
        raise ValueError("graph must have at least one client; got 0 nodes. Use networks.ring(n_clients)?")
    pairs = sp.coo_array(nx.to_scipy_sparse_array(graph, weight=None))
    return _metropolis(graph.name or "graph", len(graph), *pairs.coords)


def from_matrix(mixing: ArrayLike | sp.sparray | sp.spmatrix) -> Network:
    """A network from its mixing matrix C.

    Parameters
    ----------
    mixing : array or scipy sparse matrix of shape (K, K)
        It must satisfy Assumption 2.1: symmetric, nonnegative, with rows that sum to 1, and connected.

    Returns
    -------
    Network
    """
    if not sp.issparse(mixing):
        mixing = _checks.real_array("mixing", mixing, shape=(None, None), fix="Give a K x K matrix.")
    return Network("matrix", mixing)


def as_network(value: Any, n_clients: int) -> Network:
    """A network from whatever `simulate` accepts as one.

    Parameters
    ----------
    value : Network, matrix, networkx graph or None
        None is allowed for a single client.
    n_clients : int
        K, which the network must have.

    Returns
    -------
    Network
    """
    fix = f"Use networks.ring({n_clients})?"
    if value is None:
        if n_clients == 1:
            return complete(1)
        raise ValueError(f"mixing must say which of the K = {n_clients} clients average; got None. {fix}")
    if isinstance(value, str):
        raise ValueError(f"mixing must be a Network, a K x K matrix or a networkx graph; got {value!r}. {fix}")
    if isinstance(value, Network):
        network = value
    elif hasattr(value, "is_multigraph"):
        network = from_graph(value)
    else:
        network = from_matrix(value)
    k = network.n_clients
    if k != n_clients:
        raise ValueError(f"mixing must be K x K with K = {n_clients} clients (Assumption 2.1); got {k} x {k}. {fix}")
    return network


def _number_of_clients(n_clients: Any, edges: int = 1) -> int:
    """K, if a network of so many clients, with so many edges for each, fits into memory."""
    n = _checks.whole("n_clients", n_clients)
    check_memory(f"a network of {n:,} clients", (100 + 300 * edges) * n, "Use fewer clients.")
    return n


def _metropolis(name: str, n: int, i: Any, j: Any) -> Network:
    """c_ij = 1 / (1 + max(deg_i, deg_j)) on the pairs (i, j), with a diagonal that makes rows sum to 1."""
    links = sp.coo_array(_adjacency(n, i, j))
    row, col = links.coords
    degree = np.bincount(row, minlength=n)
    weights = sp.csr_array((1.0 / (1.0 + np.maximum(degree[row], degree[col])), (row, col)), shape=(n, n))
    return Network(name, sp.csr_array(weights + sp.diags_array(1.0 - weights.sum(axis=1))))


def _adjacency(n: int, i: Any, j: Any) -> sp.csr_array:
    """The symmetric pattern of the pairs (i, j): each counted once, i = j not at all."""
    i, j = np.asarray(i)[np.not_equal(i, j)], np.asarray(j)[np.not_equal(i, j)]
    ends = (np.concatenate([i, j]), np.concatenate([j, i]))
    return sp.csr_array((np.ones(len(ends[0])), ends), shape=(n, n))


def _random_pairs(n: int, probability: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Each pair i < j independently with `probability`: first how many, then which."""
    first = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])  # the rank of the pair (i, i + 1)
    chosen = rng.choice(first[-1], rng.binomial(first[-1], probability), replace=False, shuffle=False)
    i = np.searchsorted(first, chosen, side="right") - 1
    return i, chosen - first[i] + i + 1
