"""The numbers of an answer in one row: arrays by name, in a fixed order. Of symmetric matrices half travels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from fedgauss._types import FloatArray, IntArray

Shapes = Mapping[str, tuple[int, ...]]


def size(shapes: Shapes) -> int:
    """How many numbers there are."""
    return sum(_length(shape) for shape in shapes.values())


def pack(arrays: Mapping[str, FloatArray], shapes: Shapes) -> FloatArray:
    """One row of all numbers; of a square matrix, which is symmetric, the upper triangle."""
    if arrays.keys() != shapes.keys() or any(np.shape(arrays[name]) != shape for name, shape in shapes.items()):
        raise ValueError(f"an answer must have the arrays {shapes}; it has others.")
    parts = [np.asarray(arrays[name], dtype=float) for name in shapes]
    rows = [part[_upper(len(part))] if _square(part.shape) else part.ravel() for part in parts]
    return np.concatenate([np.empty(0), *rows])


def unpack(row: FloatArray, shapes: Shapes) -> dict[str, FloatArray]:
    """The arrays that `pack` made a row of."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        part = row[start : start + _length(shape)]
        start += len(part)
        if _square(shape):
            matrix = np.empty(shape)
            matrix[_upper(shape[0])] = matrix.T[_upper(shape[0])] = part
            part = matrix
        arrays[name] = part.reshape(shape)
    return arrays


def _square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1]


@lru_cache
def _upper(dim: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(dim)


def _length(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[0] + 1) // 2 if _square(shape) else math.prod(shape)
