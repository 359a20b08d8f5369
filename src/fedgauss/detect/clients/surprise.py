"""How surprising a client's last rounds are, given its own past and the other clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, fdtri

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.features.base import Bounds, Feature, Known
from fedgauss.detect.clients.features.together import Together, together

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
_MANY = 1e6  # degrees of freedom, with which a law is Gaussian
_SWEEPS = 3  # over features that have bounds only, where there are several; one is exact at once
_TWICE = 1.5  # power of p for two rounds running: 2 if they were independent


def surprise_of(chance: float) -> float:
    """-log10, of at most 300."""
    return -math.log10(max(chance, 1e-300)) + 0.0


class Past(NamedTuple):
    """The last rounds of every client of R runs, the newest last."""

    values: FloatArray  # NaN where there was no round  (R, K, H, F)
    known: Bounds  # what each value says of its number  (R, K, H, F)
    numbers: IntArray  # of the rounds, 0 for none  (R, K, H)
    scores: FloatArray  # of single rounds before the last, in each way that features are judged  (R, K, S, G)
    tolerances: FloatArray  # of each feature in the last round  (R, F)

    def of(self, features: Together) -> History:
        """Features that are judged together."""
        places = features.places
        return History(self.values[..., places], self.known[..., places], self.tolerances[:, None, places])


class History(NamedTuple):
    """The same of features that are judged together."""

    values: FloatArray  # NaN where there was no round  (R, P, H, F)
    known: Bounds  # what each value says of its number  (R, P, H, F)
    tolerance: FloatArray  # (R, 1, F)


class Before(NamedTuple):
    """Up to 30 rounds of every client before its last w: what these are compared with."""

    mean: FloatArray  # of the rounds that are known exactly, if they are enough; else of all  (R, P, F)
    sent: FloatArray  # of all, as they were sent  (R, P, F)
    bounds: tuple[BoolArray, BoolArray]  # whether the mean is known to be no lower, no higher  (R, P, F)
    covariance: FloatArray  # V = (S_k + 8 C) / (n + 7), with S_k the scatter of n rounds and C that of all, pooled
    n: FloatArray  # rounds; NaN where they are too few  (R, P)
    counted: FloatArray  # rounds that the mean is of, in each feature  (R, P, F)
    correlation: FloatArray  # of a round with the next one, in each feature  (R, 1, F)
    tolerance: FloatArray  # (R, 1, F)

    @property
    def dof(self) -> FloatArray:
        """What V is worth; of a feature alone, what V and the tolerance are, by Satterthwaite's rule."""
        dof = _WORTH * (self.n + _BORROWED - 1.0)
        if self.n_features > 1:
            return dof
        noise = np.maximum(self.covariance[..., 0, 0], 1.0 / _MANY**2)
        return np.minimum(dof * (1.0 + self.tolerance[..., 0] ** 2 / noise) ** 2, _MANY)

    @property
    def n_features(self) -> int:
        """F."""
        return self.mean.shape[-1]

    @property
    def left(self) -> FloatArray:
        """Degrees of freedom of the F law's denominator."""
        return self.dof - self.n_features + 1.0

    def point(self, share: float) -> FloatArray:
        """The quantile of the F law, (R, P). Most clients have as many rounds, and one law."""
        left, each = np.unique(self.left, return_inverse=True)
        return np.asarray(fdtri(self.n_features, left, share)[each].reshape(self.n.shape))


