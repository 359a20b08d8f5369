"""A round as rows of features, each less its median over the clients that count."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import LEAST_SIZE, Beside, Bounds, Feature, Moves

_NOTHING = 1e-150  # the length of a client in a round in which nobody moves: its square is a number, too


class Rows(NamedTuple):
    """What is compared."""

    rows: FloatArray  # less the clients' median; NaN where something is not known  (R, P, F)
    known: Bounds  # what they say of the numbers that they stand for  (R, P, F)
    tolerances: FloatArray  # of each feature, in this round  (R, F)
    size: FloatArray  # the median of log |u_k|, which all clients share  (R,)


def rows_of(moves: Moves, kept: BoolArray, features: tuple[Feature, ...]) -> Rows:
    """The features of every client, less their medians.

    Lengths and angles of all clients change together as a model learns or its rate falls; what is left after the median
    moves little.

    Parameters
    ----------
    moves : Moves
        At least three clients must be kept.
    kept : (R, P) bool
        Clients that count. The others are compared with them, and are nobody's neighbour.
    features : tuple of Feature
    """
    beside = beside_others(moves, kept)
    rows = np.stack([feature.values(moves, beside) for feature in features], axis=-1)
    nothing = np.zeros(len(rows))
    medians = [_median(rows[..., i], kept) if feature.centred else nothing for i, feature in enumerate(features)]
    centre = np.stack(medians, axis=-1)
    known = np.stack([feature.known(moves, beside, kept) for feature in features], axis=-1)
    each = zip(features, np.moveaxis(centre, -1, 0), strict=True)
    tolerances = np.stack([feature.tolerated(median) for feature, median in each], axis=-1)
    return Rows(rows - centre[:, None], known, tolerances, _median(np.log(beside.size), kept))


def beside_others(moves: Moves, kept: BoolArray) -> Beside:
    """Lengths, and cosines to the clients that count."""
    present = moves.who.shape[1]
    size = np.sqrt(np.maximum(np.diagonal(moves.products, axis1=1, axis2=2), 0.0))
    median_size = _median(size, kept)[:, None]
    size = np.maximum(size, np.maximum(LEAST_SIZE * median_size, _NOTHING))
    cosines = np.clip(moves.products / (size[:, :, None] * size[:, None, :]), -1.0, 1.0)
    others = kept[:, None, :] & ~np.eye(present, dtype=np.bool_)
    return Beside(size, np.sort(np.where(others, cosines, np.inf), axis=-1), others.sum(axis=-1))


def _median(values: FloatArray, kept: BoolArray) -> FloatArray:
    """Over the clients that are kept and have a number, (R,); NaN without any."""
    usable = kept & np.isfinite(values)
    ordered = np.sort(np.where(usable, values, np.inf), axis=-1)
    count = np.maximum(usable.sum(axis=-1), 1)
    runs = np.arange(len(values))
    middle = 0.5 * (ordered[runs, (count - 1) // 2] + ordered[runs, count // 2])
    return np.where(usable.any(axis=-1), middle, np.nan)
