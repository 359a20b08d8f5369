"""Flower's records of arrays as vectors, and what may be wrong with one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, Message

from fedgauss._types import FloatArray

RECORD = "fedgauss"  # the name under which requests and answers travel, beside the application's own records


def vector(arrays: Mapping[str, Array], like: ArrayRecord) -> FloatArray:
    """All arrays end to end, in the order of `like`: (d,)."""
    return np.concatenate([arrays[name].numpy().astype(np.float64).ravel() for name in like])


def mismatch(arrays: Mapping[str, Array], like: ArrayRecord) -> str:
    """How names or shapes differ from those of `like`, in words; empty when they do not.

    Shapes are those of the arrays themselves: what a record says of them is only a claim.
    """
    if set(arrays) != set(like):
        return f"arrays {sorted(arrays)} in place of {sorted(like)}"
    for name, expected in like.items():
        if _same_header(arrays[name], expected):
            continue
        try:
            found = arrays[name].numpy()
        except (TypeError, ValueError, EOFError, OSError) as error:
            return f"an array {name!r} that cannot be read ({type(error).__name__})"
        if found.dtype.kind not in "iufb":
            return f"an array {name!r} of type {found.dtype}"
        if found.shape != tuple(expected.shape):
            return f"an array {name!r} of shape {found.shape} in place of {tuple(expected.shape)}"
    return ""


def _same_header(array: Array, other: Array) -> bool:
    """Whether both are NumPy files with one header and one length, and so of one type and shape: without reading them.

    A file begins with 8 bytes of magic and 2 for the length of what follows: type, order and shape.
    """
    mine, theirs = array.data, other.data
    head = 10 + int.from_bytes(theirs[8:10], "little")
    return array.stype == other.stype and len(mine) == len(theirs) and mine[:head] == theirs[:head]


def finite(arrays: ArrayRecord) -> bool:
    """Whether every number is."""
    return all(bool(np.all(np.isfinite(array.numpy()))) for array in arrays.values())


def copied(arrays: ArrayRecord) -> ArrayRecord:
    """A record of the same arrays, so that somebody who takes arrays out of one does not empty the other."""
    return ArrayRecord(dict(arrays.items()))


def taken(message: Message) -> ArrayRecord | None:
    """Our own record, taken out of a message before anybody else sees it; None where there is none."""
    found = message.content.pop(RECORD, None)
    return found if isinstance(found, ArrayRecord) else None
