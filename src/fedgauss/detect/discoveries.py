"""Discoveries among several clients, at a false-discovery rate that holds."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from fedgauss._types import FloatArray

_LEAST_WEIGHT = 0.02  # no client is ruled out before it is tested


def power_weights(effects: FloatArray, rate: float) -> FloatArray:
    """Roeder and Wasserman's weights sf(xi/2 + c/xi), with c such that their mean is one, for foreseen effects xi.

    A client of which nothing is foreseen (NaN) has weight one.
    """
    weights, foreseen = np.ones(len(effects)), np.isfinite(effects)
    if not foreseen.any():
        return weights
    xi = np.clip(effects[foreseen], 0.3, 12.0)

    def unscaled(c: float) -> FloatArray:
        return ndtr(-xi / 2 - c / xi) / rate

    c = brentq(lambda c: unscaled(c).mean() - 1.0, -500.0, 500.0)
    kept = np.maximum(unscaled(c), _LEAST_WEIGHT)
    weights[foreseen] = kept / kept.mean()
    return weights


def q_values(p_values: FloatArray, weights: FloatArray) -> FloatArray:
    """Adjusted p-values of Benjamini and Hochberg's procedure on p_k / weight_k.

    The share of honest clients is Storey's estimate (max weight + total weight of p_k > 1/2) / (K / 2), at most one.
    """
    count = len(p_values)
    honest = (weights.max() + weights @ (p_values > 0.5)) / (count / 2)
    scaled = p_values / weights
    order = np.argsort(scaled)
    adjusted = min(honest, 1.0) * scaled[order] * count / np.arange(1, count + 1)
    result = np.empty(count)
    result[order] = np.minimum(np.minimum.accumulate(adjusted[::-1])[::-1], 1.0)
    return result
