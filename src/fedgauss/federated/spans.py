"""Whether a combination of columns vanishes but on few rows.

Of columns C, shape (n, q), sums of products are told, and with them those of every combination v = C a. One that is zero
but on a few rows S makes them sums over these rows. Rescaled, transformed, combined columns, a row less in a later run
(its columns are padded with zeros): all of them are a case of this one, and this is the one rule.

Let Q be an orthonormal basis of the span and G = QQ'. A unit vector of the span has at most lambda_max(G_SS) of its
squares on S; S is found where that is tau = 1 - ETA or more. Let e be the first eigenvector of G_SS, |S| <= k, and i the
row of its largest entry. Then

    G_ii >= tau e_i^2 >= tau / k,        sum of the k largest |G_ij| over j >= tau.

So no row of leverage G_ii >= tau / k: there is no such S. Else the rows i that pass both are tried in turn. For a set T
of rows already taken, tau I - G_SS is not positive definite if and only if (Schur) the rest of S is such a set for

    G + G_.T (tau I - G_TT)^-1 G_T.

with k - |T| rows, and the same two bounds hold there. Two rows i, j are one when (tau - G_ii)(tau - G_jj) <= G_ij^2.
Up to two rows (few = 3) need no branches.

A search without result that was complete is therefore a certificate: no S of fewer than `few` rows has a combination with
.999 of its squares there. One that ended for its limit of work is none.

Columns that are settled by a count over all sites, and nearly empty at this one, are set aside: nobody sees this
site's sums, and the totals of such a column z rest on enough rows. That is known of z alone. A combination of z and
anything else may vanish at all other sites, and must not be non-zero in few rows here. Let settled columns be multiples
of each other or share no row (`clash`), and let u = d + z, no combination of settled columns alone, be non-zero in fewer
than `few` rows. What is left of u orthogonally to all z is not zero, and is non-zero at most in these rows and in the
supports of settled columns that they meet: in the union of fewer than `few` units, a unit being a row or a whole
support. It is a combination of what is left of the other columns. So these are searched over units, with Frobenius norms
of blocks of G in place of entries; some sets that pass row by row are found too. It takes z as given, and so a second
search is needed of the others alone: that d is z here does not say that it is at other sites.

What remains: settled columns z, z' without a common row here, one of which may have none at all, pass; if they are equal
at all other sites, z - z' tells of their rows. No site can see that. So callers settle levels of the table's own
columns, which an asker cannot make, and count levels before these are merged.

Columns are scaled to length 1 first, and directions of singular values below BLIND are rounding. The search is blind to
a change of a column by less than that part of the column's length.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray

ETA = 1e-3  # share of a combination's squares outside of the rows where it is taken to be non-zero
BLIND = 1e-11  # of a column's length; rounding in columns computed in two ways is below 1e-14
_WORK = 5e10  # multiplications of one search: about ten seconds
_A_NODE = 2e5  # multiplications that take the time of all else at a node
_STRETCH = 2048  # rows
_CHUNK = 4_000_000  # entries of G at a time: 32 MB
_ROUNDING = 1e-9  # of an eigenvalue of G

Units = list[IntArray]


class Search(NamedTuple):
    """The rows that a search found.

    Attributes
    ----------
    rows : ndarray or None
        Rows outside of which some combination of the columns vanishes; with settled columns, whole supports.
    complete : bool
        Whether all was searched: no rows and complete is a certificate, no rows and not complete is none.
    weights : ndarray, shape (q,), or None
        The combination, of columns scaled to length 1.
    """

    rows: IntArray | None
    complete: bool
    weights: FloatArray | None = None


def rows_apart(columns: FloatArray, few: int, settled: FloatArray | None = None) -> Search:
    """Fewer than `few` rows outside of which some combination of columns vanishes.

    Parameters
    ----------
    columns : array, shape (n, q)
    few : int
        At least 2.
    settled : array, shape (n, k), optional
        Columns of disjoint or equal supports that are set aside.

    Returns
    -------
    Search
    """
    scaled = scale(columns)
    rows = starts = np.arange(len(scaled))
    if settled is not None:
        scaled, rows, starts = _set_aside(scaled, settled)
    basis, coefficients = orthonormal(scaled)
    branches = _Branches(basis, starts)
    try:
        units = branches.search((), few - 1)
    except _OutOfWork:
        return Search(None, False)
    if units is None:
        return Search(None, True)
    found = branches.rows_of(branches.least(units))
    direction = np.linalg.eigh(basis[found].T @ basis[found])[1][:, -1]
    touched = rows[found]
    if settled is not None:  # a rotated row stands for its whole support
        for support in supports(settled):
            if np.isin(support, touched).any():
                touched = np.union1d(touched, support)
    return Search(np.sort(touched), True, coefficients @ direction)


def overlap(one: FloatArray, other: FloatArray, aside: FloatArray) -> bool:
    """Whether two spans share a direction beyond the columns that are left aside."""
    aside = orthonormal(scale(aside))[0]
    bases = []
    for columns in (one, other):
        scaled = scale(columns)
        bases.append(orthonormal(scaled - aside @ (aside.T @ scaled))[0])
    cosines = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
    return bool(cosines.max(initial=0.0) ** 2 >= 1.0 - ETA)


def scale(columns: FloatArray) -> FloatArray:
    """Columns of length 1; those of zeros stay."""
    if not np.all(np.isfinite(columns)):
        raise ValueError("columns must be finite numbers; these are not. Drop rows with missing values first.")
    largest = np.abs(columns).max(axis=0, initial=0.0)
    scaled = columns / np.where(largest > 0.0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->j", scaled, scaled))
    scaled /= np.where(length > 0.0, length, 1.0)
    return scaled


def orthonormal(scaled: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A basis Q of the span of columns of length 1 at most, and coefficients A with Q = columns A."""
    _, values, vectors = np.linalg.svd(_triangle(scaled), full_matrices=False)
    large = values > BLIND
    coefficients = vectors[large].T / values[large]
    return scaled @ coefficients, coefficients


