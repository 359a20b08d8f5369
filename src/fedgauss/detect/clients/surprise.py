"""How surprising a client's last rounds are, given its own past and the other clients."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, fdtri

from fedgauss._types import BoolArray, FloatArray

WINDOWS = (2, 3, 5, 8)  # rounds whose mean is compared with those before them
MEMORY = 30  # rounds before a window that it is compared with
LEAST_PAST = 8  # of them, to be judged at all
LENGTH = MEMORY + WINDOWS[-1]  # rounds of a client that are looked at
_WAYS = len(WINDOWS) + 2  # of standing out: in a mean, in the last round alone, and in each of the last two
_BORROWED = 8  # rounds' worth of the other clients' covariance in each client's own
# Of the degrees of freedom that independent Gaussian rounds would give. Measured: with it the tails below are at least
# as heavy as those of honest runs in every setting of benchmarks/client_study.py.
_WORTH = 0.7
_SHARED = 0.3  # quantile over clients: up to two fifths may be bad
_CLIP = 4.0  # deviations, beyond which a round counts as this far in a mean
_TAIL = 0.1  # the share of single rounds from which the law of extreme ones is learnt
_PRIOR_ROUNDS, _PRIOR_SLOPE = 5.0, 0.45  # extreme rounds that are assumed before any was seen, and their mean log
_TWICE = 1.5  # power of p for two rounds running: 2 if they were independent


def surprise_of(chance: float) -> float:
    """-log10, of at most 300."""
    return -math.log10(max(chance, 1e-300)) + 0.0


class Before(NamedTuple):
    """Up to 30 rounds of every client before its last w: what these are compared with."""

    mean: FloatArray  # (R, P, F)
    covariance: FloatArray  # V = (S_k + 8 C) / (n + 7), with S_k the scatter of n rounds and C that of all, pooled
    n: FloatArray  # rounds; NaN where they are too few  (R, P)
    correlation: FloatArray  # of a round with the next one, in each feature  (R, 1, F)

    @property
    def dof(self) -> FloatArray:
        """What V is worth."""
        return _WORTH * (self.n + _BORROWED - 1.0)

    @property
    def n_features(self) -> int:
        """F."""
        return self.mean.shape[-1]

    @property
    def left(self) -> FloatArray:
        """Degrees of freedom of the F law's denominator."""
        return self.dof - self.n_features + 1.0


def before(history: FloatArray, window: int, kept: BoolArray) -> Before:
    """From rounds (R, P, H, F), the newest last and NaN where there was none; all that is shared, of clients `kept`."""
    rounds = history[:, :, : history.shape[2] - window][:, :, -MEMORY:]
    seen = np.isfinite(rounds[..., :1])
    n = seen.sum(axis=2).astype(np.float64)  # (R, P, 1)
    mean = np.where(seen, rounds, 0.0).sum(axis=2) / np.maximum(n, 1.0)
    residual = np.where(seen, rounds - mean[:, :, None], 0.0)
    scatter = np.swapaxes(residual, -1, -2) @ residual
    enough = (n >= LEAST_PAST)[..., None] & kept[..., None, None]
    pooled = np.where(enough, scatter, 0.0).sum(axis=1, keepdims=True)
    pooled = pooled / np.maximum(np.where(enough, n[..., None] - 1.0, 0.0).sum(axis=1, keepdims=True), 1.0)
    ridge = 1e-12 * (1.0 + np.trace(pooled, axis1=-1, axis2=-2))[..., None, None] * np.eye(rounds.shape[-1])
    covariance = (scatter + _BORROWED * pooled) / (n[..., None] + _BORROWED - 1.0) + ridge
    shared = residual * kept[..., None, None]
    lagged = (shared[:, :, 1:] * shared[:, :, :-1]).sum(axis=(1, 2))
    correlation = np.clip(lagged / np.maximum((shared**2).sum(axis=(1, 2)), 1e-300), 0.0, 0.9)[:, None]
    return Before(mean, covariance, np.where(n >= LEAST_PAST, n, np.nan)[..., 0], correlation)


def t2_of_mean(history: FloatArray, past: Before, window: int, clip: float = _CLIP) -> FloatArray:
    """T^2 of the mean over the last w rounds, (R, P).

    T^2 = D' V^-1 D with D = (last mean - mean before) / (c_w / w + c_n / n)^1/2, where c_m >= 1 is what the lag-one
    correlation does to the variance of a mean of m rounds. In each feature a round counts for at most `clip` of the
    client's own deviations, so that one leap does not make a change.
    """
    most = clip * np.sqrt(np.diagonal(past.covariance, axis1=-1, axis2=-2))[:, :, None]
    moved = np.clip(history[:, :, -window:] - past.mean[:, :, None], -most, most).mean(axis=2)
    n = np.nan_to_num(past.n, nan=1.0)[..., None]
    d = moved / np.sqrt(_of_mean(past.correlation, np.float64(window)) + _of_mean(past.correlation, n))
    return _t2(d, past)


