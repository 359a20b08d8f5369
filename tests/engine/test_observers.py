"""Every fold against the same quantity computed from the stored path."""

from __future__ import annotations

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine.observers import Average, CusumPath, Disagreement, at, path, sup_partial_sum

PROBLEM, RING = fg.problems.random_effects(6, seed=5), fg.networks.ring(6)
CENTER = fg.linearize(PROBLEM).optimum


def runs(*observers, n_steps=40, keep="path", **changes):
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)
    return fg.simulate(
        PROBLEM, RING, steps, n_steps, sync_every=4, replicates=7, keep=keep, observe=observers, **changes
    )


@pytest.mark.parametrize("norm", ["euclidean", "max"])
def test_sup_of_partial_sums(norm):
    r = runs(sup_partial_sum(CENTER, norm))
    sums = np.cumsum(r.path.astype(float) - CENTER, axis=1)
    sizes = np.abs(sums).max(axis=2) if norm == "max" else np.linalg.norm(sums, axis=2)
    np.testing.assert_allclose(r.sup_partial_sum, sizes.max(axis=1), rtol=1e-5)


def test_the_name_alone_centres_partial_sums_at_the_optimum():
    np.testing.assert_array_equal(
        runs("sup_partial_sum").sup_partial_sum, runs(sup_partial_sum(CENTER)).sup_partial_sum
    )


def test_cusum_and_its_argmax():
    r = runs(CusumPath(), start=[50.0, -50.0])
    sums = np.cumsum(r.path.astype(float), axis=1)
    for t in range(1, 41):
        s = np.arange(1, t + 1)
        gaps = np.linalg.norm(sums[:, :t] - (s / t)[:, None] * sums[:, t - 1 : t], axis=2)
        np.testing.assert_allclose(r.cusum[:, t - 1], gaps.max(axis=1), rtol=1e-4, atol=1e-4)
        attained = np.take_along_axis(gaps, r.cusum_argmax[:, t - 1 : t] - 1, axis=1)[:, 0]
        np.testing.assert_allclose(attained, gaps.max(axis=1), rtol=1e-4, atol=1e-4)


def test_checkpoints_are_shorter_runs():
    r = runs(at([40, 10, 25], Average()), at([3], Disagreement()), keep=None)
    shorter = {n: runs("disagreement", n_steps=n, keep=None) for n in (40, 10, 25, 3)}  # one program, without paths
    assert r.average_at.shape == (7, 3, 2)
    for row, n in enumerate([40, 10, 25]):
        np.testing.assert_array_equal(r.average_at[:, row], shorter[n].average)
    np.testing.assert_array_equal(r.disagreement_at[:, 0], shorter[3].disagreement)


def test_checkpoints_beyond_the_run_are_refused():
    with pytest.raises(ValueError, match=r"steps must not exceed n_steps = 40; got 41"):
        runs(at([41], Average()))


def test_path_every_few_steps():
    np.testing.assert_array_equal(runs(path(every=6), keep=None).path, runs(CusumPath()).path[:, 5::6])


def test_two_observers_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'disagreement' is observed twice"):
        runs("disagreement", Disagreement())
