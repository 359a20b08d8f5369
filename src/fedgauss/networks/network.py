"""The mixing matrix C of Algorithm 1, kept sparse and checked against Assumption 2.1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse as sp
from scipy.sparse import csgraph, linalg

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._shown import Shown
from fedgauss._types import BoolArray, FloatArray

DENSE = 300  # up to this many clients a dense eigenvalue solver is quick enough
_TOLERANCE = 1e-6  # rounding allowed in the symmetry and the row sums of C: that of float32


@dataclass(frozen=True, eq=False, repr=False)
class Network(Shown):
    """A mixing matrix C = sparse + uniform * J with J = 11'/K, checked against Assumption 2.1.

    Clients synchronise by Theta <- Theta C. The J part is kept separate, so that K clients who all average with each
    other cost O(K), like a ring, rather than O(K^2).

    Parameters
    ----------
    name : str
        Shown when the network is printed.
    sparse : scipy sparse array of shape (K, K)
        C without its J part.
    uniform : float
        The weight of J, in [0, 1].
    """

    name: str
    sparse: sp.csr_array
    uniform: float = 0.0

    def __post_init__(self) -> None:
        clean = sp.csr_array(self.sparse, dtype=float, copy=True)
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
        k = self.n_clients
        check_memory(f"the matrix of {k:,} x {k:,} clients", 16 * k * k, "Use `sparse` and `uniform`, its two parts.")
        dense = self.sparse.toarray() + self.uniform / self.n_clients
        dense.setflags(write=False)
        return dense

    @cached_property
    def second_eigenvalue(self) -> float:
        """max(|lambda_2|, |lambda_K|): each mixing shrinks disagreement by at least this factor.

        It is the norm of C - J, and equals the paper's rho = lambda_2 unless lambda_K < -lambda_2.
        """
        if self.n_clients == 1:
            return 0.0
        if self.n_clients <= DENSE:
            return float(np.abs(np.linalg.eigvalsh(self.matrix - 1.0 / self.n_clients)).max())
        return norm_off_mean(self.sparse)

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

    def among(self, present: BoolArray) -> FloatArray:
        """C when only some clients are present, as with `simulate(..., participation=...)`.

        The J part is a server: it averages those present, and everybody receives the mean, so that absent clients begin
        their next round where the others do. Other weights are links between two clients. A link to an absent client is
        down, and its weight stays with the client at the other end.

        Parameters
        ----------
        present : array of K booleans
            Who takes part, one client at least.

        Returns
        -------
        array of shape (K, K)
            Column k has the weights with which client k averages the others.
        """
        here = np.asarray(present, dtype=bool)
        links = self.sparse.toarray() * (here[:, None] & here)
        own = 1.0 - self.uniform - links.sum(axis=0)
        return links + np.diag(own) + self.uniform * here[:, None] / here.sum()

    def repeated(self, times: int) -> Network:
        """The network that mixes several times at every synchronisation, C^times.

        Parameters
        ----------
        times : int
            More mixing costs more messages and brings clients closer to each other.

        Returns
        -------
        Network
        """
        count = _checks.whole("times", times)
        sparse = sp.csr_array(self.sparse)
        degree = int(np.diff(sparse.indptr).max())
        for _ in range(count - 1):
            entries = min(sparse.nnz * degree, self.n_clients**2)
            check_memory(f"{self.name}^{count}", 16 * entries, "Mix fewer times.")
            sparse = sp.csr_array(sparse @ self.sparse)
        # (S + u J)^m = S^m + (1 - (1 - u)^m) J, for the rows and columns of S sum to 1 - u.
        return Network(f"{self.name}^{count}", sparse, 1.0 - (1.0 - self.uniform) ** count)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self.n_clients} clients>"  # eigenvalues may take long

    def __str__(self) -> str:
        gap = self.spectral_gap
        rho = f"1 - {gap:.2g}" if gap < 1e-3 else f"{self.second_eigenvalue:.4g}"
        return f"Network {self.name}: {self.n_clients} clients, {self.edges} edges, second eigenvalue {rho}"


def norm_off_mean(matrix: sp.csr_array) -> float:
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
        operator = linalg.LinearOperator((n, n), matvec=off_mean, dtype=float)
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
    """A checked matrix made symmetric and stochastic to float64 precision by correcting its diagonal."""
    missing = 1.0 - uniform - mixing.sum(axis=1)
    if np.abs(missing).max() < 1e-12 and abs(mixing - mixing.T).max() == 0.0:
        return mixing
    even = (mixing + mixing.T) / 2
    return sp.csr_array(even + sp.diags_array(1.0 - uniform - even.sum(axis=1)))
