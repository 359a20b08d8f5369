"""Detectors as scores: how loud each is after every round of R runs, from arrays. It alarms where the score is high.

`adwin_scores` and `page_hinkley_scores` are river's rules, and `rival_table.py` compares their alarms with river's own.
ocd, the e-detectors and the covariance CUSUM were written from what their papers describe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from rival_data import Array

Scores = Callable[[Array], Array]  # from values (R, J, d), unit variance before a change, to scores (R, J)
_NEVER = -1e9


def running_sums(values: Array) -> Array:
    """With a zero in front, (R, J + 1, ...)."""
    return np.concatenate([np.zeros_like(values[:, :1]), np.cumsum(values, axis=1)], axis=1)


def focus_scores(values: Array) -> Array:
    """|S_s - (s / t) S_t|^2 / (s (1 - s / t)), the largest over 0 < s < t: Focus with an unknown mean before."""
    sums = running_sums(values)
    scores = np.zeros(values.shape[:2])
    for t in range(2, values.shape[1] + 1):
        share = np.arange(1, t) / t
        gap = sums[:, 1:t] - share[:, None] * sums[:, t : t + 1]
        scores[:, t - 1] = ((gap**2).sum(axis=2) / (t * share * (1.0 - share))).max(axis=1)
    return scores


def page_hinkley_scores(delta: float) -> Scores:
    """The larger of river's two test statistics, over coordinates."""

    def scores(values: Array) -> Array:
        means = np.cumsum(values, axis=1) / np.arange(1, values.shape[1] + 1)[:, None]
        up, down = np.zeros(values[:, 0].shape), np.zeros(values[:, 0].shape)
        least, most = np.full_like(up, np.inf), np.full_like(up, -1.0)
        found = np.zeros(values.shape[:2])
        for j in range(values.shape[1]):
            gap = values[:, j] - means[:, j]
            up, down = 0.9999 * up + gap - delta, 0.9999 * down + gap + delta
            least, most = np.minimum(least, up), np.maximum(most, down)
            found[:, j] = np.maximum(up - least, most - down).max(axis=1)
        return found

    return scores


def adwin_scores(min_window_length: int, max_buckets: int, grace_period: int) -> Scores:
    """-log of the largest delta at which river's ADWIN (clock 1) would alarm on either coordinate.

    A cut between n0 old and n1 new values, with means apart by g and the variance v of all n, is an alarm when

        g > sqrt(2 v L / m) + 2 L / (3 m),   L = log(2 log(n) / delta),   1 / m = sum of 1 / (n_i - least + 1),

    which is quadratic in the root of L.
    """

    def scores(values: Array) -> Array:
        sums, squares = running_sums(values), running_sums(values**2)
        found = np.full(values.shape[:2], _NEVER)
        for t, cuts in enumerate(_bucket_ends(values.shape[1], max_buckets), start=1):
            allowed = [n for n in cuts if min(n, t - n) >= min_window_length]
            if t <= grace_period or not allowed:
                continue
            variance = np.maximum(squares[:, t] - sums[:, t] ** 2 / t, 0.0) / t
            for old in allowed:
                gap = np.abs(sums[:, old] / old - (sums[:, t] - sums[:, old]) / (t - old))
                inverse = 1.0 / (old - min_window_length + 1) + 1.0 / (t - old - min_window_length + 1)
                slope, curve = np.sqrt(2.0 * inverse * variance), 2.0 / 3.0 * inverse
                root = (np.sqrt(slope**2 + 4.0 * curve * gap) - slope) / (2.0 * curve)
                strictness = (root**2).max(axis=1) - np.log(2.0 * np.log(t))
                np.maximum(found[:, t - 1], strictness, out=found[:, t - 1])
        return found

    return scores


def _bucket_ends(times: int, max_buckets: int) -> list[list[int]]:
    """How many of the oldest values lie before each border between buckets, after every value."""
    counts = [0] * (times.bit_length() + 1)  # buckets of 1, 2, 4, ... values
    found = []
    for _ in range(times):
        counts[0] += 1
        for level in range(len(counts) - 1):
            if counts[level] <= max_buckets:
                break
            counts[level] -= 2
            counts[level + 1] += 1
        sizes = [2**level for level in reversed(range(len(counts))) for _ in range(counts[level])]
        found.append(np.cumsum(sizes)[:-1].tolist())
    return found


