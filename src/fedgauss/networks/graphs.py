"""Who averages with whom: the mixing matrix C of Algorithm 1, kept sparse."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse import csgraph, linalg

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray

if TYPE_CHECKING:
    import networkx as nx

_DENSE = 300  # up to this many clients a dense eigenvalue solver is quick enough
_TOLERANCE = 1e-6  # rounding allowed in the symmetry and the row sums of C: that of float32
_DRAWS = 100  # random graphs drawn before giving up on a connected one


@dataclass(frozen=True, eq=False)
class Network:
    """A mixing matrix C = sparse + uniform * J with J = 11'/K, checked against Assumption 2.1.

    Clients synchronise by Theta <- Theta C. Keeping the J part apart lets K clients who all average
    with each other cost O(K), like a ring, and not O(K^2).
    """

    name: str
    sparse: sp.csr_array
    uniform: float = 0.0

    def __post_init__(self) -> None:
        clean = sp.csr_array(self.sparse, dtype=np.float64, copy=True)
        clean.sum_duplicates()
        clean.eliminate_zeros()
        _check(clean, self.uniform)
        object.__setattr__(self, "sparse", _without_rounding(clean, self.uniform))

    @property
    def n_clients(self) -> int:
        """K."""
        return self.sparse.shape[0]

    @cached_property
    def matrix(self) -> FloatArray:
        """C as a dense, read-only (K, K) array."""
        dense = self.sparse.toarray() + self.uniform / self.n_clients
        dense.setflags(write=False)
        return dense

    @cached_property
    def second_eigenvalue(self) -> float:
        """max(|lambda_2|, |lambda_K|): each mixing shrinks disagreement at least by this factor.

        It is the norm of C - J, and equals the paper's rho = lambda_2 unless lambda_K < -lambda_2.
        """
        if self.n_clients == 1:
            return 0.0
        if self.n_clients <= _DENSE:
            return float(np.abs(np.linalg.eigvalsh(self.matrix - 1.0 / self.n_clients)).max())
        return _norm_off_mean(self.sparse)

    @property
    def spectral_gap(self) -> float:
        """1 - second_eigenvalue."""
        return 1.0 - self.second_eigenvalue

    @property
    def edges(self) -> int:
        """The number of pairs i < j with c_ij > 0."""
        if self.uniform > 0:
            return self.n_clients * (self.n_clients - 1) // 2
        return int(self.sparse.nnz - self.n_clients) // 2  # less the diagonal, which is positive

    def __str__(self) -> str:
        gap = self.spectral_gap
        rho = f"1 - {gap:.2g}" if gap < 1e-3 else f"{self.second_eigenvalue:.4g}"
        return f"Network {self.name}: {self.n_clients} clients, {self.edges} edges, second eigenvalue {rho}"


@dataclass(frozen=True, eq=False)
class TamperedNetwork(Network):
    """An honest network with a man in the middle on one edge: see `man_in_the_middle`.

    C is that of the honest network, and so is everything that is computed from it. Only a run feels the forger.
    """

    honest: Network = field(kw_only=True)
    source: int = field(kw_only=True)
    target: int = field(kw_only=True)
    start: int = field(kw_only=True)
    factor: float = field(kw_only=True)
    shift: FloatArray = field(kw_only=True)  # () or (d,)

    def __post_init__(self) -> None:
        """C has been checked with the honest network."""

    @property
    def weight(self) -> float:
        """C_{source, target}: how much of the target's mean the message is."""
        return _weight(self.honest, self.source, self.target)

    def __str__(self) -> str:
        return f"{self.honest}; messages from {self.source} to {self.target} are forged from step {self.start} on"


def ring(n_clients: int) -> Network:
    """Clients in a circle: c_ij = 1/3 for a client and its two neighbours (K >= 3)."""
    k = np.arange(_checks.whole("n_clients", n_clients))
    return _metropolis("ring", len(k), k, np.roll(k, -1))


def path(n_clients: int) -> Network:
    """Clients in a line, with Metropolis weights: a ring that does not close."""
    k = np.arange(_checks.whole("n_clients", n_clients))
    return _metropolis("path", len(k), k[:-1], k[1:])