def t2_of_round(history: FloatArray, past: Before, back: int) -> FloatArray:
    """T^2 of one round, the last with back = 1, (R, P)."""
    n = np.nan_to_num(past.n, nan=1.0)[..., None]
    return _t2((history[:, :, -back] - past.mean) / np.sqrt(1.0 + _of_mean(past.correlation, n)), past)


def _t2(d: FloatArray, past: Before) -> FloatArray:
    solved = np.linalg.solve(past.covariance, np.nan_to_num(d)[..., None])[..., 0]
    return np.where(np.isfinite(past.n) & np.isfinite(d).all(axis=-1), (d * solved).sum(axis=-1), np.nan)


def _of_mean(correlation: FloatArray, m: FloatArray | np.float64) -> FloatArray:
    """Variance of the mean of m values with unit variance and correlation rho^h at lag h, at least 1 / m."""
    rho = correlation
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**m) / (m * (1 - rho) ** 2)) / m


class Surprise(NamedTuple):
    """Of every client present, (R, P) each; NaN for clients with too short a past."""

    p: FloatArray
    score: FloatArray  # of the last round alone: F over the point that one in ten should pass


def surprise(history: FloatArray, scores: FloatArray, kept: BoolArray) -> Surprise:
    """How likely an honest client stands out as much in any of six ways.

    Four are means over its last 2, 3, 5 and 8 rounds, which add up small changes; T^2 is referred to the F law. One is
    the last round alone, referred also to the tail of all clients' single rounds before it, and the larger p counts:
    where honest clients leap now and then, one leap is no alarm. One is that both of the last two rounds stand out,
    with p^1.5 of the less surprising. Each T^2 is first divided by its lower quantile over clients, where that is
    larger than it should be: a change that most clients share is not a client's own. Bonferroni's inequality puts the
    six together.

    Parameters
    ----------
    history : (R, P, H, F) array
        The newest round last; NaN where there was none.
    scores : (R, P, S) array
        Of rounds before the last one; NaN where there are none.
    kept : (R, P) bool
        Clients from which is learnt what honest ones do. The others are judged by it, too.
    """
    scores = np.where(kept[..., None], scores, np.nan)
    past = before(history, 1, kept)
    f = _less_shared(t2_of_round(history, past, 1), past, kept)
    score = f / fdtri(past.n_features, past.left, 1.0 - _TAIL)
    smallest = _p_of_round(f, past, scores)
    for window in WINDOWS:
        past = before(history, window, kept)
        mean = _less_shared(t2_of_mean(history, past, window), past, kept)
        smallest = np.fmin(smallest, fdtrc(past.n_features, past.left, mean))
        if window == 2:
            rounds = (_less_shared(t2_of_round(history, past, back), past, kept) for back in (1, 2))
            both = [_p_of_round(f, past, scores[:, :, :-1]) for f in rounds]
            smallest = np.fmin(smallest, np.maximum(*both) ** _TWICE)
    return Surprise(np.minimum(_WAYS * smallest, 1.0), score)


def _less_shared(t2: FloatArray, past: Before, kept: BoolArray) -> FloatArray:
    """T^2 as F, less what most clients share."""
    f = t2 * past.left / (past.dof * past.n_features)
    usual = np.where(kept, f / fdtri(past.n_features, past.left, _SHARED), np.nan)
    return f / np.maximum(_lower(usual), 1.0)[:, None]


def _p_of_round(f: FloatArray, past: Before, scores: FloatArray) -> FloatArray:
    """By the F law, or by the tail of earlier rounds if that is heavier."""
    size, left = past.n_features, past.left
    return np.maximum(fdtrc(size, left, f), _tail(f / fdtri(size, left, 1.0 - _TAIL), scores))


def _tail(score: FloatArray, scores: FloatArray) -> FloatArray:
    """The chance of a score u by those before it: a u^(-1/xi), with a the share of scores above 1.

    xi is Hill's estimate, the mean log of the scores above 1. The F law's own far tail is lighter: what is lost for
    one round, which may be a leap, the windows of two and more make good.
    """
    extreme = scores > 1.0  # NaN is not
    count = extreme.sum(axis=(1, 2))
    share = (count + _PRIOR_ROUNDS) / (np.isfinite(scores).sum(axis=(1, 2)) + _PRIOR_ROUNDS / _TAIL)
    logs = np.log(np.where(extreme, scores, 1.0)).sum(axis=(1, 2))
    slope = (logs + _PRIOR_ROUNDS * _PRIOR_SLOPE) / (count + _PRIOR_ROUNDS)
    return np.minimum(share[:, None] * np.maximum(score, 1.0) ** (-1.0 / slope[:, None]), 1.0)


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
