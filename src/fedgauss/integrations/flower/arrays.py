"""Flower's records of arrays as vectors, and what may be wrong with one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import numpy.lib.format as npformat
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Message

from fedgauss._types import FloatArray

RECORD = "fedgauss"  # the name under which requests and answers travel, beside the application's own records

_MAGIC = npformat.magic(1, 0)  # 8 bytes; then 2 for the length of the header, then the header, then the numbers
_FIXED = 10
_NUMPY = Array(np.zeros(0)).stype


def vector(arrays: Mapping[str, Array], like: ArrayRecord) -> FloatArray:
    """All arrays end to end, in the order of `like`: (d,)."""
    return np.concatenate([numbers(arrays[name]).astype(np.float64).ravel() for name in like])


def numbers(array: Array) -> npt.NDArray[Any]:
    """The array itself, read-only: `array.numpy()`, where headers that came before are not parsed again.

    Small models spend most of their reading on headers, and in a run these are all alike.
    """
    data = array.data
    head = _FIXED + int.from_bytes(data[8:_FIXED], "little")
    if array.stype != _NUMPY or data[:8] != _MAGIC:
        return array.numpy()  # for its error, or its reading of a newer version
    shape, fortran, dtype = _header(data[:head])
    flat = np.frombuffer(data, dtype, count=math.prod(shape), offset=head)
    return flat.reshape(shape, order="F" if fortran else "C")


@lru_cache(maxsize=64)
def _header(head: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type that a NumPy file of version 1.0 begins with; no Python objects, which would be pickles."""
    shape, fortran, dtype = npformat.read_array_header_1_0(BytesIO(head[8:]))
    if dtype.hasobject:
        raise ValueError("Arrays of Python objects are not read.")
    return shape, fortran, dtype


def mismatch(arrays: Mapping[str, Array], like: ArrayRecord) -> str:
    """How names or shapes differ from those of `like`, in words; empty when they do not.

    Shapes are those of the arrays themselves: what a record says of them is only a claim.
    """
    if set(arrays) != set(like):
        return f"arrays {sorted(arrays)} in place of {sorted(like)}"
    for name, expected in like.items():
        try:
            found = numbers(arrays[name])
        except Exception as error:  # whatever a hostile file makes NumPy's reader raise
            return f"an array {name!r} that cannot be read ({type(error).__name__})"
        if found.dtype.kind not in "iufb":
            return f"an array {name!r} of type {found.dtype}"
        if found.shape != tuple(expected.shape):
            return f"an array {name!r} of shape {found.shape} in place of {tuple(expected.shape)}"
    return ""


def finite(arrays: ArrayRecord) -> bool:
    """Whether every number is."""
    return all(bool(np.all(np.isfinite(numbers(array)))) for array in arrays.values())


def copied(arrays: ArrayRecord) -> ArrayRecord:
    """A record of the same arrays, so that somebody who takes arrays out of one does not empty the other."""
    return ArrayRecord(dict(arrays.items()))


def taken(message: Message) -> ArrayRecord | None:
    """Our own record, taken out of a message before anybody else sees it; None where there is none."""
    found = message.content.pop(RECORD, None)
    return found if isinstance(found, ArrayRecord) else None
