"""Propositions 2 to 8 as measured slopes."""

from __future__ import annotations

import numpy as np

import fedgauss as fg

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
PROBLEM, RING = fg.problems.random_effects(6, seed=1), fg.networks.ring(6)


def test_a_copy_differs_from_the_changed_step_on_and_not_before():
    pair = fg.theory.lindeberg(PROBLEM, RING, STEPS, 20, resampled=8, record=range(1, 21), sync_every=4, replicates=3)
    # Both halves are compiled apart, and may round the last bit apart.
    assert pair.mean_gap[:, :7].max() < 1e-6
    assert pair.spread_gap[:, :7].max() < 1e-5
    assert pair.mean_gap[:, 7:].min() > 1e-4


def test_the_original_of_a_coupled_run_is_the_run():
    both = fg.simulate(fg.problems.coupled(PROBLEM, 5), RING, STEPS, 12, sync_every=4, replicates=3, keep="path")
    alone = fg.simulate(PROBLEM, RING, STEPS, 12, sync_every=4, replicates=3, keep="path")
    np.testing.assert_allclose(both.path[..., :2], alone.path, atol=1e-5)


def test_slopes():
    # Bands are 0.35 wide against Monte-Carlo errors of at most 0.07: false failure below 1e-6.
    slopes = {
        s.proposition: s
        for s in fg.theory.measure_propositions(PROBLEM, RING, STEPS, 600, sync_every=5, replicates=2000)
    }
    assert abs(slopes[4].measured - 2) < 0.35
    assert abs(slopes[8].measured - 4) < 0.35
    assert abs(slopes[6].measured - 4) < 0.5
    assert slopes[7].measured > 2 - 0.35
    # Proposition 5 prints eta^4. Between mixings the copies keep the difference that one step made, which is eta^2.
    assert abs(slopes[5].measured - 2) < 0.35
    assert "slower" in str(slopes[5])
    assert "as printed" in str(slopes[4])


def test_the_step_matrices_settle_as_s_to_the_beta_minus_one():
    lin = fg.linearize(PROBLEM)
    variation = [fg.theory.step_variation(lin, STEPS, n)[0] / np.log(n) for n in (100, 1000, 10_000)]
    assert max(variation) < 2 * min(variation)  # Proposition 2: O(log n)
    gaps = fg.theory.step_variation(lin, STEPS, 200_000)[1]
    slope = np.diff(np.log(gaps[[9_999, 39_999]]))[0] / np.log(4)
    assert abs(slope - (0.75 - 1)) < 0.05  # Proposition 3 prints -1