def before(history: History, window: int, kept: BoolArray) -> Before:
    """From the rounds before the last w; all that is shared, of clients `kept`."""
    end = history.values.shape[2] - window
    rounds, known = history.values[:, :, :end][:, :, -MEMORY:], history.known[:, :, :end][:, :, -MEMORY:]
    seen = np.isfinite(rounds[..., :1])
    exact = seen & ((known == Known.EXACTLY) | (known == Known.BEYOND))
    n = seen.sum(axis=2).astype(np.float64)  # (R, P, 1)
    n_exact = exact.sum(axis=2).astype(np.float64)  # (R, P, F)
    is_known = n_exact >= np.minimum(n, LEAST_PAST)
    sent = np.where(seen, rounds, 0.0).sum(axis=2) / np.maximum(n, 1.0)
    mean = np.where(is_known, np.where(exact, rounds, 0.0).sum(axis=2) / np.maximum(n_exact, 1.0), sent)
    residual = np.where(exact & is_known[:, :, None], rounds - mean[:, :, None], 0.0)
    scatter = np.swapaxes(residual, -1, -2) @ residual
    enough = (n >= LEAST_PAST) & kept[..., None]
    freedom = np.where(enough & is_known, n_exact - 1.0, 0.0).sum(axis=1)  # (R, F)
    pooled = np.where(enough[..., None], scatter, 0.0).sum(axis=1) / np.maximum(_outer(np.sqrt(freedom)), 1.0)
    more = np.sqrt(np.where(is_known, n / np.maximum(n_exact, 1.0), 0.0))  # rounds that are not known count, too
    borrowed = _BORROWED * pooled[:, None] + _diagonal(
        np.where(is_known, 0.0, (n - 1.0) * np.diagonal(pooled, axis1=-1, axis2=-2)[:, None])
    )
    covariance = (scatter * _outer(more) + borrowed) / (n[..., None] + _BORROWED - 1.0)
    shared = residual * kept[..., None, None]
    lagged = (shared[:, :, 1:] * shared[:, :, :-1]).sum(axis=(1, 2))
    correlation = np.clip(lagged / np.maximum((shared**2).sum(axis=(1, 2)), 1e-300), 0.0, 0.9)[:, None]
    no_lower, no_higher = (
        is_known if is_known.all() else is_known | _bounded(known, seen, side)
        for side in (Known.AT_LEAST, Known.AT_MOST)
    )
    return Before(
        mean, sent, (no_lower, no_higher), covariance, np.where(n >= LEAST_PAST, n, np.nan)[..., 0],
        np.where(is_known, n_exact, n), correlation, history.tolerance,
    )  # fmt: skip


def _bounded(known: Bounds, seen: BoolArray, side: Known) -> BoolArray:
    """Whether a mean over rounds (R, P, w, F) has this bound."""
    has = (known == Known.EXACTLY) | (known == Known.BEYOND) | (known == side)
    return np.asarray((has | ~seen).all(axis=2))


def _outer(x: FloatArray) -> FloatArray:
    return x[..., :, None] * x[..., None, :]


def _diagonal(x: FloatArray) -> FloatArray:
    return x[..., None] * np.eye(x.shape[-1])


def t2_of_mean(history: History, past: Before, window: int, clip: float = _CLIP) -> FloatArray:
    """T^2 of the mean over the last w rounds, (R, P).

    T^2 = D' (A V A + t^2)^-1 D with D = last mean - mean before and A^2 = c_w / w + c_n / n, where c_m >= 1 is what the
    lag-one correlation does to the variance of a mean of m rounds, and t the tolerance. In each feature a round counts
    for at most `clip` of the client's own deviations, so that one leap does not make a change. Where D has bounds only,
    T^2 is the least within them.
    """
    return _t2(history.values[:, :, -window:], history.known[:, :, -window:], past, clip)


def t2_of_round(history: History, past: Before, back: int) -> FloatArray:
    """T^2 of one round, the last with back = 1, (R, P)."""
    places = slice(history.values.shape[2] - back, history.values.shape[2] - back + 1)
    return _t2(history.values[:, :, places], history.known[:, :, places], past, np.inf)


def _t2(rounds: FloatArray, known: Bounds, past: Before, clip: float) -> FloatArray:
    low, high = past.bounds
    origin = past.mean
    if known.any() or not (low & high).all():
        every = np.ones((*known.shape[:3], 1), dtype=np.bool_)
        beyond = (known == Known.BEYOND).all(axis=2)
        origin = np.where(beyond & ~(low & high), past.sent, past.mean)
        low, high = (
            beyond | high & _bounded(known, every, Known.AT_LEAST),
            beyond | low & _bounded(known, every, Known.AT_MOST),
        )
    tolerated = past.tolerance**2
    spread = _of_mean(past.correlation, np.float64(rounds.shape[2])) + _of_mean(past.correlation, past.counted)
    moved = rounds - origin[:, :, None]
    if np.isfinite(clip):
        most = clip * np.sqrt(np.diagonal(past.covariance, axis1=-1, axis2=-2) + tolerated)[:, :, None]
        moved = np.clip(moved, -most, most)
    d = moved.mean(axis=2)
    covariance = past.covariance * _outer(np.sqrt(spread)) + _diagonal(np.broadcast_to(tolerated, d.shape))
    t2 = _least(np.nan_to_num(d), covariance, low, high)
    return np.where(np.isfinite(past.n) & np.isfinite(d).all(axis=-1), t2, np.nan)


