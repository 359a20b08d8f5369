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
    diagonal = np.diag(matrix)
    if not np.all(np.isfinite(matrix)) or np.any(diagonal <= 0.0):
        raise NoFiniteEstimate("the information about a parameter vanishes")
    scale = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))  # exact, and the scaled diagonal is between 1/2 and 2
    rest = matrix * scale[:, None] * scale
    least = _FLAT * np.diag(rest)
    upper = np.zeros_like(rest)
    for j in range(len(rest)):
        if not rest[j, j] > least[j]:
            raise NoFiniteEstimate("the information about a combination of parameters vanishes")
        row = rest[j, j:] / np.sqrt(rest[j, j])
        upper[j, j:] = row
        rest[j + 1 :, j + 1 :] -= np.multiply.outer(row[1:], row[1:])
    return Factor(upper, scale)


def solve(by: Factor, right: FloatArray) -> FloatArray:
    """A^-1 b for a vector or the columns of a matrix, by substitution forwards and backwards."""
    upper, scale = by
    columns = scale.reshape(-1, *[1] * (right.ndim - 1))
    left = right * columns
    for j in range(len(left)):
        left[j] /= upper[j, j]
        left[j + 1 :] -= np.multiply.outer(upper[j, j + 1 :], left[j])
    for j in reversed(range(len(left))):
        left[j] /= upper[j, j]
        left[:j] -= np.multiply.outer(upper[:j, j], left[j])
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
    return math.fsum(products.tolist()) if np.all(np.isfinite(products)) else math.nan


def on_grid(values: FloatArray) -> FloatArray:
    """The nearest multiples of 2^-20: logarithms, whose last bits differ between machines, become the same."""
    return np.rint(values * _GRID) / _GRID
