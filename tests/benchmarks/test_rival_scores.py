"""Rival detectors as scores, against slow twins that follow their definitions value by value."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import rival_scores as rivals

pytestmark = pytest.mark.study
VALUES = np.random.default_rng(2).standard_normal((4, 30, 2)) + np.where(np.arange(30) < 17, 0.0, 1.2)[:, None]


def test_focus_is_the_likelihood_ratio_of_a_change():
    scores = rivals.focus_scores(VALUES)
    for run, row in zip(VALUES, scores, strict=True):
        for t in range(2, 31):
            rest = [
                ((run[:s] - run[:s].mean(0)) ** 2).sum() + ((run[s:t] - run[s:t].mean(0)) ** 2).sum()
                for s in range(1, t)
            ]
            np.testing.assert_allclose(row[t - 1], ((run[:t] - run[:t].mean(0)) ** 2).sum() - min(rest), rtol=1e-9)


def test_page_hinkley_follows_river():
    scores = rivals.page_hinkley_scores(0.3)(VALUES)
    for run, row in zip(VALUES, scores, strict=True):
        tests = np.zeros((30, 2))
        for k in range(2):
            up = down = 0.0
            least, most = np.inf, -1.0
            for j in range(30):
                gap = run[j, k] - run[: j + 1, k].mean()
                up, down = 0.9999 * up + gap - 0.3, 0.9999 * down + gap + 0.3
                least, most = min(least, up), max(most, down)
                tests[j, k] = max(up - least, most - down)
        np.testing.assert_allclose(row, tests.max(axis=1), rtol=1e-9, atol=1e-12)


def adwin_alarms(values, delta, least, most_buckets, grace):
    """Whether each value is an alarm, with buckets of values that are merged, as long as there was none."""
    levels = [[]]
    for t, value in enumerate(values, start=1):
        levels[0].append([value])
        for i in range(20):
            if len(levels[i]) <= most_buckets:
                break
            if i + 1 == len(levels):
                levels.append([])
            levels[i + 1].append(levels[i].pop(0) + levels[i].pop(0))
        buckets = [bucket for level in reversed(levels) for bucket in level]
        everything, old = np.concatenate(buckets), 0
        log = np.log(2 * np.log(t) / delta) if t > 1 else 0.0
        for bucket in buckets[:-1]:
            old += len(bucket)
            if t <= grace or min(old, t - old) < least:
                continue
            gap = abs(everything[:old].mean() - everything[old:].mean())
            inverse = 1 / (old - least + 1) + 1 / (t - old - least + 1)
            if gap > np.sqrt(2 * inverse * everything.var() * log) + 2 / 3 * inverse * log:
                return t
    return 0


def test_adwin_alarms_where_its_buckets_say_so():
    for least, buckets, grace in ((5, 5, 10), (1, 30, 1), (2, 2, 3)):
        scores = rivals.adwin_scores(least, buckets, grace)(VALUES)
        for run, row in zip(VALUES, scores, strict=True):
            for strictness in (row.max() - 0.3, row.max() - 0.01, row.max() + 0.01):
                delta = np.exp(-strictness)
                times = [adwin_alarms(run[:, k], delta, least, buckets, grace) for k in range(2)]
                wanted = min((time for time in times if time), default=0)
                over = row > strictness
                assert (over.argmax() + 1 if over.any() else 0) == wanted


def test_residuals_are_orthogonal_to_the_past():
    """An orthogonal map of the values: the sum of squares about the mean is kept, and a constant is lost."""
    found = rivals.residuals(VALUES)
    np.testing.assert_allclose((found**2).sum(axis=1), VALUES.var(axis=1) * 30, rtol=1e-9)
    np.testing.assert_allclose(rivals.residuals(VALUES + 7.0), found, atol=1e-9)


def test_ocd_tests_each_coordinate_and_adds_up_the_others():
    size = 1.5
    found = rivals.ocd_parts(size)(VALUES)
    x = rivals.residuals(VALUES)
    scales = [sign * size / np.sqrt(2**level * 2) for sign in (1, -1) for level in range(3)]
    for r in range(len(x)):
        state = {(j, b): (np.zeros(2), 0) for j in range(2) for b in scales}
        for t in range(30):
            diagonal = others = 0.0
            for (j, b), (total, length) in state.items():
                total, length = total + x[r, t], length + 1
                tested = b * total[j] - b * b * length / 2
                if tested <= 0:
                    total, length = np.zeros(2), 0
                state[j, b] = total, length
                diagonal = max(diagonal, tested)
                if abs(b) > min(map(abs, scales)) * 1.01:
                    others = max(others, total[1 - j] ** 2 / max(length, 1))
            np.testing.assert_allclose([found[0][r, t], found[1][r, t]], [diagonal, others], rtol=1e-9, atol=1e-12)


def test_e_detectors_are_sums_and_maxima_of_likelihood_ratios():
    shifts = np.array([0.5, 2.0])
    x = rivals.residuals(VALUES)
    for restart, pooled in (("SR", np.sum), ("CUSUM", np.max)):
        found = rivals.e_detector_scores(shifts, restart)(VALUES)
        for t in (1, 12, 29):
            parts = []
            for s in (0.5, 2.0, -0.5, -2.0):
                logs = s * x[:, 1 : t + 1] - s * s / 2
                since = np.flip(np.cumsum(np.flip(logs, axis=1), axis=1), axis=1)  # from each onset to now
                parts.append(pooled(np.exp(since), axis=1))
            np.testing.assert_allclose(found[:, t], np.log(np.mean(parts, axis=(0, 2))), rtol=1e-9)


def test_the_covariance_cusum_is_its_definition():
    found, x = rivals.covariance_scores(VALUES), rivals.residuals(VALUES)[:, 1:]
    for t in (2, 9, 29):
        for r in range(len(x)):
            outer = [np.outer(v, v) for v in x[r, :t]]
            gaps = [np.mean(outer[s:], axis=0) - np.mean(outer[:s], axis=0) for s in range(1, t)]
            sizes = [np.sqrt(s * (t - s) / t) * np.linalg.norm(g, 2) for s, g in enumerate(gaps, start=1)]
            np.testing.assert_allclose(found[r, t], max(sizes), rtol=1e-9)
