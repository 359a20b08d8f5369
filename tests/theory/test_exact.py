from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedgauss import networks, problems, step_sizes
from fedgauss._linearization import linearization
from fedgauss.theory import covariances as cv
from fedgauss.theory.exact import exact_moments, exact_path, mean_recursion
from oracles.local_sgd import local_sgd

STEPS = step_sizes.polynomial(0.3, beta=0.75)


def random_model(n_clients: int = 3, dim: int = 2, seed: int = 0, spread: float = 1.0) -> Any:
    """A linear model in which everything differs between clients."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n_clients, dim, dim))
    weights = rng.uniform(0.5, 1.5, n_clients)
    return SimpleNamespace(
        coefficients=1.0 + spread * rng.standard_normal((n_clients, dim)),
        noise_var=rng.uniform(0.5, 2.0, n_clients),
        design_cov=g @ np.swapaxes(g, 1, 2) / dim + 0.3 * np.eye(dim),
        weights=weights / weights.sum(),
    )


def oracle_path(model: Any, network: networks.Network, eta: np.ndarray, mask: np.ndarray, start: Any, rng, replicates):
    n, (k, d) = len(eta), model.coefficients.shape
    x, noise = rng.standard_normal((n, k, d, replicates)), rng.standard_normal((n, k, replicates))
    fixed = (model.coefficients, model.noise_var, model.design_cov, model.weights, network.matrix)
    return local_sgd(*fixed, eta, mask, start, x, noise)


def z_scores(sample: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Standardised gaps of the sample (R, m) from an exact mean (m,) and covariance (m, m)."""
    centred = sample - mean
    upper = np.triu_indices(len(mean))
    moments = np.concatenate([centred, centred[:, upper[0]] * centred[:, upper[1]]], axis=1)
    target = np.concatenate([np.zeros(len(mean)), cov[upper]])
    return (moments.mean(axis=0) - target) / (moments.std(axis=0) / np.sqrt(len(sample)))


@pytest.mark.parametrize("own_steps", [False, True])
def test_moments_agree_with_simulation(own_steps: bool) -> None:
    # False failure: 37 z-scores beyond 5, at most 2.2e-5 by the union bound.
    # It catches a wrong covariance recursion: leaving out any part of N_k (H M H, tr(H M) H, sigma^2 H, and
    # P or Delta Delta' in M), or mixing P from one side only, moves some z-score beyond 25.
    rng = np.random.default_rng(7)
    model, network, n, replicates = random_model(), networks.path(3), 12, 60_000
    eta = rng.uniform(0.05, 0.4, (n, 3)) if own_steps else STEPS.eta(n)
    start, start_cov = np.array([0.5, -1.0]), np.array([[0.5, 0.2], [0.2, 0.4]])
    shared = start[:, None] + np.linalg.cholesky(start_cov) @ rng.standard_normal((2, replicates))
    mask = step_sizes.sync_mask(3, n, phase=1)

    path = oracle_path(model, network, eta, mask, np.broadcast_to(shared, (3, 2, replicates)), rng, replicates)
    got = exact_moments(model, network, eta, n, 3, start, start_cov, sync_phase=1)
    y = path[1:].mean(axis=1)
    z = np.concatenate(
        [
            z_scores(y.mean(axis=0).T, got.mean_average, got.cov_average),
            z_scores(y[-1].T, got.mean_last, got.cov_last),
            z_scores(path[-1].reshape(6, -1).T, got.client_means.ravel(), got.client_cov.reshape(6, 6)),
        ]
    )
    assert len(z) == 37
    assert np.abs(z).max() < 5


def test_average_is_the_double_sum_of_cross_covariances() -> None:
    # Cov(theta_t, Y_s) = T_t ... T_{s+1} Cov(theta_s, Y_s), the last from the run of s steps. A wrong
    # Cov(theta, S), one that is not mixed for example, is caught here: simulation hardly sees it.
    model, network, n, (k, d) = random_model(), networks.path(3), 9, (3, 2)
    eta, mask = STEPS.eta(n), step_sizes.sync_mask(2, n)
    to_mean = np.kron(np.full((1, k), 1 / k), np.eye(d))
    total = np.zeros((d, d))
    for s in range(1, n + 1):
        run = exact_moments(model, network, STEPS, s, 2, np.zeros(d), 0.1 * np.eye(d))
        cross = run.client_cov.reshape(k * d, k * d) @ to_mean.T
        total += to_mean @ cross
        for t in range(s + 1, n + 1):
            step = np.zeros((k * d, k * d))
            for c in range(k):
                block = slice(c * d, (c + 1) * d)
                step[block, block] = np.eye(d) - eta[t - 1] * k * model.weights[c] * model.design_cov[c]
            cross = step @ cross
            if mask[t - 1]:
                cross = np.kron(network.matrix.T, np.eye(d)) @ cross
            total += to_mean @ cross + (to_mean @ cross).T
    got = exact_moments(model, network, STEPS, n, 2, np.zeros(d), 0.1 * np.eye(d))
    np.testing.assert_allclose(got.cov_average, total / n**2, atol=1e-14)


