"""Attacks on chosen clients: the honest run before, the stated law after."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgauss as fg
from fedgauss._random import Noise, stage_key
from fedgauss.engine.loop import advance

RNG = np.random.default_rng(0)
STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
RING = fg.networks.ring(4)
WEIGHTS = [0.1, 0.2, 0.3, 0.4]
HONEST = fg.problems.linear(RNG.standard_normal((4, 2)), [1.0, 2.0, 3.0, 4.0], weights=WEIGHTS)
X = np.column_stack([RNG.standard_normal((400, 2)), np.ones(400)])
LABELS = np.digitize(X[:, 0] + RNG.standard_normal(400), [-0.5, 0.5]).astype(float)
ROWS = fg.problems.from_arrays(X, LABELS, np.arange(400) % 4, "one_versus_rest", order="replacement")
BAD = [1, 3]

ATTACKS = {
    "mean_shift": lambda start: fg.problems.mean_shift(HONEST, BAD, [1.0, -0.5], start),
    "label_flip": lambda start: fg.problems.label_flip(ROWS, BAD, start, pairs=[(0, 2)]),
    "sign_flip": lambda start: fg.problems.sign_flip(HONEST, BAD, start),
    "gradient_scaling": lambda start: fg.problems.gradient_scaling(HONEST, BAD, 2.5, start),
    "gradient_noise": lambda start: fg.problems.gradient_noise(HONEST, BAD, [3.0, 1.0], start),
    "little_is_enough": lambda start: fg.problems.little_is_enough(HONEST, BAD, 1.5, start),
    "inner_product_manipulation": lambda start: fg.problems.inner_product_manipulation(HONEST, BAD, 0.8, start),
}
THETA = {HONEST: np.array([0.7, -0.4]), ROWS: np.linspace(-1, 1, 9)}


def path(problem, n=60):
    runs = fg.simulate(problem, RING, STEPS, n, sync_every=5, replicates=8, start="zeros", keep="path")
    return runs.path


@partial(jax.jit, static_argnames="draws")
def client_gradients(attack, t, theta, draws):
    noise = Noise(stage_key(3, "data"), jnp.uint32(0), attack.n_clients, draws).at_step(t)
    point = jnp.broadcast_to(theta[:, None, None], (attack.dim, attack.n_clients, draws))
    return attack.gradient(point, attack.sample(noise, t))


def averaged_gradients(attack, t, theta, draws=40_000):
    """sum_k w_k g_k at one theta and step t, (draws, d), and the client gradients (d, K, draws)."""
    clients = np.asarray(client_gradients(attack, jnp.int32(t), jnp.asarray(theta, jnp.float32), draws), dtype=float)
    return np.einsum("k,dkr->rd", np.asarray(attack.weights), clients), clients


def largest_z(draws, mean, cov):
    """Of every entry of mean and covariance, in standard errors of the sample."""
    n = len(draws)
    centred = draws - mean
    products = np.einsum("ri,rj->rij", centred, centred).reshape(n, -1)
    gaps = np.concatenate([centred.mean(axis=0), products.mean(axis=0) - cov.ravel()])
    errors = np.concatenate([centred.std(axis=0), products.std(axis=0)]) / np.sqrt(n)
    return np.abs(gaps / np.maximum(errors, 1e-6)).max()


@pytest.mark.parametrize("name", ATTACKS)
def test_until_it_begins_an_attack_leaves_every_bit_of_the_honest_run(name):
    attack = ATTACKS[name](30)
    honest, attacked = path(attack.problem), path(attack)
    np.testing.assert_array_equal(honest[:, :29], attacked[:, :29])
    assert np.abs(honest[:, 29:] - attacked[:, 29:]).max(axis=(0, 2)).min() > 1e-4


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_has_the_mean_and_covariance_that_it_states(name):
    # Monte Carlo over 40,000 draws. False failure: 180 entries in nine dimensions and 6 x 12 in two, each beyond 5.2
    # standard errors with chance 2e-7: 5e-5 in all. Catches a colluder counted as independent, a lost weight, an
    # attack on the wrong clients or one step early.
    attack = ATTACKS[name](30)
    theta = THETA[attack.problem]
    before, _ = averaged_gradients(attack, 29, theta)
    honest = attack.problem.moments(theta)
    weights = np.asarray(attack.weights)
    cov = np.einsum("k,kij->ij", weights**2, honest.noise_cov)
    assert largest_z(before, weights @ honest.gradient, cov) < 5.2
    after, _ = averaged_gradients(attack, 30, theta)
    law = attack.attacked_mean(theta)
    assert largest_z(after, law.gradient, law.noise_cov) < 5.2
    np.testing.assert_allclose(law.gradient - weights @ honest.gradient, attack.mean_effect(theta))


@pytest.mark.parametrize("name", ATTACKS)
def test_attacked_clients_have_the_moments_that_the_attack_states(name):
    # Mean and variance of each client's gradient over 40,000 draws: 72 entries in nine dimensions and 6 x 16 in two,
    # each beyond 5.2 standard errors with chance 2e-7: 4e-5 in all. Catches moments forged for honest clients.
    attack = ATTACKS[name](1)
    theta = THETA[attack.problem]
    _, clients = averaged_gradients(attack, 1, theta)
    moments = attack.attacked_moments(theta)
    for k in range(4):
        errors = np.sqrt(np.diagonal(moments.noise_cov[k]) / 40_000)
        assert np.abs((clients[:, k].mean(axis=1) - moments.gradient[k]) / errors).max() < 5.2
        variance = clients[:, k].var(axis=1)
        spread = ((clients[:, k] - moments.gradient[k][:, None]) ** 2).std(axis=1) / 200
        assert np.abs((variance - np.diagonal(moments.noise_cov[k])) / spread).max() < 5.2


@pytest.mark.parametrize("name", ATTACKS)
def test_only_attacks_that_say_so_preserve_the_mean(name):
    attack = ATTACKS[name](30)
    moved = np.abs(attack.mean_effect(THETA[attack.problem])).max()
    assert attack.preserves_mean == (name == "gradient_noise")
    assert (moved < 1e-12) == attack.preserves_mean
    assert attack.clients == (1, 3)
    np.testing.assert_allclose(fg.linearize(attack).optimum, fg.linearize(attack.problem).optimum)


def test_shifts_that_cancel_preserve_the_mean_when_hessians_are_equal():
    attack = fg.problems.mean_shift(HONEST, [1, 3], [[2.0, -4.0], [-1.0, 2.0]], 30)  # w = .2 and .4
    np.testing.assert_allclose(attack.mean_effect(THETA[HONEST]), 0.0, atol=1e-12)
    assert np.abs(attack.attacked_moments(THETA[HONEST]).gradient - HONEST.moments(THETA[HONEST]).gradient).max() > 1


def test_scaling_keeps_the_mean_only_where_the_clients_own_optimum_is():
    same = fg.problems.linear(np.tile([1.0, 2.0], (4, 1)))
    attack = fg.problems.sign_flip(same, BAD, 5)
    np.testing.assert_allclose(attack.mean_effect(np.array([1.0, 2.0])), 0.0)
    assert np.abs(attack.mean_effect(np.array([1.5, 2.0]))).max() > 0.1


def test_a_mean_shift_is_the_papers_attack_row_for_row():
    beta = HONEST.coefficients.copy()
    beta[BAD] += [1.0, -0.5]
    other = fg.problems.linear(beta, HONEST.noise_var, weights=WEIGHTS)
    changed = fg.problems.change_at(HONEST, other, 30)
    np.testing.assert_allclose(path(ATTACKS["mean_shift"](30)), path(changed), atol=2e-5)
    theta = THETA[HONEST]
    for ours, theirs in zip(ATTACKS["mean_shift"](30).attacked_moments(theta), other.moments(theta), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_flipped_labels_are_those_of_flipped_rows():
    attack = fg.problems.label_flip(ROWS, BAD, 1, pairs=[(0, 2)])
    flipped = fg.problems.from_arrays(
        X, np.where(np.isin(np.arange(400) % 4, BAD), 2 - LABELS, LABELS), np.arange(400) % 4, "one_versus_rest",
        order="replacement",
    )  # fmt: skip
    np.testing.assert_allclose(path(attack), path(flipped), atol=1e-6)


def test_logistic_labels_are_flipped_without_naming_the_pair():
    problem = fg.problems.logistic(HONEST.coefficients)
    attack = fg.problems.label_flip(problem, [0], 1)
    theta = np.array([0.3, 0.1])
    _, honest = averaged_gradients(attack, 1, theta, draws=64)
    _, forged = averaged_gradients(fg.problems.label_flip(problem, [1], 1), 1, theta, draws=64)
    # sigmoid - y and sigmoid - (1 - y) have different signs, so flipped gradients point the other way.
    assert np.all(np.sign(honest[0, 1]) == -np.sign(forged[0, 1]))
    assert attack.attacked_moments(theta) is None
    assert attack.mean_effect(theta) is None


def test_schedules_say_when():
    def intensities(schedule, n=12):
        return [float(schedule.intensity(jnp.int32(t))) for t in range(1, n + 1)]

    assert intensities(fg.problems.from_step(5)) == [0] * 4 + [1] * 8
    assert intensities(fg.problems.from_step(5, until=7)) == [0] * 4 + [1, 1] + [0] * 6
    np.testing.assert_allclose(intensities(fg.problems.slow_drift(5, over=4)), [0] * 4 + [0.25, 0.5, 0.75] + [1] * 5)
    assert intensities(fg.problems.on_off(5, on=2, off=3)) == [0] * 4 + [1, 1, 0, 0, 0, 1, 1, 0]


def test_half_a_drift_is_half_an_attack():
    # One step into a drift of two the shift is half as large, and half the labels are flipped. Label means over
    # 40,000 draws: 9 entries beyond 5 standard errors, 5e-6.
    drift = fg.problems.slow_drift(7, over=2)
    half, whole = (fg.problems.mean_shift(HONEST, BAD, mu, s) for mu, s in [(1.0, drift), (0.5, 7)])
    theta = THETA[HONEST]
    np.testing.assert_allclose(*(averaged_gradients(a, 7, theta)[1] for a in (half, whole)), atol=1e-5)
    flip = ATTACKS["label_flip"](drift)
    honest, full = (flip.problem.moments(THETA[ROWS]).gradient, flip.attacked_moments(THETA[ROWS]).gradient)
    draws, _ = averaged_gradients(flip, 7, THETA[ROWS])
    gap = draws.mean(axis=0) - np.asarray(ROWS.weights) @ (honest + full) / 2
    assert np.abs(gap / (draws.std(axis=0) / 200)).max() < 5


def test_an_attack_that_pauses_runs_honest_steps():
    attack = ATTACKS["gradient_scaling"](fg.problems.on_off(4, on=1, off=2))
    theta = THETA[HONEST]
    for t, factor in [(3, 1.0), (4, 2.5), (5, 1.0), (6, 1.0), (7, 2.5)]:
        _, got = averaged_gradients(attack, t, theta)
        _, honest = averaged_gradients(fg.problems.gradient_scaling(HONEST, BAD, 1.0, 1), t, theta)
        np.testing.assert_allclose(got[:, BAD], factor * honest[:, BAD], rtol=1e-6)
        np.testing.assert_array_equal(got[:, [0, 2]], honest[:, [0, 2]])


def test_a_sweep_over_strengths_onsets_and_clients_compiles_once():
    def run(clients, factor, start):
        path(fg.problems.gradient_scaling(HONEST, clients, factor, start))

    run([0], 2.0, 5)
    known = advance._cache_size()
    run([1, 2], -3.0, 9)
    run([3], 0.5, fg.problems.on_off(2, on=3, off=1))
    assert advance._cache_size() == known


def test_strengths_run_together_as_they_run_alone():
    attacks = [fg.problems.mean_shift(HONEST, BAD, mu, 5) for mu in (0.0, 1.0, 2.0)]
    settings = [fg.Setting(attack, RING, STEPS, 5).keeping("path") for attack in attacks]
    for attack, runs in zip(attacks, fg.simulate_together(settings, 60, replicates=8), strict=True):
        np.testing.assert_array_equal(runs.path, path(attack))


def test_the_attacker_knows_the_honest_spread():
    attack = ATTACKS["little_is_enough"](30)
    lin = fg.linearize(HONEST)
    sd = np.sqrt(np.diagonal(lin.client_noise_cov[[0, 2]].mean(axis=0)))
    np.testing.assert_allclose(attack.offset, 1.5 * sd)
    np.testing.assert_allclose(fg.problems.little_is_enough(HONEST, BAD, 2.0, 30, spread=[1.0, 3.0]).offset, [2.0, 6.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.sign_flip(HONEST, [0], 0), "start must be at least 1; got 0. Steps count from 1"),
        (lambda p: p.sign_flip(HONEST, [0], 2.5), "start must be a whole number; got 2.5"),
        (lambda p: p.sign_flip(HONEST, [4], 5), "clients must be at most 3; got 4. Clients are numbered 0 to 3"),
        (lambda p: p.sign_flip(HONEST, [-1], 5), "clients must be at least 0; got -1"),
        (lambda p: p.sign_flip(HONEST, [], 5), "at least one client"),
        (lambda p: p.sign_flip(HONEST, [1, 1], 5), "each client once"),
        (lambda p: p.sign_flip(HONEST, 1, 5), r"clients must list client numbers; got 1. Use \[1\]"),
        (lambda p: p.sign_flip(np.eye(2), [1], 5), "problem must be made by fedgauss.problems; got ndarray"),
        (lambda p: p.gradient_scaling(HONEST, [1], np.inf, 5), "factor must be finite; got inf"),
        (lambda p: p.mean_shift(HONEST, [1], np.nan, 5), "shift must be finite; got nan"),
        (lambda p: p.mean_shift(HONEST, [1], [1.0] * 3, 5), r"shift must be a number or have shape \(2,\) or \(1, 2\)"),
        (lambda p: p.gradient_noise(HONEST, [1], -1.0, 5), "sd must not be negative; the smallest is -1"),
        (lambda p: p.gradient_noise(HONEST, [1], [1.0] * 3, 5), r"sd must be a number or have shape \(2,\)"),
        (lambda p: p.little_is_enough(HONEST, range(4), 1.0, 5), "at least one of 4 clients must stay honest"),
        (lambda p: p.little_is_enough(HONEST, [1], np.nan, 5), "z must be finite"),
        (lambda p: p.inner_product_manipulation(HONEST, range(4), 1.0, 5), "must stay honest"),
        (lambda p: p.inner_product_manipulation(HONEST, [0], "much", 5), "epsilon must be a real number; got .much."),
        (lambda p: p.label_flip(HONEST, [0], 5), "label_flip needs responses that are classes; got <Regression"),
        (lambda p: p.label_flip(ROWS, [0], 5), "pairs must say which of 3 classes are swapped"),
        (lambda p: p.label_flip(ROWS, [0], 5, pairs=[(0, 3)]), "a class of pairs must be at most 2; got 3"),
        (lambda p: p.label_flip(ROWS, [0], 5, pairs=[(0, 1), (1, 2)]), "no class twice"),
        (lambda p: p.label_flip(ROWS, [0], 5, pairs=[]), "pairs must name two classes each"),
        (lambda p: p.from_step(5, until=5), "until must come after start = 5; got 5"),
        (lambda p: p.slow_drift(5, over=0), "over must be at least 1 step; got 0"),
        (lambda p: p.slow_drift(5, over=np.inf), "over must be finite"),
        (lambda p: p.on_off(5, on=0, off=3), "on must be at least 1; got 0"),
        (lambda p: p.on_off(5, on=3, off=0), "off must be at least 1; got 0. Use from_step"),
    ],
)
def test_bad_attacks_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(fg.problems)
