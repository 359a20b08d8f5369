"""How far a client moved, as far as a clip lets it be known."""

import math
from typing import NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import Beside, Bounds, Feature, Known, Moves


class _Tie(NamedTuple):
    """When lengths are taken for a clip's."""

    equal: float  # between their logs
    fewest: int  # clients
    part: float  # of all clients
    above: float  # part of all clients that may lie above


# A clip alone makes lengths equal to some rounding errors of float16. Noise that is added after it makes them vary, as
# `flwr`'s local mod does: then a third must agree within the tolerance, by chance in one round of six where nobody
# clips, and few may lie above.
_TIES = (_Tie(1e-4, 2, 0.2, 0.5), _Tie(Feature.tolerance, 3, 1 / 3, 0.2))


class Length(Feature):
    """log |u_k|.

    Lengths that a clip made equal are bounds, as are differences to a median that was clipped. A clip bounds all: it is
    the length that most clients share, at least two and a fifth of them, if fewer than half lie above it; or nearly
    share, with noise added after it. Who lies above it is beyond the clip, and is compared with what it sent before.
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
        for tie in _TIES:
            clip = _clip(length, kept, tie)[:, None]
            below = np.where(kept, length, np.inf) < clip - tie.equal
            bounded = (2 * below.sum(axis=1) <= count)[:, None]  # the median
            at = np.abs(length - clip) <= tie.equal
            found = np.where(at, np.where(bounded, Known.UNKNOWN, Known.AT_LEAST), np.where(bounded, Known.AT_MOST, 0))
            found = np.where(length > clip + tie.equal, Known.BEYOND, found)
            known = np.where(known.any(axis=1, keepdims=True) | np.isnan(clip), known, found)
        return known.astype(np.int8)


def _clip(length: FloatArray, kept: BoolArray, tie: _Tie) -> FloatArray:
    """Where there is one, (R,); NaN elsewhere."""
    ordered = np.sort(np.where(kept, length, np.inf), axis=1)
    clip = np.full(len(length), np.nan)
    gaps = np.diff(np.where(np.isfinite(ordered), ordered, np.nan), axis=1) <= tie.equal
    for run in np.flatnonzero(gaps.any(axis=1)):
        own = ordered[run, : kept[run].sum()]
        first = np.searchsorted(own, own - tie.equal, side="left")
        last = np.searchsorted(own, own + tie.equal, side="right")
        enough = last - first >= max(tie.fewest, tie.part * len(own))
        possible = enough & (len(own) - last < tie.above * len(own))
        if possible.any():
            shared = np.where(possible, last - first, 0)
            clip[run] = own[np.flatnonzero(shared == shared.max())[-1]]
    return clip
