"""Simulated regressions: their gradients, their moments, and the responses they draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss._random import Noise, stage_key

RNG = np.random.default_rng(4)
BETA = 0.5 * RNG.standard_normal((3, 2))
COV = np.array([[1.5, 0.4], [0.4, 0.8]])
THETA = np.array([0.3, -0.2])

CASES = {
    "linear": fg.problems.linear(BETA, [1.0, 2.0, 3.0], COV),
    "linear, Student noise": fg.problems.linear(BETA, [1.0, 2.0, 3.0], df=6),
    "logistic": fg.problems.logistic(BETA, COV),
    "poisson": fg.problems.poisson(0.6 * BETA, COV),
    "huber": fg.problems.huber(BETA, [1.0, 2.0, 3.0], COV),
    "huber, narrow": fg.problems.huber(BETA, 0.5, threshold=0.3),
    "logistic, strong signal": fg.problems.logistic(10 * BETA, COV),
}


def drawn(problem, replicates, seed=0):
    noise = Noise(stage_key(seed, "data"), jnp.uint32(0), problem.n_clients, replicates)
    return jax.jit(lambda: problem.sample(noise.at_step(jnp.int32(1)), jnp.int32(1)))()


def responses(problem, predictor, seed):
    """Of one client, a replicate each."""
    noise = Noise(stage_key(seed, "data"), jnp.uint32(0), 1, predictor.shape[-1])
    return np.asarray(jax.jit(lambda at: problem.family.respond(at, noise, jnp.zeros(1)))(predictor)).ravel()


def spread(theta, problem, replicates):
    column = np.asarray(theta, np.float32)[:, None, None]
    return np.broadcast_to(column, (problem.dim, problem.n_clients, replicates))


@pytest.mark.parametrize("case", CASES)
def test_moments_are_those_of_drawn_gradients(case):
    # z-scores of 3 clients x (2 means + 3 covariances). False failure: 15 beyond 5.2 (heavy-tailed products
    # allow for t rather than normal tails), below 1e-5. Catches a covariance wrong by 2 to 5 %, Poisson 4 to 14 %.
    problem = CASES[case]
    data = drawn(problem, 200_000)
    gradients = np.asarray(jax.jit(problem.gradient)(spread(THETA, problem, 200_000), data), float)
    exact = problem.moments(THETA)
    for k in range(3):
        g = gradients[:, k] - exact.gradient[k][:, None]
        products = np.stack([g[0], g[1], g[0] ** 2, g[1] ** 2, g[0] * g[1]])
        cov = exact.noise_cov[k]
        target = np.array([0, 0, cov[0, 0], cov[1, 1], cov[0, 1]])
        z = (products.mean(axis=1) - target) / (products.std(axis=1) / np.sqrt(200_000))
        assert np.abs(z).max() < 5.2


@pytest.mark.parametrize("case", CASES)
def test_mean_gradient_is_the_gradient_of_the_moments(case):
    problem = CASES[case]
    got = jax.jit(problem.mean_gradient)(spread(THETA, problem, 1))[:, :, 0].T
    np.testing.assert_allclose(got, problem.moments(THETA).gradient, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_hessian_is_the_derivative_of_the_gradient(case):
    problem = CASES[case]
    step = 1e-4
    for j in range(2):
        e = step * np.eye(2)[j]
        slope = (problem.moments(THETA + e).gradient - problem.moments(THETA - e).gradient) / (2 * step)
        np.testing.assert_allclose(slope, problem.moments(THETA).hessian[:, :, j], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("make", [fg.problems.logistic, fg.problems.poisson, fg.problems.huber])
def test_directions_outside_the_plane_of_theta_and_beta_count_too(make):
    # In four dimensions x has a part that neither predictor sees; dropping it leaves these matrices singular.
    rng = np.random.default_rng(8)
    root = rng.standard_normal((4, 8))
    problem, theta = make(0.3 * rng.standard_normal((2, 4)), design_cov=root @ root.T / 8), 0.2 * np.ones(4)
    step = 1e-4
    for j in range(4):
        e = step * np.eye(4)[j]
        slope = (problem.moments(theta + e).gradient - problem.moments(theta - e).gradient) / (2 * step)
        np.testing.assert_allclose(slope, problem.moments(theta).hessian[:, :, j], rtol=1e-5, atol=1e-7)
    assert np.linalg.eigvalsh(problem.moments(theta).noise_cov).min() > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_the_optimum_has_no_gradient(case):
    lin = fg.linearize(CASES[case])
    np.testing.assert_allclose(lin.weights @ CASES[case].moments(lin.optimum).gradient, 0.0, atol=1e-7)


def test_linear_closed_forms():
    weights = np.array([0.2, 0.3, 0.5])
    covs = np.stack([COV, np.eye(2), 2 * np.eye(2)])
    lin = fg.linearize(fg.problems.linear(BETA, [1.0, 2.0, 3.0], covs, weights))
    hessian = sum(w * h for w, h in zip(weights, covs, strict=True))
    np.testing.assert_allclose(lin.hessian, hessian)
    optimum = np.linalg.solve(hessian, sum(w * h @ b for w, h, b in zip(weights, covs, BETA, strict=True)))
    np.testing.assert_allclose(lin.optimum, optimum)
    delta = BETA[0] - optimum
    noise = (1.0 + delta @ COV @ delta) * COV + np.outer(COV @ delta, COV @ delta)
    np.testing.assert_allclose(lin.client_noise_cov[0], noise)
    np.testing.assert_allclose(lin.noise_cov, np.einsum("k,kij->ij", weights**2, lin.client_noise_cov))


def test_random_effects_defaults():
    problem = fg.problems.random_effects(2000, 3, heterogeneity=0.0, seed=3)
    np.testing.assert_array_equal(problem.coefficients, np.broadcast_to([2.0, -3.0, 2.0], (2000, 3)))
    assert set(np.unique(problem.noise_var)) == {1.0, 2.0, 3.0, 4.0, 5.0}


def test_random_effects_spread_clients_by_their_covariance():
    # False failure below 1e-5: variances of 20,000 normals, 1 % standard error, within 7 % and 14 %.
    gamma = np.array([[2.0, 0.6], [0.6, 0.5]])
    beta = fg.problems.random_effects(20_000, 2, heterogeneity=gamma, seed=3, center=[0.0, 0.0]).coefficients
    np.testing.assert_allclose(np.cov(beta.T), gamma, rtol=0.045, atol=0.045)


def test_student_noise_has_its_distribution():
    # False failure 1e-5 (Kolmogorov). Catches Gaussian noise of the same variance: D = .02 is 10 times the floor.
    problem = fg.problems.linear(np.zeros((2, 1)), 4.0, df=5)
    _, y = drawn(problem, 100_000)
    scaled = np.asarray(y).ravel() / 2.0 / np.sqrt(3 / 5)
    assert stats.kstest(scaled, stats.t(5).cdf).pvalue > 1e-5
    assert stats.kstest(scaled * np.sqrt(3 / 5), "norm").pvalue < 1e-10


@pytest.mark.parametrize("mean", [0.1, 3.0, 40.0, 90.0])
def test_poisson_counts_have_their_distribution(mean):
    # Chi-squared at 2.5e-5 each, 1e-4 together. Above 64 the quantile is an expansion, good to this many draws.
    problem = fg.problems.poisson(np.zeros((1, 1)))
    y = responses(problem, np.full((1, 1, 50_000), np.log(mean), np.float32), seed=1)
    low, high = stats.poisson(mean).ppf([0.001, 0.999]).astype(int)
    seen = np.bincount(np.clip(y, low, high).astype(int) - low, minlength=high - low + 1)
    expected = stats.poisson(mean).pmf(np.arange(low, high + 1))
    expected[0], expected[-1] = stats.poisson(mean).cdf(low), stats.poisson(mean).sf(high - 1)
    assert stats.chisquare(seen, expected / expected.sum() * len(y)).pvalue > 2.5e-5


def test_one_versus_rest_is_one_logistic_loss_a_class():
    problem = fg.problems.one_versus_rest(RNG.standard_normal((2, 3, 2)))
    assert problem.dim == 6
    x, y = drawn(problem, 50)
    theta = RNG.standard_normal((6, 2, 50)).astype(np.float32)
    gradient = np.asarray(jax.jit(problem.gradient)(theta, (x, y))).reshape(3, 2, 2, 50)
    for c in range(3):
        scores = (theta.reshape(3, 2, 2, 50)[c] * np.asarray(x)).sum(axis=0)
        residual = 1 / (1 + np.exp(-scores)) - (np.asarray(y) == c)
        np.testing.assert_allclose(gradient[c], residual * np.asarray(x), atol=2e-6)


def test_one_versus_rest_draws_classes_by_softmax():
    # False failure 1e-5 (chi-squared on three classes at one fixed score).
    problem = fg.problems.one_versus_rest(np.zeros((1, 3, 2)))
    scores = np.array([0.0, 1.0, -1.0])
    predictor = np.broadcast_to(np.asarray(scores, np.float32)[:, None, None], (3, 1, 30_000))
    y = responses(problem, predictor, seed=2)
    p = np.exp(scores) / np.exp(scores).sum()
    assert stats.chisquare(np.bincount(y.astype(int), minlength=3), 30_000 * p).pvalue > 1e-5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fg.problems.random_effects(0), "n_clients must be at least 1; got 0"),
        (lambda: fg.problems.random_effects(3, heterogeneity=-1.0), "must not be negative; got -1"),
        (lambda: fg.problems.random_effects(3, heterogeneity=np.eye(3)), r"a \(2, 2\) matrix; got shape \(3, 3\)"),
        (lambda: fg.problems.random_effects(3, center=[1.0]), r"center must have shape \(2,\)"),
        (lambda: fg.problems.linear(np.ones(3)), "coefficients must have shape"),
        (lambda: fg.problems.linear([[1.0, np.nan]]), r"finite; got nan at index \(0, 1\)"),
        (lambda: fg.problems.linear(BETA, [1.0, 2.0]), r"noise_var must be a number or have shape \(3,\); got \(2,\)"),
        (lambda: fg.problems.linear(BETA, -1.0), "noise_var must not be negative; the smallest is -1"),
        (lambda: fg.problems.linear(BETA, 1.0, [[1, 2], [2, 1]]), "positive definite; its smallest eigenvalue is -1"),
        (lambda: fg.problems.linear(BETA, 1.0, [[1, 0.5], [0, 1]]), "must be symmetric"),
        (lambda: fg.problems.linear(BETA, 1.0, np.eye(3)), r"design_cov must have shape \(2, 2\)"),
        (lambda: fg.problems.linear(BETA, weights=[0.5, 0.5, 0.5]), "weights must sum to 1; they sum to 1.5"),
        (lambda: fg.problems.linear(BETA, weights=[0.5, 0.6, -0.1]), "weights must be positive; client 2 has -0.1"),
        (lambda: fg.problems.linear(BETA, df=2.0), "df must be greater than 2; got 2"),
        (lambda: fg.problems.huber(BETA, threshold=0.0), "threshold must be greater than 0"),
        (lambda: fg.problems.one_versus_rest(np.ones((2, 1, 2))), "the number of classes must be at least 2"),
    ],
)
def test_bad_problems_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