def star(n_clients: int) -> Network:
    """Client 0 in the middle, with Metropolis weights: c_0k = 1/K."""
    k = np.arange(_checks.whole("n_clients", n_clients))
    return _metropolis("star", len(k), np.zeros_like(k), k)


def torus(rows: int, cols: int) -> Network:
    """A rows x cols grid whose sides wrap around, with Metropolis weights; client (r, c) is r * cols + c."""
    rows, cols = _checks.whole("rows", rows), _checks.whole("cols", cols)
    k = np.arange(rows * cols).reshape(rows, cols)
    neighbours = np.concatenate([np.roll(k, -1, axis=0).ravel(), np.roll(k, -1, axis=1).ravel()])
    return _metropolis(f"torus({rows}, {cols})", rows * cols, np.tile(k.ravel(), 2), neighbours)


def complete(n_clients: int) -> Network:
    """Everybody averages with everybody: C = J, the moderator of centralised federated learning."""
    k = _checks.whole("n_clients", n_clients)
    return Network("complete", sp.csr_array((k, k)), uniform=1.0)


def lazy(n_clients: int, rho: float) -> Network:
    """C = rho I + (1 - rho) J, whose second eigenvalue is rho, in [0, 1)."""
    k = _checks.whole("n_clients", n_clients)
    rho = _checks.real("rho", rho)
    if not 0 <= rho < 1:
        raise ValueError(
            f"rho must lie in [0, 1) (Assumption 2.1: lambda_2 < 1); got {rho:g}. Use 0 for plain averaging."
        )
    return Network(f"lazy({rho:g})", rho * sp.eye_array(k, format="csr"), uniform=1.0 - rho)


def erdos_renyi(n_clients: int, probability: float, seed: int) -> Network:
    """A random graph, redrawn until it is connected: each pair is linked with `probability`, on its own."""
    n = _checks.whole("n_clients", n_clients)
    probability = _checks.real("probability", probability, above=0.0)
    if probability > 1:
        raise ValueError(f"probability must be at most 1; got {probability:g}. Use networks.complete({n})?")
    seed = _checks.whole("seed", seed, at_least=0)
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

    Client k is the k-th of `graph.nodes`. Self loops and edge weights are ignored.
    """
    import networkx as nx

    if graph.is_directed():
        raise ValueError(
            "graph must be undirected (Assumption 2.1: C is symmetric); got a directed graph. "
            "Use graph.to_undirected()?"
        )
    if graph.is_multigraph():
        raise ValueError("graph must have at most one edge a pair; got a multigraph. Use networkx.Graph(graph)?")
    if len(graph) == 0:
        raise ValueError("graph must have at least one client; got 0 nodes. Use networks.ring(n_clients)?")
    pairs = sp.coo_array(nx.to_scipy_sparse_array(graph, weight=None))
    return _metropolis(graph.name or "graph", len(graph), *pairs.coords)


def from_matrix(mixing: ArrayLike | sp.sparray | sp.spmatrix) -> Network:
    """A network from its mixing matrix C (K, K), dense or scipy sparse; C must satisfy Assumption 2.1."""
    if not sp.issparse(mixing):
        mixing = _checks.real_array("mixing", mixing, shape=(None, None), fix="Give a K x K matrix.")
    return Network("matrix", mixing)


def man_in_the_middle(
    network: Network, source: int, target: int, start: int, factor: float = 1.0, shift: float | ArrayLike = 0.0
) -> TamperedNetwork:
    """`network` with one edge tampered with: `target` receives factor * theta_source + shift in place of theta_source.

        theta_target <- sum_k C_{k, target} theta_k + C_{source, target} ((factor - 1) theta_source + shift)

    source, target  two clients that average; messages the other way, and the source's own iterate, stay honest
    start           the first step at whose synchronisation messages are forged
    factor, shift   a number; a number for every coordinate, or one for each (d,)
    Clients and their data stay honest, so theory and monitors are those of `network`. For several edges apply it again
    to what it returns.
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"network must be made by fedgauss.networks; got {type(network).__name__}. Use networks.from_matrix(...)?"
        )
    source, target = _edge(network, source, target)
    start = _checks.step_number("start", start)
    factor, shift = _checks.real("factor", factor), _checks.real_array("shift", shift)
    if shift.ndim > 1:
        raise ValueError(f"shift must be a number or a vector, one entry a parameter; got shape {shift.shape}.")
    return TamperedNetwork(
        network.name, network.sparse, network.uniform,
        honest=network, source=source, target=target, start=start, factor=factor, shift=shift,
    )  # fmt: skip


