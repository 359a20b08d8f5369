"""Whether a combination of columns vanishes but on few rows.

Of columns C, shape (n, q), sums of products are told, and with them those of every combination v = C a. One that is
zero but on a few rows S makes them sums over these rows. Rescaled, transformed, combined columns, a row less in a later
run (its columns are padded with zeros): all of them are a case of this one, and this is the one rule.

Let Q be an orthonormal basis of the span and G = QQ'. A unit vector of the span has at most lambda_max(G_SS) of its
squares on S; S is found where that is tau = 1 - ETA or more. Let e be the first eigenvector of G_SS, |S| <= k, and i
the row of its largest entry. Then

    G_ii >= tau e_i^2 >= tau / k,        sum of the k largest |G_ij| over j >= tau.

Where no row has a leverage G_ii of tau / k there is no such S. Else the rows i that pass both are tried in turn. For a
set T of rows already taken, tau I - G_SS is not positive definite if and only if (Schur) the rest of S is one for

    G + G_.T (tau I - G_TT)^-1 G_T.

with k - |T| rows, and the same two bounds hold there. Two rows i, j are one when (tau - G_ii)(tau - G_jj) <= G_ij^2, so
that up to two rows (few = 3) need no branches.

A search without result that was complete is therefore a certificate: no S of fewer than `few` rows has a combination
with 1 - ETA of its squares there. One that ended for its limit of work is none.

Columns are scaled to length 1 first, and combinations C a with |C a| <= BLIND |a| are rounding. So the search is blind
to a change of a column by less than some 3 BLIND of its length: who may add 1e13 to a column hides a row in it. A span
grows by new columns without a look at the old ones: of the combinations with R = (I - QQ') C_new = C B, those with
|R w| <= BLIND |B w| are rounding, which are no more than there would be of all columns at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray, IntArray

ETA = 1e-3  # share of a combination's squares outside of the rows where it is taken to be non-zero
BLIND = 1e-12  # of a column's length; what rounding leaves of exact dependences was 2e-15 to 6e-14 (n to 100,000)
_FAR = 1e-6  # least eigenvalue of the products of columns of length 1 from which leverages are taken
_WORK = 5e10  # multiplications of one search: some three seconds
_A_NODE = 2e5  # multiplications that take the time of all else at a node
_STRETCH = 2048  # rows
_BLOCK = 32  # columns by which a span grows at a time
_CHUNK = 4_000_000  # entries of G at a time: 32 MB
_DENSE = 1.0 / 3.0  # of n
_ROUNDING = 1e-9  # of an eigenvalue of G


class Span(NamedTuple):
    """All combinations of some columns."""

    basis: FloatArray  # (n, r), orthonormal
    weights: FloatArray  # (q, r), of the columns scaled to length 1: the basis is their product


class Search(NamedTuple):
    """The rows that a search found.

    Attributes
    ----------
    rows : ndarray or None
        Rows outside of which some combination of the columns vanishes.
    complete : bool
        Whether all was searched: no rows and complete is a certificate, no rows and not complete is none.
    weights : ndarray, shape (q,), or None
        The combination, of columns scaled to length 1.
    """

    rows: IntArray | None
    complete: bool
    weights: FloatArray | None = None


def rows_apart(columns: FloatArray, few: int) -> Search:
    """Fewer than `few` rows, which is at least 2, outside of which some combination of columns, (n, q), vanishes."""
    return search(span_of(columns), few)


def search(span: Span, few: int, effort: float = 1.0) -> Search:
    """Fewer than `few` rows outside of which some vector of a span vanishes.

    `effort` is the share of the usual work that it may take.
    """
    branches = _Branches(span.basis, effort)
    try:
        rows = branches.search((), few - 1)
    except _OutOfWork:
        return Search(None, False)
    if rows is None:
        return Search(None, True)
    found = branches.least(rows)
    own = span.basis[list(found)]
    return Search(np.sort(found), True, span.weights @ np.linalg.eigh(own.T @ own)[1][:, -1])


def in_reach(span: Span, few: int) -> BoolArray:
    """Which rows a vector of a span picks out with fewer than `few` others, or beside rows that others do; (n,).

    Where a third of the dimensions are the span's, a search would take long: rows of high leverage are taken for them.
    """
    there, basis = np.zeros(len(span.basis), dtype=bool), span.basis
    while basis.shape[1] <= _DENSE * len(basis):
        found = search(Span(basis, np.eye(basis.shape[1])), few)
        if found.complete and found.rows is None:
            return there
        if found.rows is None:
            break
        there[np.flatnonzero(~there)[found.rows]] = True
        basis = span_of(span.basis[~there]).basis
    there[~there] = np.einsum("ij,ij->i", basis, basis) >= (1.0 - ETA) / (few - 1)
    return there


def plainly_enough(columns: FloatArray, few: int) -> bool:
    """Whether it can be shown quickly that no combination of columns vanishes but on fewer than `few` rows.

    The squares of a combination have at most the sum of the leverages of some rows as their share on these. Where
    columns are far from collinear, or exactly collinear, their products are exact enough for leverages and for a
    search, and quicker than a basis.
    """
    scaled = scale(columns)
    values, vectors = np.linalg.eigh(scaled.T @ scaled)
    far = values >= _FAR
    if not far.all() and np.linalg.norm(scaled @ vectors[:, ~far]) > BLIND:
        return False
    basis = scaled @ (vectors[:, far] / np.sqrt(values[far]))
    return _is_plain(basis, few)


def plainly_enough_beside(span: Span, columns: FloatArray, few: int) -> bool:
    """The same of a span and more columns, each of which is in it or far from it, such as residuals."""
    rest = scale(columns)
    rest -= span.basis @ (span.basis.T @ rest)
    more, triangle = np.linalg.qr(rest[:, np.einsum("ij,ij->j", rest, rest) > BLIND**2])
    if np.abs(np.diag(triangle)).min(initial=1.0) < np.sqrt(_FAR):
        return False
    return _is_plain(np.hstack([span.basis, more]), few)


def _is_plain(basis: FloatArray, few: int) -> bool:
    leverages = np.einsum("ij,ij->i", basis, basis)
    if (few - 1) * leverages.max(initial=0.0) < 0.9 * (1.0 - ETA):  # rounding takes some 1e-10
        return True
    try:
        return _Branches(basis).search((), few - 1) is None
    except _OutOfWork:
        return False


def overlap(one: FloatArray, other: FloatArray, aside: FloatArray) -> bool:
    """Whether two spans share a direction beyond the columns that are left aside."""
    without = span_of(aside).basis
    bases = []
    for columns in (one, other):
        scaled = scale(columns)
        bases.append(span_of(scaled - without @ (without.T @ scaled), scaled=True).basis)
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


def span_of(columns: FloatArray, scaled: bool = False) -> Span:
    """The span of columns, (n, q), which are scaled here unless they are."""
    return extend(Span(np.zeros((len(columns), 0)), np.zeros((0, 0))), columns, scaled)


def extend(span: Span, columns: FloatArray, scaled: bool = False) -> Span:
    """The span of more columns, (n, m), and those of before."""
    for start in range(0, columns.shape[1], _BLOCK):
        some = columns[:, start : start + _BLOCK]
        span = _grown(span, some if scaled else scale(some))
    return span


def _grown(span: Span, scaled: FloatArray) -> Span:
    basis, (q, dim), more = span.basis, span.weights.shape, scaled.shape[1]
    along = basis.T @ scaled
    mixing = np.linalg.qr(np.vstack([-span.weights @ along, np.eye(more)]))[0]
    rest = (scaled - basis @ along) @ mixing[q:]  # all columns times `mixing`
    squares, vectors = np.linalg.eigh(rest.T @ rest)
    if squares.min(initial=1.0) >= _FAR:  # far from collinear: products are exact enough, and quicker
        values, vectors = np.sqrt(squares), vectors.T
    else:
        _, values, vectors = np.linalg.svd(_triangle(rest), full_matrices=False)
    large = values > BLIND
    coefficients = vectors[large].T / values[large]
    added = rest @ coefficients  # rounding has grown with 1 / values, which fall: so once more, in their order
    added -= basis @ (basis.T @ added)
    once_more = np.linalg.inv(np.linalg.cholesky(added.T @ added)).T
    weights = np.zeros((q + more, dim + added.shape[1]))
    weights[:q, :dim], weights[:, dim:] = span.weights, mixing @ coefficients @ once_more
    return Span(np.hstack([basis, added @ once_more]), weights)


class _OutOfWork(Exception):
    """A search that would take too long."""


class _Branches:
    """The search over sets of rows."""

    def __init__(self, basis: FloatArray, effort: float = 1.0) -> None:
        self._basis, self._left = basis, effort * _WORK
        self._leverages = np.einsum("ij,ij->i", basis, basis)
        self._seen: set[frozenset[int]] = set()

    def search(self, taken: tuple[int, ...], k: int) -> tuple[int, ...] | None:
        """Rows that contain those taken and k others at most, or None where there are none."""
        rows, tau = list(taken), 1.0 - ETA
        beside = self._basis @ self._basis[rows].T
        solved = np.asarray(np.linalg.solve(tau * np.eye(len(rows)) - beside[rows], beside.T), dtype=float)
        leverages = self._leverages + np.einsum("ij,ji->i", beside, solved)
        leverages[rows] = 0.0
        candidates = np.flatnonzero(leverages >= tau / k)
        candidates = candidates[np.argsort(-leverages[candidates])]
        for one in candidates[leverages[candidates] >= tau].tolist():
            if self._is_apart((*taken, one)):
                return (*taken, one)
        if k == 1 or not len(candidates):
            return None
        for some, entries in self._blocks(candidates, beside, solved, rows):
            if k == 2:
                room = np.sqrt(np.maximum(tau - leverages, 0.0))
                entries[some, np.arange(len(some))] = -1.0  # a row is no pair with itself
                for other, j in np.argwhere(entries >= np.outer(room, room[some])).tolist():
                    if self._is_apart((*taken, int(some[j]), other)):
                        return (*taken, int(some[j]), other)
                continue
            most = min(k, len(entries))
            sums = np.partition(entries, len(entries) - most, axis=0)[-most:].sum(axis=0)
            for one in some[sums >= tau].tolist():
                more = frozenset((*taken, one))
                if more not in self._seen:
                    self._seen.add(more)
                    found = self.search((*taken, one), k - 1)
                    if found is not None:
                        return found
        return None

    def least(self, rows: tuple[int, ...]) -> tuple[int, ...]:
        """Without the rows that are not needed."""
        for one in rows:
            fewer = tuple(row for row in rows if row != one)
            if fewer and self._is_apart(fewer):
                rows = fewer
        return rows

    def _blocks(
        self, candidates: IntArray, beside: FloatArray, solved: FloatArray, taken: list[int]
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Some candidates at a time, and the absolute entries of G between all rows and these."""
        n, dim = self._basis.shape
        size = max(1, _CHUNK // max(n, 1))
        for start in range(0, len(candidates), size):
            some = candidates[start : start + size]
            self._left -= n * len(some) * (dim + 10.0) + _A_NODE
            if self._left < 0.0:
                raise _OutOfWork
            entries = self._basis @ self._basis[some].T + beside @ solved[:, some]
            entries[taken] = 0.0
            yield some, np.abs(entries, out=entries)

    def _is_apart(self, rows: tuple[int, ...]) -> bool:
        own = self._basis[list(rows)]
        return bool(np.linalg.eigvalsh(own @ own.T)[-1] >= 1.0 - ETA - _ROUNDING)


def _triangle(scaled: FloatArray) -> FloatArray:
    """R of a QR decomposition, a stretch of rows after the other: they stay in the processor's cache."""
    stretch = max(_STRETCH, 2 * scaled.shape[1])
    triangle = np.zeros((0, scaled.shape[1]))
    for start in range(0, len(scaled), stretch):
        triangle = np.asarray(np.linalg.qr(np.vstack([triangle, scaled[start : start + stretch]]), mode="r"))
    return triangle