def supports(settled: FloatArray) -> Units:
    """The different sets of rows in which settled columns are non-zero."""
    sets = {np.flatnonzero(column).tobytes(): np.flatnonzero(column) for column in settled.T}
    return [rows for rows in sets.values() if len(rows)]


def clash(settled: FloatArray) -> tuple[int, int] | None:
    """Two settled columns that share rows and are no multiples of each other."""
    for j in range(settled.shape[1]):
        for k in range(j):
            one, other = settled[:, j], settled[:, k]
            share = np.flatnonzero((one != 0.0) & (other != 0.0))
            if len(share) and not np.array_equal(one * other[share[0]], other * one[share[0]]):
                return k, j
    return None


class _OutOfWork(Exception):
    """A search that would take too long."""


class _Branches:
    """The search over sets of units, each a range of rows of the basis from its start to the next."""

    def __init__(self, basis: FloatArray, starts: IntArray) -> None:
        self._basis, self._starts = basis, starts
        self._ends = np.append(starts[1:], len(basis))
        self._single = len(starts) == len(basis)
        self._leverages = np.einsum("ij,ij->i", basis, basis)
        self._seen: set[frozenset[int]] = set()
        self._work = 0.0

    def rows_of(self, units: tuple[int, ...]) -> IntArray:
        """The rows of some units, one after the other."""
        ranges = [np.arange(self._starts[unit], self._ends[unit]) for unit in units]
        return np.concatenate([np.zeros(0, dtype=np.int64), *ranges])

    def search(self, taken: tuple[int, ...], k: int) -> tuple[int, ...] | None:
        """Units that contain those taken and k others at most, or None where there are none."""
        rows, tau = self.rows_of(taken), 1.0 - ETA
        beside = self._basis @ self._basis[rows].T
        solved = np.asarray(np.linalg.solve(tau * np.eye(len(rows)) - beside[rows], beside.T), dtype=float)
        leverages = self._leverages + np.einsum("ij,ji->i", beside, solved)
        leverages[rows] = 0.0
        tops = self._by_unit(leverages)
        candidates = np.flatnonzero(tops >= tau / k)
        candidates = candidates[np.argsort(-tops[candidates])]
        for one in candidates[tops[candidates] >= tau].tolist():
            if self._is_apart((*taken, one)):
                return (*taken, one)
        if k == 1 or not len(candidates):
            return None
        for some, squares in self._blocks(candidates, beside, solved, rows):
            if k == 2:
                room = np.maximum(tau - tops, 0.0)
                squares[some, np.arange(len(some))] = -1.0  # a unit is no pair with itself
                for other, j in np.argwhere(squares >= np.outer(room, room[some])).tolist():
                    if self._is_apart((*taken, int(some[j]), other)):
                        return (*taken, int(some[j]), other)
                continue
            most = min(k, len(squares))
            sums = np.sqrt(np.partition(squares, len(squares) - most, axis=0)[-most:]).sum(axis=0)
            for one in some[sums >= tau].tolist():
                more = frozenset((*taken, one))
                if more not in self._seen:
                    self._seen.add(more)
                    found = self.search((*taken, one), k - 1)
                    if found is not None:
                        return found
        return None

    def least(self, units: tuple[int, ...]) -> tuple[int, ...]:
        """Without the units that are not needed."""
        for one in units:
            fewer = tuple(unit for unit in units if unit != one)
            if fewer and self._is_apart(fewer):
                units = fewer
        return units

    def _blocks(
        self, candidates: IntArray, beside: FloatArray, solved: FloatArray, taken: IntArray
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Some candidates at a time, and the squared norms of the blocks of G between all units and these."""
        n, dim = self._basis.shape
        size = max(1, _CHUNK // max(n, 1))
        for start in range(0, len(candidates), size):
            some = candidates[start : start + size]
            rows = self.rows_of(tuple(some.tolist()))
            self._work += n * len(rows) * (dim + 10.0) + _A_NODE
            if self._work > _WORK:
                raise _OutOfWork
            entries = self._basis @ self._basis[rows].T + beside @ solved[:, rows]
            entries[taken] = 0.0
            squares = self._by_unit(np.square(entries, out=entries))
            if not self._single:
                starts = np.cumsum([0, *(self._ends - self._starts)[some[:-1]].tolist()])
                squares = np.add.reduceat(squares, starts, axis=1)
            yield some, squares

    def _by_unit(self, parts: FloatArray) -> FloatArray:
        return parts if self._single else np.add.reduceat(parts, self._starts, axis=0)

    def _is_apart(self, units: tuple[int, ...]) -> bool:
        own = self._basis[self.rows_of(units)]
        return bool(np.linalg.eigvalsh(own @ own.T)[-1] >= 1.0 - ETA - _ROUNDING)


def _triangle(scaled: FloatArray) -> FloatArray:
    """R of a QR decomposition, a stretch of rows after the other: they stay in the processor's cache."""
    stretch = max(_STRETCH, 2 * scaled.shape[1])
    triangle = np.zeros((0, scaled.shape[1]))
    for start in range(0, len(scaled), stretch):
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, scaled[start : start + stretch]]), mode="r"))
    return triangle


def _set_aside(scaled: FloatArray, settled: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """What is left of columns orthogonally to settled ones: rows, the row of the table that each is of, starts of units.

    A reflection takes a settled column to the first row of its support, which goes.
    """
    blocks = supports(settled)
    alone = np.setdiff1d(np.arange(len(scaled)), np.concatenate([np.zeros(0, dtype=np.int64), *blocks]))
    parts, rows, starts = [scaled[alone]], [alone], [np.arange(len(alone))]
    filled = len(alone)
    for block in blocks:
        values = settled[block][:, np.argmax(np.abs(settled[block]).sum(axis=0))]
        mirror = values / np.linalg.norm(values)
        mirror[0] += np.copysign(1.0, mirror[0])
        own = scaled[block]
        turned = own - np.outer(mirror, mirror @ own) * (2.0 / (mirror @ mirror))
        if len(block) > 1:
            parts.append(turned[1:])
            rows.append(block[1:])
            starts.append(np.array([filled]))
            filled += len(block) - 1
    return np.vstack(parts), np.concatenate(rows), np.concatenate(starts)
