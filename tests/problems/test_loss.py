"""Any loss by autodiff, and `linearize` on it against the closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgauss as fg

BETA = np.array([[0.5, -0.3], [-0.2, 0.8], [0.1, 0.1]])
RING = fg.networks.ring(3)


def linear_loss(theta, row):
    x, y = row
    return 0.5 * (x @ theta - y) ** 2


def linear_row(key, beta):
    first, second = jax.random.split(key)
    x = jax.random.normal(first, (2,))
    return x, x @ beta + 1.5 * jax.random.normal(second)


def logistic_loss(theta, row):
    x, y = row
    return jax.nn.softplus(x @ theta) - y * (x @ theta)


def logistic_row(key, beta):
    first, second = jax.random.split(key)
    x = jax.random.normal(first, (2,))
    return x, (jax.random.uniform(second) < jax.nn.sigmoid(x @ beta)).astype(float)


CASES = {
    "linear": (fg.problems.from_loss(linear_loss, linear_row, dim=2, clients=BETA), fg.problems.linear(BETA, 2.25)),
    "logistic": (fg.problems.from_loss(logistic_loss, logistic_row, dim=2, clients=BETA), fg.problems.logistic(BETA)),
}


@pytest.mark.parametrize("case", [pytest.param("linear", marks=pytest.mark.study), "logistic"])
def test_linearize_agrees_with_the_closed_forms(case):
    # 4 standard errors from 32 batches, t with 31 degrees of freedom: 3.7e-4 for each of about 30 correlated
    # entries, so the seed is fixed and the test repeats one draw. Catches a Hessian or covariance wrong by 1 %.
    estimated, closed = (fg.linearize(problem) for problem in CASES[case])
    assert not closed.standard_errors
    for name in ("optimum", "hessian", "noise_cov", "client_hessians", "client_noise_cov"):
        gap = np.abs(getattr(estimated, name) - getattr(closed, name))
        assert (gap <= 4 * estimated.standard_errors[name] + 1e-6).all(), name


@pytest.mark.study
def test_standard_errors_are_honest():
    # Over 20 seeds the z-scores of the optimum have variance near 1: chi-squared with 40 degrees of freedom at
    # 1e-5 on either side; 7e-5 in all, because the errors themselves have 31 degrees of freedom. Catches errors
    # wrong by a factor of two; 1.5 it would often miss.
    from scipy import stats

    problem, closed = CASES["logistic"][0], fg.linearize(CASES["logistic"][1])
    scores = []
    for seed in range(20):
        lin = fg.linearize(problem, samples=512, batches=32, seed=seed)
        scores.append((lin.optimum - closed.optimum) / lin.standard_errors["optimum"])
    total = (np.array(scores) ** 2).sum() / 1.07
    assert 1e-5 < stats.chi2.cdf(total, 40) < 1 - 1e-5


def test_gradient_is_the_derivative_of_the_loss():
    problem = CASES["logistic"][0]
    x = np.random.default_rng(0).standard_normal((3, 8, 2)).astype(np.float32)
    y = np.ones((3, 8), np.float32)
    theta = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(np.float32)
    got = np.asarray(problem.gradient(jnp.asarray(theta), (jnp.asarray(x), jnp.asarray(y))))
    scores = np.einsum("krd,dkr->kr", x, theta)
    np.testing.assert_allclose(got, np.moveaxis((1 / (1 + np.exp(-scores)) - 1)[..., None] * x, -1, 0), atol=1e-6)


def test_simulation_of_a_loss_has_the_moments_of_its_closed_form():
    # Two coordinates of a mean over 4,000 runs against the exact recursion: beyond 5 standard errors, 1.2e-6.
    problem, closed = CASES["linear"]
    steps = fg.step_sizes.polynomial(0.3, 0.75)
    exact = fg.theory.exact_moments(closed, RING, steps, 30, 5, np.zeros(2))
    runs = fg.simulate(problem, RING, steps, 30, sync_every=5, replicates=4000)
    z = (runs.average.mean(axis=0) - exact.mean_average) / np.sqrt(np.diag(exact.cov_average) / 4000)
    assert np.abs(z).max() < 5


def test_clients_may_be_a_number():
    problem = fg.problems.from_loss(linear_loss, lambda key, k: linear_row(key, jnp.ones(2) * k), dim=2, clients=4)
    assert problem.n_clients == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": lambda theta, row: row[0] * theta}, r"loss must return one number .* got shape \(2,\)"),
        ({"clients": {"a": np.ones((3, 2)), "b": np.ones(4)}}, "one first axis, the client"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"weights": [1.0]}, r"weights must have shape \(3,\)"),
    ],
)
def test_bad_losses_are_refused(arguments, message):
    defaults = {"loss": linear_loss, "sample": linear_row, "dim": 2, "clients": BETA}
    with pytest.raises(ValueError, match=message):
        fg.problems.from_loss(**(defaults | arguments))