def residuals(values: Array) -> Array:
    """Recursive residuals sqrt(j / (j + 1)) (x - mean before): unit variance, mean zero before a change, (R, J, d).

    For rules that suppose the mean before the change to be known. The first is zero.
    """
    before = np.arange(1, values.shape[1])
    means = np.cumsum(values, axis=1)[:, :-1] / before[:, None]
    rest = np.sqrt(before / (before + 1.0))[:, None] * (values[:, 1:] - means)
    return np.concatenate([np.zeros_like(rest[:, :1]), rest], axis=1)


def ocd_parts(size: float) -> Callable[[Array], tuple[Array, Array]]:
    """Chen, Wang and Samworth (JRSS B 2022): the diagonal and the off-diagonal statistic, (R, J) each.

    Each coordinate j is tested for a mean b, on every scale b of a dyadic grid up to `size`, by a CUSUM that begins
    anew at zero; the other coordinates are then added up over the same stretch: sum of A^2 / length.
    """

    def parts(values: Array) -> tuple[Array, Array]:
        x = residuals(values)
        runs, times, dim = x.shape
        levels = int(np.log2(dim)) + 2
        scale = size / np.sqrt(2.0 ** np.arange(levels) * np.log2(2 * dim))
        b = np.concatenate([scale, -scale])
        inner = np.tile(np.arange(levels) < levels - 1, 2)  # the smallest scale is for the diagonal alone
        sums = np.zeros((runs, dim, dim, len(b)))  # of coordinate j', over the stretch of (j, b)
        length = np.zeros((runs, dim, len(b)))
        own = np.arange(dim)
        diagonal, others = np.zeros((runs, times)), np.zeros((runs, times))
        for t in range(times):
            sums += x[:, t, :, None, None]
            length += 1.0
            tested = b * sums[:, own, own] - b**2 * length / 2.0
            over = tested <= 0.0
            length[over] = 0.0
            sums *= ~over[:, None]
            diagonal[:, t] = np.maximum(tested, 0.0).max(axis=(1, 2))
            added = (sums**2).sum(axis=1) - sums[:, own, own] ** 2
            others[:, t] = (added / np.maximum(length, 1.0))[..., inner].max(axis=(1, 2))
        return diagonal, others

    return parts


def e_detector_scores(shifts: Array, restart: str) -> Scores:
    """log of a mixture e-detector (Shin, Ramdas and Rinaldo 2024) over both coordinates, both signs and these shifts.

    With L = exp(s x - s^2 / 2): M <- L (M + 1) for "SR", M <- L max(M, 1) for "CUSUM".
    """

    def scores(values: Array) -> Array:
        x = residuals(values)
        s = np.concatenate([shifts, -shifts])
        held = np.zeros((len(x), x.shape[2], len(s)))
        found = np.full(x.shape[:2], _NEVER)
        for t in range(1, x.shape[1]):
            held = np.exp(s * x[:, t, :, None] - s**2 / 2.0) * (
                held + 1.0 if restart == "SR" else np.maximum(held, 1.0)
            )
            found[:, t] = np.log(held.mean(axis=(1, 2)))
        return found

    return scores


def covariance_scores(values: Array) -> Array:
    """sqrt(s (t - s) / t) |mean of x x' after s - mean of x x' before|, the operator norm: a change of covariance.

    The idea of onlineCOV. It looks both ways: the largest eigenvalue of the difference in size.
    """
    x = residuals(values)[:, 1:]
    sums = running_sums(x[..., :, None] * x[..., None, :])
    found = np.zeros(values.shape[:2])
    for t in range(2, x.shape[1] + 1):
        s = np.arange(1, t)[:, None, None]
        gap = (sums[:, t : t + 1] - sums[:, 1:t]) / (t - s) - sums[:, 1:t] / s
        size = np.abs(np.linalg.eigvalsh(gap)).max(axis=2)
        found[:, t] = (np.sqrt(s * (t - s) / t)[:, 0, 0] * size).max(axis=1)
    return found
