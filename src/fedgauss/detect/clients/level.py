"""From clients' p-values to an alarm of the run, and how much of alpha each round may spend on it."""

import numpy as np
from scipy.special import binom

from fedgauss._types import FloatArray

_BEFORE = 10.0  # rounds that the series without a horizon begins behind
_FIRST = 0.5  # of a round's share, for the most surprising client alone; the rest is for several at once


def spent(alpha: float, horizon: int | None, round: int) -> float:
    """The chance of a false alarm that round `round` may take: alpha in all, over the horizon or for ever.

    With a horizon N it is alpha / N. Without one it is alpha log(b) / ((t + b) log(t + b)^2) with b = 10, whose sum
    over t = 1, 2, ... is below alpha: it is that of a falling function whose integral from b on is 1 / log(b).
    """
    if horizon is not None:
        return alpha / horizon if round <= horizon else 0.0
    at = round + _BEFORE
    return float(alpha * np.log(_BEFORE) / (at * np.log(at) ** 2))


def together(p: FloatArray) -> FloatArray:
    """The chance that any of the clients, or several at once, stand out like this among honest ones, (R,).

    With p_(1) <= p_(2) <= ... of K clients, at least j of them are below x with probability at most binom(K, j) x^j if
    clients are independent given what they share. For what is left of dependence the power is (j + 1) / 2 only. Half
    of a round's share is for j = 1, which needs no independence; the rest for j = 2, ..., K / 2, evenly.

    Parameters
    ----------
    p : (R, P) array
        NaN for clients that could not be judged.
    """
    count = np.isfinite(p).sum(axis=1)
    ordered = np.sort(np.where(np.isfinite(p), p, 1.0), axis=1)
    smallest = count * ordered[:, 0] / _FIRST
    most = np.maximum(count // 2, 2)
    for j in range(2, p.shape[1] // 2 + 1):
        several = binom(count, j) * ordered[:, j - 1] ** ((j + 1) / 2) * (most - 1) / (1.0 - _FIRST)
        smallest = np.minimum(smallest, np.where(j <= count // 2, several, 1.0))
    return np.where(count > 0, np.minimum(smallest, 1.0), 1.0)
