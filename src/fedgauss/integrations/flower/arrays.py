"""Flower's records of arrays as vectors, and what may be wrong with one; and foreign text, made safe to show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import numpy.lib.format as npformat
import numpy.typing as npt
from flwr.app import Array

from fedgauss._types import FloatArray

_MAGIC = npformat.magic(1, 0)  # 8 bytes; then 2 for the length of the header, then the header, then the numbers
_FIXED = 10
_NUMPY = Array(np.zeros(0)).stype
_HUGE = 1e100  # what a monitor that knows nothing yet refuses, too


Views = Mapping[str, npt.NDArray[Any]]  # arrays by name, on the bytes that came: nothing is copied


def plain(text: str, longest: int = 200) -> str:
    """Text that came from elsewhere as it may stand in a log: without control characters, and cut."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:longest])
    return shown if len(text) <= longest else f"{shown} ..."


def vector(views: Views, like: Iterable[str]) -> FloatArray:
    """All arrays end to end, in the order of `like`: (d,)."""
    return np.concatenate([views[name].ravel() for name in like], dtype=np.float64)


def viewed(arrays: Mapping[str, Array]) -> Views:
    """The server's own arrays."""
    return {name: numbers(array) for name, array in arrays.items()}


def viewed_like(arrays: Mapping[str, Array], like: Views) -> Views:
    """Arrays with the names and shapes of `like`, all numbers; or a ValueError that says what there is instead.

    Shapes are those of the arrays themselves: what a record says of them is only a claim.
    """
    if arrays.keys() != like.keys():
        raise ValueError(f"arrays {plain(str(sorted(arrays)))} in place of {plain(str(sorted(like)))}")
    views = {}
    for name, expected in like.items():
        try:
            views[name] = view = numbers(arrays[name])
        except Exception as error:  # whatever a hostile file makes NumPy's reader raise
            raise ValueError(f"an array {name!r} that cannot be read ({type(error).__name__})") from error
        if view.dtype.kind not in "iufb":
            raise ValueError(f"an array {name!r} of type {plain(str(view.dtype), 40)}")
        if view.shape != expected.shape:
            raise ValueError(f"an array {name!r} of shape {plain(str(view.shape), 40)} in place of {expected.shape}")
        if view.size and not (float(view.min()) >= -_HUGE and float(view.max()) <= _HUGE):  # NaN is neither
            raise ValueError(f"an array {name!r} with numbers that are not finite, or above {_HUGE:.0e}")
    return views


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
    if min(shape, default=0) < 0:
        raise ValueError("A length is negative, which NumPy would take for any.")
    if dtype.hasobject:
        raise ValueError("Arrays of Python objects are not read.")
    return shape, fortran, dtype
