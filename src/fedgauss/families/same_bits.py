"""Linear algebra that gives the same bits on every machine, whatever its BLAS: what decides where a fit goes next.

Only sums, products, quotients and square roots of single numbers, each rounded once as IEEE 754 says, in a fixed order:
NumPy's element by element, and `math.fsum`, which rounds a whole sum once. Matrices are symmetric.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.families.rows import NoFiniteEstimate

_FLAT = 1e-11  # of a diagonal element, what must be left of it beside the others
_GRID = 2.0**20
_FEW = 10  # parameters, below which numbers one by one are quicker than rows of them: of 5 they take a third


class Factor(NamedTuple):
    """U with U'U = S A S for a diagonal matrix S of powers of two."""

    upper: FloatArray  # (d, d)
    scale: FloatArray  # (d,), the diagonal of S


def factor(matrix: FloatArray) -> Factor:
    """Cholesky's factor of a positive definite matrix, row after row; refused where A is singular."""
    diagonal = matrix.diagonal()
    if not np.isfinite(matrix).all() or not (diagonal > 0.0).all():
        raise NoFiniteEstimate("the information about a parameter vanishes")
    scale = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))  # exact, and the scaled diagonal is between 1/2 and 2
    upper = matrix * scale[:, None] * scale
    return Factor((_few_rows if 0 < len(upper) < _FEW else _rows)(upper, (_FLAT * upper.diagonal()).tolist()), scale)


def _rows(upper: FloatArray, least: list[float]) -> FloatArray:
    for j, row in enumerate(upper):
        root = _root(row.item(j), least[j])
        row[j:] /= root
        row[:j] = 0.0
        beside = row[j + 1 :]
        upper[j + 1 :, j + 1 :] -= beside[:, None] * beside
    return upper


def _few_rows(upper: FloatArray, least: list[float]) -> FloatArray:
    """The same numbers."""
    rows = upper.tolist()
    for j, row in enumerate(rows):
        root = _root(row[j], least[j])
        rows[j] = row = [0.0] * j + [value / root for value in row[j:]]
        for i in range(j + 1, len(rows)):
            own, below = row[i], rows[i]
            for k in range(i, len(rows)):
                below[k] -= own * row[k]
    return np.array(rows)


def _root(left: float, least: float) -> float:
    """Of what is left of a diagonal element."""
    if not left > least:
        raise NoFiniteEstimate("the information about a combination of parameters vanishes")
    return math.sqrt(left)


def solve(by: Factor, right: FloatArray) -> FloatArray:
    """A^-1 b for a vector or the columns of a matrix, by substitution forwards and backwards."""
    upper, scale = by
    columns = scale.reshape(-1, *[1] * (right.ndim - 1))
    left = right * columns
    if 0 < len(upper) < _FEW:
        rows, each = upper.tolist(), left.reshape(len(upper), -1).T
        each[:] = [_substituted(rows, own) for own in each.tolist()]
        return np.asarray(left * columns)
    upper = upper.reshape(*upper.shape, *[1] * (right.ndim - 1))
    for j, row in enumerate(upper):
        left[j] /= row[j]
        left[j + 1 :] -= row[j + 1 :] * left[j]
    for j in reversed(range(len(left))):
        left[j] /= upper[j, j]
        left[:j] -= upper[:j, j] * left[j]
    return np.asarray(left * columns)


def _substituted(upper: list[list[float]], left: list[float]) -> list[float]:
    """The same numbers for one column."""
    for j, row in enumerate(upper):
        own = left[j] = left[j] / row[j]
        for i in range(j + 1, len(left)):
            left[i] -= row[i] * own
    for j in reversed(range(len(left))):
        own = left[j] = left[j] / upper[j][j]
        for i in range(j):
            left[i] -= upper[i][j] * own
    return left


def inverse(matrix: FloatArray) -> FloatArray:
    """A^-1; refused where A is singular."""
    return solve(factor(matrix), np.eye(len(matrix)))


def times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """A v, column after column."""
    total = np.zeros(len(vector))
    for row, number in zip(matrix, vector, strict=True):
        total = total + row * number
    return total


def dot(left: FloatArray, right: FloatArray) -> float:
    """v'w, rounded once; nan where it overflows."""
    products = [one * other for one, other in zip(left.tolist(), right.tolist(), strict=True)]
    return math.fsum(products) if all(map(math.isfinite, products)) else math.nan


def on_grid(values: FloatArray) -> FloatArray:
    """The nearest multiples of 2^-20: logarithms, whose last bits differ between machines, become the same."""
    return np.rint(values * _GRID) / _GRID
