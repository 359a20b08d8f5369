"""Propositions 2 to 8 as measured slopes."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgauss as fg
from fedgauss._random import Noise, stage_key
from oracles.data import regression_data, standardised_noise
from oracles.local_sgd import local_sgd

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
PROBLEM, RING = fg.problems.random_effects(6, seed=1), fg.networks.ring(6)


@pytest.mark.study
def test_a_copy_differs_from_the_changed_step_on_and_not_before():
    pair = fg.theory.lindeberg(PROBLEM, RING, STEPS, 20, resampled=8, record=range(1, 21), sync_every=4, replicates=3)
    # Both halves are compiled apart, and may round the last bit apart.
    assert pair.mean_gap[:, :7].max() < 1e-6
    assert pair.spread_gap[:, :7].max() < 1e-5
    assert pair.mean_gap[:, 7:].min() > 1e-4


@pytest.mark.study
def test_the_original_of_a_coupled_run_is_the_run():
    both = fg.simulate(fg.problems.coupled(PROBLEM, 5), RING, STEPS, 12, sync_every=4, replicates=3, keep="path")
    alone = fg.simulate(PROBLEM, RING, STEPS, 12, sync_every=4, replicates=3, keep="path")
    np.testing.assert_allclose(both.path[..., :2], alone.path, atol=1e-5)


def test_a_copy_forgets_the_change_on_the_data_of_the_original():
    # With complete mixing at each step D_t = Y_t - Y'_t obeys D_t = (I - eta_t mean_k x_k x_k') D_{t-1} for t > i.
    n, i, complete = 12, 5, fg.networks.complete(6)
    runs = fg.simulate(fg.problems.coupled(PROBLEM, i), complete, STEPS, n, replicates=3, seed=4, keep="path")
    gap = (runs.path[..., :2] - runs.path[..., 2:]).astype(float)  # (R, n, d)
    x, _ = regression_data(PROBLEM, n, 3, seed=4)
    assert np.abs(gap[:, i - 1]).min() > 1e-3
    for t in range(i + 1, n + 1):
        squares = np.einsum("kir,kjr->rij", x[t - 1], x[t - 1]) / 6
        expected = gap[:, t - 2] - STEPS.eta(n)[t - 1] * np.einsum("rij,rj->ri", squares, gap[:, t - 2])
        np.testing.assert_allclose(gap[:, t - 1], expected, atol=1e-5)


@pytest.mark.parametrize("phase", [0, 1])
def test_a_coupling_is_that_of_two_float64_runs(phase):
    n, i, seed, r = 14, 6, 4, 3
    pair = fg.theory.lindeberg(
        PROBLEM,
        RING,
        STEPS,
        n,
        resampled=i,
        record=range(1, n + 1),
        sync_every=4,
        sync_phase=phase,
        replicates=r,
        seed=seed,
    )
    x, y = regression_data(PROBLEM, n, r, seed)
    other_x, other_y = x.copy(), y.copy()
    noise = Noise(stage_key(seed, "data"), jnp.uint32(0), 6, r).at_step(jnp.int32(i))
    fresh_x, fresh_y = jax.jit(lambda: PROBLEM.sample(noise.stream("lindeberg"), jnp.int32(i)))()
    other_x[i - 1], other_y[i - 1] = np.asarray(fresh_x).transpose(1, 0, 2), fresh_y
    assert np.abs(other_x[i - 1] - x[i - 1]).min() > 1e-6

    optimum = fg.linearize(PROBLEM).optimum
    identity = np.broadcast_to(np.eye(2), (6, 2, 2))
    schedule = (STEPS.eta(n), fg.step_sizes.sync_mask(4, n, phase))
    fixed = (PROBLEM.coefficients, PROBLEM.noise_var, identity, PROBLEM.weights, RING.matrix, *schedule, optimum)
    run, copy = (
        local_sgd(*fixed, rows, standardised_noise(PROBLEM, rows, responses))[1:]
        for rows, responses in ((x, y), (other_x, other_y))
    )  # (n, K, d, R)

    def apart(theta):
        return np.sqrt(((theta - theta.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2))).T

    def length(vector):
        return np.linalg.norm(vector, axis=1).T

    expected = {
        "mean_gap": length((run - copy).mean(axis=1)),
        "spread_gap": apart(run - copy),
        "spread": apart(run),
        "error": length(run.mean(axis=1) - optimum[:, None]),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(pair, name), values, atol=1e-5, err_msg=name)


def slopes_of(*setting, **options):
    return {slope.proposition: slope for slope in fg.theory.measure_propositions(*setting, **options)}


@pytest.mark.study
def test_slopes():
    # Bands are 0.35 wide against Monte-Carlo errors of at most 0.07: false failure below 1e-6.
    slopes = slopes_of(PROBLEM, RING, STEPS, 600, sync_every=5, replicates=2000)
    assert abs(slopes[4].measured - 2) < 0.35
    assert abs(slopes[8].measured - 4) < 0.35
    assert abs(slopes[6].measured - 4) < 0.5
    assert slopes[7].measured > 2 - 0.35
    # Proposition 5 prints eta^4 for all t > i. Until a few mixings have passed the copies keep what is left of the
    # difference that step i made, which is rho^(2r) eta_i^2 after r of them.
    assert abs(slopes[5].measured - 2) < 0.35
    assert str(slopes[5]).endswith("slower")
    assert str(slopes[4]).endswith(": as printed")


@pytest.mark.study
def test_proposition_5_holds_long_after_the_change():
    # rho^(2r) is 0.09 after one mixing and 4e-9 after eight. Monte-Carlo errors of the slopes: 0.03 and 0.06.
    # Optimum near zero, where float32 still tells apart differences of 1e-7.
    centred = fg.problems.random_effects(6, seed=1, center=(0.0, 0.0))
    soon, late = (
        slopes_of(centred, fg.networks.lazy(6, 0.3), STEPS, 2000, lag=lag, replicates=500)[5] for lag in (1, 8)
    )
    assert abs(soon.measured - 2) < 0.3
    assert soon.verdict == "slower"
    assert abs(late.measured - 4) < 0.4
    assert late.verdict == "as printed"


@pytest.mark.parametrize(
    ("clients", "tau"), [(6, 1), *(pytest.param(*pair, marks=pytest.mark.study) for pair in [(1, 1), (1, 2), (6, 2)])]
)
def test_spread_that_is_rounding_alone_is_called_zero(clients, tau):
    problem, complete = fg.problems.random_effects(clients, seed=1), fg.networks.complete(clients)
    slopes = slopes_of(problem, complete, STEPS, 100, sync_every=tau, replicates=100)
    for proposition in (5, 6):
        assert str(slopes[proposition]).endswith("identically zero")
        assert "slower" not in str(slopes[proposition])
    assert np.isfinite(slopes[4].measured)


def test_verdicts():
    slope = fg.theory.Slope(4, "E", 2.0, 2.0, 0.01)
    assert slope.verdict == "as printed"
    assert replace(slope, measured=2.5).verdict == "at least as fast as printed"
    assert replace(slope, measured=1.5).verdict == "slower"
    assert replace(slope, measured=1.5, standard_error=0.2).verdict == "as printed"


def test_changes_need_room():
    with pytest.raises(ValueError, match=r"changes after two mixings.*got 20 with sync_every = 30 and lag = 1"):
        fg.theory.measure_propositions(PROBLEM, RING, STEPS, 20, sync_every=30)
    with pytest.raises(ValueError, match=r"lag must be at least 1; got 0"):
        fg.theory.measure_propositions(PROBLEM, RING, STEPS, 20, lag=0)


def test_the_step_matrices_settle_as_s_to_the_beta_minus_one():
    design = np.array([[2.0, 0.5], [0.5, 1.5]])
    for problem in (PROBLEM, fg.problems.random_effects(6, seed=1, design_cov=design)):
        lin = fg.linearize(problem)
        early, late = (fg.theory.step_variation(lin, STEPS, n)[0] for n in (10_000, 100_000))
        assert late < 1.02 * early  # Proposition 2 prints log n, which grows by 25 % here
        gaps = fg.theory.step_variation(lin, STEPS, 200_000)[1]
        slope = np.diff(np.log(gaps[[9_999, 39_999]]))[0] / np.log(4)
        assert abs(slope - (0.75 - 1)) < 0.08  # Proposition 3 prints -1
