"""The numbers of an answer in one row: arrays by name, in a fixed order. Of symmetric matrices half travels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedgauss._types import FloatArray

Shapes = Mapping[str, tuple[int, ...]]


def size(shapes: Shapes) -> int:
    """How many numbers there are."""
    return sum(_length(shape) for shape in shapes.values())


def pack(arrays: Mapping[str, FloatArray], shapes: Shapes) -> FloatArray:
    """One row of all numbers; of a square matrix, which is symmetric, the upper triangle."""
    if arrays.keys() != shapes.keys() or any(np.shape(arrays[name]) != shape for name, shape in shapes.items()):
        raise ValueError(f"an answer must have the arrays {dict(shapes)}; it has others.")
    parts = [np.asarray(arrays[name], dtype=float) for name in shapes]
    return np.concatenate([np.empty(0), *(part[_upper(part.shape)] if _square(part.shape) else part.ravel() for part in parts)])


def unpack(row: FloatArray, shapes: Shapes) -> dict[str, FloatArray]:
    """The arrays that `pack` made a row of."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        part = row[start : start + _length(shape)]
        start += len(part)
        if _square(shape):
            matrix = np.zeros(shape)
            matrix[_upper(shape)] = part
            part = matrix + matrix.T - np.diag(np.diag(matrix))
        arrays[name] = part.reshape(shape)
    return arrays


def _square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1]


def _upper(shape: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    return np.triu_indices(shape[0])


def _length(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[0] + 1) // 2 if _square(shape) else int(np.prod(shape, dtype=int))
