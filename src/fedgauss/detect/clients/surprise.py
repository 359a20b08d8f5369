"""How surprising a client's last rounds are, given its own past and the other clients."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, fdtri

from fedgauss._types import FloatArray
from fedgauss.detect.clients.features import N_FEATURES

WINDOWS = (1, 2, 3, 5, 8)  # rounds that are compared with those before them
MEMORY = 30  # rounds before a window that it is compared with
LEAST_PAST = 8  # of them, to be judged at all
_BORROWED = 8  # rounds' worth of the other clients' covariance in each client's own
# Of the degrees of freedom that independent Gaussian rounds would give. Measured: with it the tails below are at least
# as heavy as those of honest runs in every setting of benchmarks/client_levels.py.
_WORTH = 0.65
_SHARED = 0.3  # quantile over clients: up to two fifths may be bad
_CLIP = 4.0  # deviations, beyond which a round of a longer window counts as this far
_UNCLIPPED = 1e9
_TAIL = 0.1  # the share of single rounds from which the law of extreme ones is learnt
_PRIOR_ROUNDS, _PRIOR_SLOPE = 5.0, 0.5  # extreme rounds that are assumed before any was seen, and their mean log


class Contrast(NamedTuple):
    """The last w rounds of every client less those before them, (R, P) each."""

    t2: FloatArray  # Hotelling's T^2; NaN with too short a past
    dof: FloatArray


def contrast(history: FloatArray, window: int, clip: float = _CLIP) -> Contrast:
    """T^2 of the mean over the last `window` rounds against the mean of up to 30 before them.

    With n rounds before the window, their scatter S_k, and the pooled covariance C of all clients present,

        T^2 = D' V^-1 D,    V = (S_k + 8 C) / (n + 7),    D = (last mean - mean before) / sqrt(c_w / w + c_n / n),

    where c_m >= 1 is what the rounds' lag-one correlation does to the variance of a mean of m rounds.

    Parameters
    ----------
    history : (R, P, H, F) array
        The newest round last; NaN where there was none.
    window : int
        w.
    clip : float
        How many of the client's own deviations one round may count for, in each feature.
    """
    before = history[:, :, : history.shape[2] - window][:, :, -MEMORY:]
    seen = np.isfinite(before[..., 0])
    n = seen.sum(axis=-1)
    usable = n >= LEAST_PAST
    n_safe = np.maximum(n, 2)[..., None]
    values = np.where(seen[..., None], before, 0.0)
    mean = values.sum(axis=2) / n_safe
    residual = np.where(seen[..., None], values - mean[:, :, None], 0.0)
    scatter = np.swapaxes(residual, -1, -2) @ residual
    total = (n[..., None, None] - 1) * usable[..., None, None]
    pooled = (scatter * usable[..., None, None]).sum(axis=1, keepdims=True)
    pooled = pooled / np.maximum(total.sum(axis=1, keepdims=True), 1)
    worth = n + (_BORROWED - 1.0)
    covariance = (scatter + _BORROWED * pooled) / worth[..., None, None]
    lagged = (residual[:, :, 1:] * residual[:, :, :-1]).sum(axis=(1, 2))
    correlation = np.clip(lagged / np.maximum((residual**2).sum(axis=(1, 2)), 1e-300), 0.0, 0.9)[:, None]
    variance = _of_mean(correlation, np.float64(window)) + _of_mean(correlation, n_safe)
    own = clip * np.sqrt(np.diagonal(covariance, axis1=-1, axis2=-2))[:, :, None]
    d = np.clip(history[:, :, -window:] - mean[:, :, None], -own, own).mean(axis=2) / np.sqrt(variance)
    floor = 1e-12 * (1.0 + np.trace(covariance, axis1=-1, axis2=-2))[..., None, None] * np.eye(N_FEATURES)
    solved = np.linalg.solve(covariance + floor, np.nan_to_num(d)[..., None])[..., 0]
    judged = usable & np.isfinite(d).all(axis=-1)
    return Contrast(np.where(judged, (d * solved).sum(axis=-1), np.nan), _WORTH * worth)


def _of_mean(correlation: FloatArray, m: FloatArray | np.float64) -> FloatArray:
    """Variance of the mean of m values with unit variance and correlation rho^h at lag h, at least 1 / m."""
    rho = correlation
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**m) / (m * (1 - rho) ** 2)) / m


class Surprise(NamedTuple):
    """Of every client present, (R, P) each; NaN for clients with too short a past."""

    p: FloatArray
    score: FloatArray  # of the last round alone, in units of the point that one in ten should pass


def surprise(history: FloatArray, scores: FloatArray) -> Surprise:
    """How likely an honest client shows as much in any window.

    T^2 of a window is divided by its lower quantile over clients, where that is larger than it should be: a change that
    most clients share is not a client's own. The rest is referred to the F law, and Bonferroni's inequality takes the
    smallest of the five windows. A single round is also referred to the tail of all clients' single rounds before it,

        P(score > u) = a u^(-1/xi),  u > 1,    a = share of scores above 1,  xi = mean of their logs,

    and the larger p counts: where honest clients leap now and then, one leap is no alarm.

    Parameters
    ----------
    history : (R, P, H, F) array
        The newest round last; NaN where there was none.
    scores : (R, M) array
        Of rounds before the last one, of all clients; NaN where there are none.
    """
    smallest = np.full(history.shape[:2], np.inf)
    score = smallest
    for window in WINDOWS:
        t2, dof = contrast(history, window, _UNCLIPPED if window == 1 else _CLIP)
        left = dof - N_FEATURES + 1.0
        f = t2 * left / (dof * N_FEATURES)
        f = f / np.maximum(_lower(f / fdtri(N_FEATURES, left, _SHARED)), 1.0)[:, None]
        p = fdtrc(N_FEATURES, left, f)
        if window == 1:
            score = f / fdtri(N_FEATURES, left, 1.0 - _TAIL)
            p = np.maximum(p, _tail(score, scores))
        smallest = np.fmin(smallest, p)
    return Surprise(np.where(np.isfinite(smallest), np.minimum(len(WINDOWS) * smallest, 1.0), np.nan), score)


def _tail(score: FloatArray, scores: FloatArray) -> FloatArray:
    """The chance of a score, by those before it; nothing is claimed of scores below 1."""
    extreme = scores > 1.0  # NaN is not
    count = extreme.sum(axis=1)
    share = (count + _PRIOR_ROUNDS) / (np.isfinite(scores).sum(axis=1) + _PRIOR_ROUNDS / _TAIL)
    logs = np.log(np.where(extreme, scores, 1.0)).sum(axis=1)
    slope = (logs + _PRIOR_ROUNDS * _PRIOR_SLOPE) / (count + _PRIOR_ROUNDS)
    with np.errstate(divide="ignore"):
        return np.minimum(share[:, None] * np.maximum(score, 1e-300) ** (-1.0 / slope[:, None]), 1.0)


def _lower(values: FloatArray) -> FloatArray:
    """The 0.3 quantile over clients with a number, (R,); 1 without any."""
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.isfinite(values).sum(axis=1)
    place = _SHARED * np.maximum(count - 1, 0)
    runs, below = np.arange(len(values)), np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    part = place - below
    quantile = (1 - part) * ordered[runs, below] + part * ordered[runs, above]
    return np.where(count > 0, quantile, 1.0)