def as_network(value: Any, n_clients: int) -> Network:
    """`value`, a `Network`, a matrix or a networkx graph, as a network of `n_clients`; None if that is 1."""
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


def _edge(network: Network, source: Any, target: Any) -> tuple[int, int]:
    """Two clients that average with each other, and whose messages nobody else forges."""
    last = network.n_clients - 1
    fix = f"Clients are numbered 0 to {last}."
    source, target = (
        _checks.whole(name, k, at_least=0, at_most=last, fix=fix)
        for name, k in (("source", source), ("target", target))
    )
    if source == target:
        raise ValueError(
            f"source and target must be two clients, since no message goes from {source} to itself; got {source} "
            "twice. Use an attack of fedgauss.problems for a client that is malicious itself?"
        )
    if _weight(network, source, target) == 0.0:
        near = np.setdiff1d(network.sparse[[source], :].tocoo().coords[1], [source])
        listed = ", ".join(str(k) for k in near[:10]) + (", ..." if len(near) > 10 else "")
        raise ValueError(
            f"source and target must average with each other; clients {source} and {target} do not. "
            f"Client {source} averages with {listed}."
        )
    known: Network | None = network
    while isinstance(known, TamperedNetwork):
        if (known.source, known.target) == (source, target):
            raise ValueError(
                f"an edge must have one man in the middle; messages from {source} to {target} are forged already, from "
                f"step {known.start} on. Apply man_in_the_middle to the network without that."
            )
        known = known.honest
    return source, target


def _weight(network: Network, source: int, target: int) -> float:
    return float(network.sparse[source, target]) + network.uniform / network.n_clients


def _metropolis(name: str, n: int, i: Any, j: Any) -> Network:
    """c_ij = 1 / (1 + max(deg_i, deg_j)) on the pairs (i, j), and what is missing from 1 on the diagonal."""
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
    """Each pair i < j with `probability`, on its own: first how many, then which."""
    first = np.concatenate([[0], np.cumsum(np.arange(n - 1, 0, -1))])  # the rank of the pair (i, i + 1)
    chosen = rng.choice(first[-1], rng.binomial(first[-1], probability), replace=False, shuffle=False)
    i = np.searchsorted(first, chosen, side="right") - 1
    return i, chosen - first[i] + i + 1


def _norm_off_mean(matrix: sp.csr_array) -> float:
    """The largest |eigenvalue| of a large symmetric matrix on the complement of the 1-vector.

    Lanczos iteration is quick on well-connected graphs, which are costly to factorise. It stalls on
    large rings and grids, whose leading eigenvalues crowd near 1; they are cheap to factorise, and
    then 1 / (s^2 - lambda^2) = eigenvalue of (sI - C)^-1 (sI + C)^-1, s just above 1, spreads them out.
    """
    n = matrix.shape[0]
    start = np.random.default_rng(0).standard_normal(n)

    def largest(apply: Any, restarts: int) -> float:
        def off_mean(x: FloatArray) -> FloatArray:
            y = apply(x - x.mean())
            return y - y.mean()

        if np.linalg.norm(off_mean(start)) < 1e-14 * np.sqrt(n):  # C = J, where Lanczos cannot start
            return 0.0
        operator = linalg.LinearOperator((n, n), matvec=off_mean, dtype=np.float64)
        found = linalg.eigsh(operator, k=1, v0=start, maxiter=restarts, return_eigenvectors=False)
        return abs(float(found[0]))

    try:
        return largest(lambda x: matrix @ x, restarts=100)
    except linalg.ArpackNoConvergence:
        s = 1.0 + 1e-9
        eye = sp.eye_array(n)
        minus = linalg.splu(sp.csc_array(s * eye - matrix))
        plus = linalg.splu(sp.csc_array(s * eye + matrix))
        return float(np.sqrt(s**2 - 1.0 / largest(lambda x: minus.solve(plus.solve(x)), restarts=1000)))


