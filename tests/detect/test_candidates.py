"""Which onsets are kept: exactly those of the definition, in O(log t) slots."""

import numpy as np
import pytest

from fedgauss.detect.candidates import Candidates, is_candidate
from oracles.detection import kept


@pytest.mark.parametrize("first", [1, 2, 20])
def test_positions_are_those_of_the_definition(first):
    """Catches an eviction a round early or late, which calibration would silently share."""
    candidates = Candidates(width=1, replicates=1, first=first)
    for t in range(2, 700):
        candidates.keep(t - 1, 10 * (t - 1), float(t - 1), np.full((1, 1), float(t - 1)))
        wanted = [s for s in range(first, t) if kept(s, t)]
        assert sorted(candidates.positions) == wanted
        assert all(is_candidate(s, t) for s in wanted)
        # Each slot holds what was put in with its position.
        np.testing.assert_array_equal(candidates.masses, candidates.positions)
        np.testing.assert_array_equal(candidates.steps, 10 * candidates.positions)
        np.testing.assert_array_equal(candidates.sums[:, 0, 0], candidates.positions)


def test_an_age_once_dropped_is_never_a_candidate_again():
    alive = np.array([[is_candidate(s, t) for t in range(s + 1, 600)] + [False] * (s - 1) for s in range(1, 300)])
    assert np.all(np.diff(alive.astype(int), axis=1) <= 0)


def test_the_number_kept_grows_like_the_logarithm():
    """100,000 rounds need fewer than 12 + 6 log2(100,000 / 12) + 6 = 96 positions."""
    candidates = Candidates(width=1, replicates=1, first=1)
    for s in range(1, 100_000):
        candidates.keep(s, s, float(s), np.zeros((1, 1)))
    assert 80 <= len(candidates.positions) <= 96
    ages = 100_000 - np.sort(candidates.positions)
    assert ages.max() > 90_000  # an early onset can still be named
