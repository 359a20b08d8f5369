"""Small linear algebra in plain Python, for what decides the next question: all parties get the same bits.

LAPACK does not promise that: its sums are in an order that depends on the machine.
"""

from __future__ import annotations

from math import sqrt

Vector = list[float]
Matrix = list[Vector]


def cholesky(matrix: Matrix) -> Matrix | None:
    """L with L L' = M, its rows without the zeros; None where M is not positive."""
    rows: Matrix = []
    for i, line in enumerate(matrix):
        row: Vector = []
        for j in range(i):
            row.append((line[j] - dot(row[:j], rows[j][:j])) / rows[j][j])
        left = line[i] - dot(row, row)
        if not left > 0.0:
            return None
        rows.append([*row, sqrt(left)])
    return rows


def forward(rows: Matrix, vector: Vector) -> Vector:
    """L^-1 v."""
    found: Vector = []
    for row, value in zip(rows, vector, strict=True):
        found.append((value - dot(row[:-1], found)) / row[-1])
    return found


def backward(rows: Matrix, vector: Vector) -> Vector:
    """L'^-1 v."""
    p = len(rows)
    found = [0.0] * p
    for i in reversed(range(p)):
        found[i] = (vector[i] - dot([rows[k][i] for k in range(i + 1, p)], found[i + 1 :])) / rows[i][i]
    return found


def solve(rows: Matrix, vector: Vector) -> Vector:
    """(L L')^-1 v."""
    return backward(rows, forward(rows, vector))


def transposed(matrix: Matrix) -> Matrix:
    """M'."""
    return [list(column) for column in zip(*matrix, strict=True)]


def dot(left: Vector, right: Vector) -> float:
    """left'right, summed from the first element on."""
    total = 0.0
    for one, other in zip(left, right, strict=True):
        total += one * other
    return total