def _check(matrix: sp.csr_array, uniform: float) -> None:
    """Assumption 2.1 and Section 2.1.1 for C = matrix + uniform * J."""
    n, columns = matrix.shape
    if n != columns or n == 0:
        raise ValueError(
            f"mixing must be square, K x K (Assumption 2.1); got {n} x {columns}. Use networks.ring(n_clients)?"
        )
    if not np.all(np.isfinite(matrix.data)):
        i, j = _entry(matrix, ~np.isfinite(matrix.data))
        raise ValueError(
            f"mixing must be finite (Assumption 2.1); entry ({i}, {j}) is {matrix[i, j]}. "
            "Use 0 where clients do not average."
        )
    if not 0 <= uniform <= 1:
        raise ValueError(f"uniform must lie in [0, 1] (Assumption 2.1); got {uniform:g}. Use 0 for no J part.")
    if np.any(matrix.data < 0):
        i, j = _entry(matrix, matrix.data < 0)
        raise ValueError(
            f"mixing entries must be nonnegative (Assumption 2.1); entry ({i}, {j}) is {matrix[i, j]:.3g}. "
            "Use networks.from_graph(graph) for Metropolis weights?"
        )
    skew = sp.coo_array(abs(matrix - matrix.T))
    if skew.nnz and skew.data.max() > _TOLERANCE:
        i, j = (int(index[skew.data.argmax()]) for index in skew.coords)
        raise ValueError(
            f"mixing must be symmetric (Assumption 2.1); entry ({i}, {j}) is {matrix[i, j]:.3g} but "
            f"({j}, {i}) is {matrix[j, i]:.3g}. Use networks.from_graph(graph) for Metropolis weights?"
        )
    sums = matrix.sum(axis=1) + uniform
    if np.any(np.abs(sums - 1.0) > _TOLERANCE):
        i = int(np.argmax(np.abs(sums - 1.0) > _TOLERANCE))
        digits = 3 if abs(sums[i] - 1.0) > 0.01 else 10
        raise ValueError(
            f"mixing rows must sum to 1 (Assumption 2.1); row {i} sums to {sums[i]:.{digits}g}. "
            "Use networks.ring(n_clients)?"
        )
    diagonal = matrix.diagonal() + uniform / n
    if np.any(diagonal <= 0):
        i = int(np.argmin(diagonal))
        raise ValueError(
            f"mixing must have a positive diagonal (Section 2.1.1, beside Assumption 2.1); entry ({i}, {i}) "
            f"is {diagonal[i]:.3g}. Use (C + I) / 2?"
        )
    components, label = csgraph.connected_components(matrix, directed=False)
    if components > 1 and uniform == 0:
        members = np.flatnonzero(label == label[0])
        listed = ", ".join(str(k) for k in members[:10]) + (", ..." if len(members) > 10 else "")
        raise ValueError(
            f"mixing must connect all clients (Assumption 2.1: lambda_2 < 1); it has {components} "
            f"components, the first of clients {listed}. Link the components, or use networks.ring({n})?"
        )


def _entry(matrix: sp.csr_array, where: Any) -> tuple[int, int]:
    """Row and column of the first stored entry where a mask holds."""
    row, col = sp.coo_array(matrix).coords
    first = int(np.argmax(where))
    return int(row[first]), int(col[first])


def _without_rounding(mixing: sp.csr_array, uniform: float) -> sp.csr_array:
    """A checked matrix made symmetric and stochastic to float64 precision, with what is missing on the diagonal."""
    missing = 1.0 - uniform - mixing.sum(axis=1)
    if np.abs(missing).max() < 1e-12 and abs(mixing - mixing.T).max() == 0.0:
        return mixing
    even = (mixing + mixing.T) / 2
    return sp.csr_array(even + sp.diags_array(1.0 - uniform - even.sum(axis=1)))
