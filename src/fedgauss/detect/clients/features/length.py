"""How far a client moved, as far as a clip lets it be known."""

import math

import numpy as np

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.features.base import Beside, Bounds, Feature, Known, Moves

_EQUAL = 1e-4  # between logs of lengths that a clip made equal: some rounding errors of float16 sums
_FEWEST, _PART = 2, 0.2  # clients, and part of them, that make equal lengths a clip


class Length(Feature):
    """log |u_k|.

    Lengths that a clip made equal are bounds, as are differences to a median that was clipped. A clip bounds all: it is
    the length that most clients share, at least two and a fifth of them, if fewer than half lie above it. Who lies
    above it is beyond the clip, and is compared with the lengths that it sent.
    """

    name = "length"

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return np.asarray(np.log(beside.size))

    def said(self, change: float) -> str:
        """As a factor."""
        return f"its moves are {math.exp(change):.2g} times as long beside the others'"

    def known(self, moves: Moves, beside: Beside, kept: BoolArray) -> Bounds:
        """Which of the lengths a clip bounds."""
        length = np.log(beside.size)
        known = np.zeros(length.shape, dtype=np.int8)
        count = kept.sum(axis=1)
        clip = _clip(length, kept, count)
        if np.isnan(clip).all():
            return known
        below = np.where(kept, length, np.inf) < clip[:, None] - _EQUAL
        bounded = (2 * below.sum(axis=1) <= count)[:, None]  # the median
        at = np.abs(length - clip[:, None]) <= _EQUAL
        known = np.where(at, np.where(bounded, Known.UNKNOWN, Known.AT_LEAST), np.where(bounded, Known.AT_MOST, 0))
        known = np.where(length > clip[:, None] + _EQUAL, Known.BEYOND, known)
        return np.where(np.isnan(clip)[:, None], 0, known).astype(np.int8)


def _clip(length: FloatArray, kept: BoolArray, count: IntArray) -> FloatArray:
    """Where there is one, (R,); NaN elsewhere."""
    ordered = np.sort(np.where(kept, length, np.inf), axis=1)
    clip = np.full(len(length), np.nan)
    gaps = np.diff(np.where(np.isfinite(ordered), ordered, np.nan), axis=1) <= _EQUAL
    for run in np.flatnonzero(gaps.any(axis=1)):
        own = ordered[run, : count[run]]
        first = np.searchsorted(own, own - _EQUAL, side="left")
        last = np.searchsorted(own, own + _EQUAL, side="right")
        possible = (last - first >= max(_FEWEST, _PART * len(own))) & (2 * (len(own) - last) < len(own))
        if possible.any():
            shared = np.where(possible, last - first, 0)
            clip[run] = own[np.flatnonzero(shared == shared.max())[-1]]
    return clip