def test_one_client_in_one_dimension_in_closed_form() -> None:
    # theta_1 = theta_0 - a x (x (theta_0 - b) - s e): given the start, mean b + (1 - a h) delta and variance
    # a^2 (2 h^2 delta^2 + s^2 h), since Var(x^2) = 2 h^2.
    h, b, s2, start, a = 1.3, 0.7, 0.4, 2.0, 0.25
    model = SimpleNamespace(coefficients=[[b]], noise_var=[s2], design_cov=[[[h]]], weights=[1.0])
    got = exact_moments(model, None, [a], 1, 1, [start])
    delta = start - b
    np.testing.assert_allclose(got.mean_last, [b + (1 - a * h) * delta])
    np.testing.assert_allclose(got.cov_last, [[a**2 * (2 * h**2 * delta**2 + s2 * h)]])
    np.testing.assert_allclose(got.optimum, [b])
    np.testing.assert_allclose([got.mean_average, got.cov_average[0]], [got.mean_last, got.cov_last[0]])


def test_means_agree_with_the_noiseless_expectation_path() -> None:
    # The mean recursion written client by client, on a network with a uniform part and a sparse part.
    model, n = random_model(n_clients=5, dim=3), 25
    network, eta, start = networks.lazy(5, 0.4), STEPS.eta(n), np.zeros((5, 3))
    mean, path = start.copy(), []
    for t in range(1, n + 1):
        pulls = [
            model.design_cov[k] @ (mean[k] - model.coefficients[k]) * eta[t - 1] * 5 * model.weights[k]
            for k in range(5)
        ]
        mean = mean - np.array(pulls)
        if t % 4 == 0:
            mean = network.matrix.T @ mean
        path.append(mean.mean(axis=0))
    means = mean_recursion(model, network, STEPS, n, 4, start)
    np.testing.assert_allclose(means.mean_path, path, atol=1e-13)
    full = exact_moments(model, network, STEPS, n, 4, start)
    for name in ("mean_average", "mean_last", "client_means", "optimum"):
        np.testing.assert_allclose(getattr(means, name), getattr(full, name), atol=1e-13)


@pytest.mark.parametrize("sync_every", [1, 7, None])
def test_mean_is_the_start_bias_when_hessians_and_weights_are_equal(sync_every: int | None) -> None:
    model = random_model(n_clients=4, dim=3)
    model.design_cov = np.broadcast_to(model.design_cov[0], (4, 3, 3))
    model.weights = np.full(4, 0.25)
    start = np.array([3.0, 0.0, -1.0])
    means = mean_recursion(model, networks.ring(4), STEPS, 50, sync_every, start)
    lin = linearization(model.design_cov, model.design_cov, optimum=means.optimum)
    np.testing.assert_allclose(means.mean_average - means.optimum, cv.start_bias(lin, STEPS, 50, start), atol=1e-13)


def test_unequal_hessians_leave_a_bias_of_drift_that_grows_with_clients() -> None:
    # D_3: with Hessians that go with the offsets, sqrt(n) |E Ybar - theta*| does not fall with K while the
    # standard deviation falls as K^-1/2, so their ratio doubles when K is four times larger.
    def standardised(n_clients: int) -> float:
        offset = np.linspace(-1, 1, n_clients)[:, None]
        h = (1 + 0.8 * offset)[:, :, None]
        weights = np.full(n_clients, 1 / n_clients)
        model = SimpleNamespace(coefficients=offset, noise_var=np.ones(n_clients), design_cov=h, weights=weights)
        optimum = np.sum(h[:, :, 0] * offset) / np.sum(h)
        delta = offset[:, 0] - optimum
        noise = (h[:, 0, 0] + 2 * delta**2 * h[:, 0, 0] ** 2)[:, None, None]
        cov = cv.limit_covariance(linearization(h, noise))
        means = mean_recursion(model, networks.complete(n_clients), STEPS, 400, 10, [optimum])
        return float(np.sqrt(400 / cov[0, 0]) * abs(means.mean_average - means.optimum)[0])

    small, middle, large = (standardised(k) for k in (10, 40, 160))
    assert 1.8 < middle / small < 2.2
    assert 1.8 < large / middle < 2.2


