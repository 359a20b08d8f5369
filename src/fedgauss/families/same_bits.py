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


class Factor(NamedTuple):
    """U with U'U = S A S for a diagonal matrix S of powers of two."""

    upper: FloatArray  # (d, d)
    scale: FloatArray  # (d,), the diagonal of S


def factor(matrix: FloatArray) -> Factor:
    """Cholesky's factor of a positive definite matrix, row after row; refused where A is singular."""
    diagonal = matrix.diagonal()
    if not np.isfinite(matrix).all() or (diagonal <= 0.0).any():
        raise NoFiniteEstimate("the information about a parameter vanishes")
    scale = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))  # exact, and the scaled diagonal is between 1/2 and 2
    upper = matrix * scale[:, None] * scale
    least = (_FLAT * upper.diagonal()).tolist()
    for j, row in enumerate(upper):
        left = row.item(j)
        if not left > least[j]:
            raise NoFiniteEstimate("the information about a combination of parameters vanishes")
        row[j:] /= math.sqrt(left)
        row[:j] = 0.0
        beside = row[j + 1 :]
        upper[j + 1 :, j + 1 :] -= beside[:, None] * beside
    return Factor(upper, scale)


def solve(by: Factor, right: FloatArray) -> FloatArray:
    """A^-1 b for a vector or the columns of a matrix, by substitution forwards and backwards."""
    upper, scale = by
    columns = scale.reshape(-1, *[1] * (right.ndim - 1))
    left = right * columns
    upper = upper.reshape(*upper.shape, *[1] * (right.ndim - 1))
    for j, row in enumerate(upper):
        left[j] /= row[j]
        left[j + 1 :] -= row[j + 1 :] * left[j]
    for j in reversed(range(len(left))):
        left[j] /= upper[j, j]
        left[:j] -= upper[:j, j] * left[j]
    return np.asarray(left * columns)


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
    with np.errstate(over="ignore", invalid="ignore"):
        products = left * right
    return math.fsum(products.tolist()) if np.isfinite(products).all() else math.nan


def on_grid(values: FloatArray) -> FloatArray:
    """The nearest multiples of 2^-20: logarithms, whose last bits differ between machines, become the same."""
    return np.rint(values * _GRID) / _GRID
