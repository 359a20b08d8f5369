"""R_t by bounds is R_t by the naive loop, to the last bit, in every norm, dimension and chunking."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedgauss as fg
from fedgauss.detect.cusum import Cusum, compensated_sums, cusum_paths


def naive(path, norm="euclidean"):
    """R_t and the smallest argmax by a double loop over the definition, on the same compensated sums."""
    zeros = np.zeros(path.shape[1])
    sums = compensated_sums(path - path[0], zeros, zeros)[0].tolist()  # loops over Python's floats are ten times faster
    statistic, onset = [], []
    for t in range(1, len(path) + 1):
        best, where = -1.0, 0
        for s in range(1, t + 1):
            gap = [t * early - s * late for early, late in zip(sums[s - 1], sums[t - 1], strict=True)]
            if norm == "max":
                size = max(map(abs, gap))
            else:
                size = gap[0] * gap[0]
                for g in gap[1:]:
                    size += g * g
            if size > best:
                best, where = size, s
        statistic.append((best if norm == "max" else np.sqrt(best)) / t)
        onset.append(where)
    return np.array(statistic), np.array(onset)


def one_by_one(path, norm="euclidean"):
    watch = Cusum(path.shape[1], norm)
    readings = [watch.update(y) for y in path]
    return np.array([r.statistic for r in readings]), np.array([r.onset for r in readings])


def same(left, right):
    np.testing.assert_array_equal(left[0], right[0])
    np.testing.assert_array_equal(left[1], right[1])


finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)
paths = hnp.arrays(float, st.tuples(st.integers(1, 200), st.integers(1, 4)), elements=finite)
grids = hnp.arrays(float, st.tuples(st.integers(1, 200), st.integers(1, 3)), elements=st.integers(-2, 2).map(float))


@settings(max_examples=60, deadline=None)
@given(path=paths | grids, norm=st.sampled_from(["euclidean", "max"]))
def test_bounds_lose_nothing(path, norm):
    # Whole numbers on a small grid tie all the time: both R_t and the smallest argmax must be the naive ones, exactly.
    expected = naive(path, norm)
    same(Cusum(path.shape[1], norm).extend(path), expected)
    same(one_by_one(path, norm), expected)
    batch = cusum_paths(path[None], norm)
    same((batch[0][0], batch[1][0]), expected)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 700), max_size=5),
    roughness=st.sampled_from(["white", "walk", "smooth", "shift", "outlier", "pulse", "still"]),
    norm=st.sampled_from(["euclidean", "max"]),
)
def test_long_paths_of_every_roughness_agree_with_the_vectorised_loop_whatever_the_chunks(seed, cuts, roughness, norm):
    # 700 steps: ten full blocks and one that is filling, so that every sieve has something to rule out.
    path = rough_path(roughness, 700, 2, np.random.default_rng(seed))
    expected = cusum_paths(path[None], norm)
    watch = Cusum(2, norm)
    parts = [watch.extend(part) for part in np.split(path, sorted(cuts))]
    same([np.concatenate(p) for p in zip(*parts, strict=True)], (expected[0][0], expected[1][0]))
    watch = Cusum(2, norm)
    watch.extend(path[:500])
    for t in range(500, 700):
        assert tuple(watch.update(path[t])) == (expected[0][0, t], expected[1][0, t])


def rough_path(kind, n_steps, dim, rng):
    noise = rng.standard_normal((n_steps, dim))
    if kind == "walk":
        return noise.cumsum(axis=0)
    if kind == "smooth":
        return noise.cumsum(axis=0).cumsum(axis=0) / n_steps
    if kind == "shift":
        noise[n_steps // 2 :] += 3.0
    if kind == "outlier":
        noise[rng.integers(n_steps)] = 1e6
    if kind == "pulse":  # the mean leaves its chord within a block of steps
        noise *= 0.001
        noise[:192, 0] += 200 / 192
        noise[192:448, 0] -= 200 / 256
        noise[192:320, 1] += 205 / 128
        noise[320:448, 1] -= 205 / 128
        noise[460, 0] -= 240.0
        noise[475, 0] += 240.0
    if kind == "still":
        noise[100:] = noise[99]
    return noise


def test_many_dimensions_add_up_in_one_order():
    # Catches a norm whose last bit depends on how many vectors are measured together.
    path = np.random.default_rng(0).standard_normal((300, 40)).cumsum(axis=0)
    expected = cusum_paths(path[None])
    same(Cusum(40).extend(path), (expected[0][0], expected[1][0]))
    same(one_by_one(path), (expected[0][0], expected[1][0]))


@settings(max_examples=30, deadline=None)
@given(
    path=hnp.arrays(float, st.tuples(st.integers(2, 25), st.just(1)), elements=finite), far=st.sampled_from([0, 1e8])
)
def test_rounding_stays_within_sixteen_eps_of_the_largest_sum(path, far):
    # Exact rational arithmetic on the very same floats, also when they sit on top of a huge constant.
    path = path + far
    statistic, _ = Cusum(1).extend(path)
    sums = [Fraction(0)]
    for y in path[:, 0]:
        sums.append(sums[-1] + Fraction(float(y)) - Fraction(float(path[0, 0])))
    largest = max(abs(s) for s in sums)
    for t in range(1, len(path) + 1):
        exact = max(abs(sums[s] - Fraction(s, t) * sums[t]) for s in range(1, t + 1))
        assert abs(Fraction(float(statistic[t - 1])) - exact) <= 16 * Fraction(np.finfo(float).eps) * largest


def test_a_long_run_far_from_zero_keeps_its_digits():
    # 200,000 steps at 1e6 with noise 1: sums that are neither centred nor compensated lose four digits more.
    noise = np.random.default_rng(1).integers(-8, 9, size=(200_000, 1)) / 8.0
    near, _ = Cusum(1).extend(noise)
    far, _ = Cusum(1).extend(noise + 1e6)
    np.testing.assert_array_equal(near, far)


def test_agrees_with_the_observer_of_the_engine():
    # Another implementation, in float32: near ties may be resolved otherwise, so only R_t is compared.
    lin = fg.linearization(np.eye(3)[None], np.eye(3)[None])
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)
    runs = fg.approx.aggregated(lin, steps, 200, replicates=20, seed=1, observe=["cusum"], keep="path")
    statistic, _ = cusum_paths(runs.path)
    np.testing.assert_allclose(statistic, runs.cusum, rtol=1e-4, atol=1e-4)


def test_a_shift_is_named():
    path = np.random.default_rng(2).standard_normal((400, 2))
    path[250:] += 5.0
    statistic, onset = Cusum(2).extend(path)
    assert abs(onset[-1] - 250) <= 1
    assert statistic[-1] > 100


def test_most_sums_are_never_looked_at():
    # The point of the bounds. 20,000 steps of an SGD-like path; the naive loop compares 10,000 sums a step.
    looked = []

    class Counting(Cusum):
        def _compare_parts(self, t, part):
            looked.append(8 * len(part))
            return super()._compare_parts(t, part)

    lin = fg.linearization(np.eye(2)[None], np.eye(2)[None])
    runs = fg.approx.aggregated(lin, fg.step_sizes.polynomial(0.3, beta=0.75), 20_000, seed=3, keep="path")
    Counting(2).extend(runs.path[0])
    assert sum(looked) < 60 * 20_000


def test_empty_and_single():
    watch = Cusum(2)
    assert [len(part) for part in watch.extend(np.zeros((0, 2)))] == [0, 0]
    assert tuple(watch.update([3.0, 4.0])) == (0.0, 1)
    assert watch.n_steps == 1
    assert cusum_paths(np.zeros((3, 0, 2)))[0].shape == (3, 0)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0], "shape"),
        ([1.0, np.nan], "finite"),
        ([1.0, 1e200], "Rescale"),
        ("nonsense", "real numbers"),
    ],
)
def test_bad_input_is_refused_and_leaves_no_trace(y, message):
    path = np.random.default_rng(4).standard_normal((70, 2))
    watch = Cusum(2)
    watch.extend(path[:66])
    with pytest.raises(ValueError, match=message):
        watch.update(y)
    expected = cusum_paths(path[None])[0][0]
    assert watch.update(path[66]).statistic == expected[66]


def test_bad_options():
    with pytest.raises(ValueError, match="euclidean"):
        Cusum(2, norm="euclid")
    with pytest.raises(ValueError, match="dim"):
        Cusum(0)