def _least(d: FloatArray, covariance: FloatArray, low: BoolArray, high: BoolArray) -> FloatArray:
    """The least of x' C^-1 x over x >= d where `low`, x <= d where `high`, and so x = d where both."""
    free = np.flatnonzero(~(low & high).all(axis=(0, 1)))
    unit = np.broadcast_to(np.eye(d.shape[-1])[:, free], (*d.shape, len(free)))
    solved = np.linalg.solve(covariance, np.concatenate([d[..., None], unit], axis=-1))
    x, image = d, solved[..., 0]  # C^-1 x
    for _ in range(len(free) if len(free) < 2 else _SWEEPS):
        for i, j in enumerate(free):
            column = solved[..., 1 + i]
            wanted = x[..., j] - image[..., j] / column[..., j]
            at = np.clip(wanted, np.where(low[..., j], d[..., j], -np.inf), np.where(high[..., j], d[..., j], np.inf))
            image = image + (at - x[..., j])[..., None] * column
            x = np.where(np.arange(d.shape[-1]) == j, at[..., None], x)
    return np.asarray((x * image).sum(axis=-1))


def _of_mean(correlation: FloatArray, m: FloatArray | np.float64) -> FloatArray:
    """Variance of the mean of m values with unit variance and correlation rho^h at lag h, at least 1 / m."""
    rho, m = correlation, np.maximum(m, 1.0)
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**m) / (m * (1 - rho) ** 2)) / m


class Surprise(NamedTuple):
    """Of every client present; NaN for clients with too short a past."""

    p: FloatArray  # (R, P)
    score: FloatArray  # of the last round alone: F over the point that one in ten should pass  (R, P, G)


def surprise(past: Past, kept: BoolArray, features: Sequence[Feature]) -> Surprise:
    """How likely an honest client stands out as much in any way in which features are judged.

    Each way has a share of alpha, and by Bonferroni's inequality the smallest p over its share is one of all. Features
    that nobody knows, such as what clients claim where they claim nothing, have none.

    Parameters
    ----------
    past : Past
    kept : (R, P) bool
        Clients from which is learnt what honest ones do. The others are judged by it, too.
    features : sequence of Feature
    """
    ways = together(features)
    p = np.full((*past.values.shape[:2], len(ways)), np.nan)
    score = p.copy()
    for i, way in enumerate(ways):
        if np.isfinite(past.values[:, :, -1, way.places]).any():
            p[..., i], score[..., i] = _surprise(past.of(way), past.scores[..., i], kept)
    share = np.where(np.isfinite(p), [way.share for way in ways], 0.0)
    least = np.fmin.reduce(p * share.sum(axis=-1, keepdims=True) / np.where(share > 0, share, np.nan), axis=-1)
    return Surprise(np.where(np.isfinite(p[..., 0]), np.minimum(least, 1.0), np.nan), score)


def _surprise(history: History, scores: FloatArray, kept: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Of features that are judged together, in any of six ways.

    Four are means over its last 2, 3, 5 and 8 rounds, which add up small changes; T^2 is referred to the F law. One is
    the last round alone, referred also to the tail of all clients' single rounds before it, and the larger p counts:
    where honest clients leap now and then, one leap is no alarm. One is that both of the last two rounds stand out,
    with p^1.5 of the less surprising. Each T^2 is first divided by its lower quantile over clients, where that is
    larger than it should be: a change that most clients share is not a client's own. Bonferroni's inequality puts the
    six together.
    """
    scores = np.where(kept[..., None], scores, np.nan)
    past = before(history, 1, kept)
    f = _less_shared(t2_of_round(history, past, 1), past, kept)
    score = f / past.point(1.0 - _TAIL)
    smallest = _p_of_round(f, past, scores)
    for window in WINDOWS:
        past = before(history, window, kept)
        mean = _less_shared(t2_of_mean(history, past, window), past, kept)
        smallest = np.fmin(smallest, fdtrc(past.n_features, past.left, mean))
        if window == 2:
            rounds = (_less_shared(t2_of_round(history, past, back), past, kept) for back in (1, 2))
            both = [_p_of_round(f, past, scores[:, :, :-1]) for f in rounds]
            smallest = np.fmin(smallest, np.maximum(*both) ** _TWICE)
    return np.minimum(_WAYS * smallest, 1.0), score


def _less_shared(t2: FloatArray, past: Before, kept: BoolArray) -> FloatArray:
    """T^2 as F, less what most clients share."""
    f = t2 * past.left / (past.dof * past.n_features)
    usual = np.where(kept, f / past.point(_SHARED), np.nan)
    return f / np.maximum(_lower(usual), 1.0)[:, None]


def _p_of_round(f: FloatArray, past: Before, scores: FloatArray) -> FloatArray:
    """By the F law, or by the tail of earlier rounds if that is heavier."""
    return np.maximum(fdtrc(past.n_features, past.left, f), _tail(f / past.point(1.0 - _TAIL), scores))


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
