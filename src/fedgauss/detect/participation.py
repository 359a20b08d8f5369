"""Who took part in a round, as weights."""

from __future__ import annotations

import numpy as np

from fedgauss._types import ArrayLike, BoolArray, FloatArray


def participant_weights(present: BoolArray, weights: FloatArray) -> FloatArray:
    """w_k / sum of w over those who took part, and zero for the others."""
    if weights[present].sum() <= 0.0:
        raise ValueError("participants must have weight; got clients of weight zero only. Leave the round out?")
    return np.where(present, weights, 0.0) / weights[present].sum()


def participant_mask(participants: ArrayLike, count: int) -> BoolArray:
    """Who took part, (K,) booleans, from indices or booleans."""
    given = np.asarray(participants)
    if given.dtype == np.bool_:
        if given.shape != (count,):
            raise ValueError(f"participants as booleans must be {count}, one a client; got shape {given.shape}.")
        mask = given
    else:
        if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer) or not given.size:
            raise ValueError(f"participants must be client indices or {count} booleans; got {participants!r}.")
        if given.min() < 0 or given.max() >= count:
            raise ValueError(f"participants must lie in 0..{count - 1}; got {given.tolist()}. Clients count from 0.")
        mask = np.zeros(count, dtype=np.bool_)
        mask[given] = True
        if mask.sum() != given.size:
            raise ValueError(f"participants must be named once each; got {given.tolist()}.")
    if not mask.any():
        raise ValueError("participants must be at least one client; got none. Leave the round out: pass the next step.")
    return mask