def test_covariance_tends_to_sigma_n_for_small_steps() -> None:
    # Near the optimum gradient noise is W^k, so n Cov(Ybar_n) / Sigma_n - 1 is of the order of the steps.
    model = random_model(spread=0.1)
    k, d = model.coefficients.shape
    w, h = model.weights, model.design_cov
    optimum = mean_recursion(model, networks.ring(k), STEPS, 1, 1, np.zeros(d)).optimum
    delta = model.coefficients - optimum
    hd = np.einsum("kij,kj->ki", h, delta)
    noise = (model.noise_var + np.einsum("ki,ki->k", delta, hd))[:, None, None] * h + hd[:, :, None] * hd[:, None, :]
    lin = linearization(h, noise, w, optimum=optimum)
    gaps = []
    for eta0 in (0.04, 0.01):
        steps = step_sizes.polynomial(eta0, 0.51)
        moments = exact_moments(model, networks.ring(k), steps, 300, 1, optimum)
        sigma_n = cv.average_covariance(lin, steps, 300)
        gaps.append(np.linalg.norm(300 * moments.cov_average - sigma_n) / np.linalg.norm(sigma_n))
    assert gaps[0] < 0.1
    assert gaps[1] < 0.5 * gaps[0]


def test_a_general_start_covariance_contains_the_shared_one() -> None:
    model, shared = random_model(), np.array([[0.5, 0.2], [0.2, 0.4]])
    everywhere = np.broadcast_to(shared[None, :, None, :], (3, 2, 3, 2))
    one = exact_moments(model, networks.ring(3), STEPS, 8, 2, [0.0, 0.0], shared)
    two = exact_moments(model, networks.ring(3), STEPS, 8, 2, [0.0, 0.0], everywhere)
    np.testing.assert_allclose(one.client_cov, two.client_cov)
    independent = np.einsum("kl,ij->kilj", np.eye(3), shared)
    three = exact_moments(model, networks.ring(3), STEPS, 8, 2, [0.0, 0.0], independent)
    assert np.trace(three.cov_last) < np.trace(one.cov_last)


def test_results_print_themselves() -> None:
    moments = exact_moments(random_model(), networks.ring(3), STEPS, 8, 2, [0.0, 0.0])
    means = mean_recursion(random_model(), networks.ring(3), STEPS, 8, 2, [0.0, 0.0])
    assert "after 8 steps, 3 clients in 2 dimensions" in str(moments)
    assert "n Cov(average)" in str(moments)
    assert "E average - optimum" in str(means)


def test_errors_state_the_rule_and_the_value() -> None:
    model = random_model()
    ring = networks.ring(3)
    with pytest.raises(ValueError, match=r"start_mean must have shape \(2,\) or \(3, 2\); got \(3,\)"):
        exact_moments(model, ring, STEPS, 8, 2, np.zeros(3))
    with pytest.raises(ValueError, match=r"start_cov must have shape .* got \(3, 3\)"):
        exact_moments(model, ring, STEPS, 8, 2, np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="one column for each of the 3 clients; got 2"):
        exact_moments(model, ring, np.full((8, 2), 0.1), 8, 2, np.zeros(2))
    model.noise_var = np.array([1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match=r"noise_var must not be negative; its smallest is -1"):
        mean_recursion(model, ring, STEPS, 8, 2, np.zeros(2))


PARAMETERS = np.linspace(-0.4, 0.4, 6).reshape(3, 2)


@pytest.mark.parametrize("function", [exact_moments, exact_path, mean_recursion])
@pytest.mark.parametrize(
    ("make", "family"),
    [
        (problems.logistic, "Logistic"),
        (problems.poisson, "Poisson"),
        (problems.huber, "Huber"),
        (problems.one_versus_rest, "OneVersusRest"),
    ],
)
def test_other_losses_are_refused(function: Any, make: Any, family: str) -> None:
    problem = make(np.zeros((3, 2, 2)) if family == "OneVersusRest" else PARAMETERS)
    with pytest.raises(ValueError, match=f"model must have the squared loss.*got {family}. Use problems.linear"):
        function(problem, networks.ring(3), STEPS, 5, 1, np.zeros(2))


@pytest.mark.parametrize("function", [exact_moments, exact_path, mean_recursion])
def test_what_is_no_regression_is_refused(function: Any) -> None:
    linear = problems.linear(PARAMETERS, 1.0)
    changed = problems.change_at(linear, problems.linear(PARAMETERS + 1, 1.0), 3)
    with pytest.raises(ValueError, match=r"ChangedProblem has no coefficients, noise_var, design_cov\. Use"):
        function(changed, networks.ring(3), STEPS, 5, 1, np.zeros(2))
    function(problems.linear(PARAMETERS, 1.0, df=5), networks.ring(3), STEPS, 5, 1, np.zeros(2))
