from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from fedgauss import step_sizes
from fedgauss._linearization import Linearization, linearization
from fedgauss.theory import covariances as cv


def spd(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Positive definite matrices of the given shape (..., d, d)."""
    g = rng.standard_normal(shape)
    return g @ np.swapaxes(g, -1, -2) / shape[-1] + 0.3 * np.eye(shape[-1])


def random_problem(n_clients: int = 4, dim: int = 3, seed: int = 0) -> Linearization:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 1.5, n_clients)
    return linearization(
        spd(rng, n_clients, dim, dim),
        spd(rng, n_clients, dim, dim),
        weights=weights / weights.sum(),
        optimum=rng.standard_normal(dim),
    )


def products(lin: Linearization, eta: np.ndarray, s: int, t: int) -> np.ndarray:
    """A_s^t = prod_{j=s+1}^t (I - eta_j A), by its definition; steps are counted from 1."""
    out = np.eye(lin.dim)
    for j in range(s + 1, t + 1):
        out = (np.eye(lin.dim) - eta[j - 1] * lin.hessian) @ out
    return out


def brute_step_matrices(lin: Linearization, eta: np.ndarray) -> np.ndarray:
    n = len(eta)
    return np.array([eta[s - 1] * sum(products(lin, eta, s, j) for j in range(s, n + 1)) for s in range(1, n + 1)])


STEPS = step_sizes.polynomial(0.4, beta=0.7, shift=1.0)


@pytest.mark.parametrize("n", [1, 2, 13])
def test_step_matrices_follow_the_definition(n: int) -> None:
    lin = random_problem()
    np.testing.assert_allclose(cv.step_matrices(lin, STEPS, n), brute_step_matrices(lin, STEPS.eta(n)), atol=1e-13)


@pytest.mark.parametrize("n", [1, 13])
def test_average_covariance_is_the_double_sum(n: int) -> None:
    lin = random_problem()
    q = brute_step_matrices(lin, STEPS.eta(n))
    expected = sum(m @ lin.noise_cov @ m.T for m in q) / n
    np.testing.assert_allclose(cv.average_covariance(lin, STEPS, n), expected, atol=1e-13)


@pytest.mark.parametrize("n", [1, 13])
def test_last_covariance_is_its_sum(n: int) -> None:
    lin, eta = random_problem(), STEPS.eta(n)
    maps = [eta[s - 1] * products(lin, eta, s, n) for s in range(1, n + 1)]
    expected = n**0.7 * sum(m @ lin.noise_cov @ m.T for m in maps)
    np.testing.assert_allclose(cv.last_covariance(lin, STEPS, n), expected, atol=1e-13)


def test_one_dimension_in_closed_form() -> None:
    # Two steps: Q_2 = eta_2, Q_1 = eta_1 (1 + 1 - eta_2 a).
    a, v, first, second = 1.7, 0.6, 0.3, 0.2
    lin = linearization([[[a]]], [[[v]]])
    eta = [first, second]
    q1, q2 = first * (2 - second * a), second
    np.testing.assert_allclose(cv.average_covariance(lin, eta, 2), [[v * (q1**2 + q2**2) / 2]])
    last = v * ((first * (1 - second * a)) ** 2 + second**2)
    np.testing.assert_allclose(cv.last_covariance(lin, eta, 2, beta=0.75), [[2**0.75 * last]])


def test_quadratic_of_remark_3_2_has_the_covariance_of_its_gaussian_path() -> None:
    # grad f = theta - mu + xi: Y - mu = L xi with an explicit triangular L, so Var(Ybar) and Var(Y_n) are
    # exact for any noise, and Aggr-GA, driven by Gaussian noise of the same variance, shares them.
    n, v = 40, 2.5
    eta = STEPS.eta(n)
    path = np.zeros((n, n))
    for t in range(n):
        for s in range(t + 1):
            path[t, s] = eta[s] * np.prod(1 - eta[s + 1 : t + 1])
    lin = linearization([[[1.0]]], [[[v]]])
    np.testing.assert_allclose(cv.average_covariance(lin, STEPS, n) / n, [[v * np.sum(path.mean(axis=0) ** 2)]])
    np.testing.assert_allclose(cv.last_covariance(lin, STEPS, n) / n**0.7, [[v * np.sum(path[-1] ** 2)]])


def test_average_covariance_tends_to_its_limit_at_theorem_2_3s_rate() -> None:
    lin, steps = random_problem(), step_sizes.polynomial(1.0, beta=0.6)
    limit = cv.limit_covariance(lin)
    gap = [np.linalg.norm(cv.average_covariance(lin, steps, n) - limit) for n in (10_000, 100_000)]
    assert gap[1] < 0.05 * np.linalg.norm(limit)
    assert np.log10(gap[1] / gap[0]) == pytest.approx(0.6 - 1, abs=0.05)


def test_limit_covariance_is_the_sandwich() -> None:
    lin = random_problem()
    inverse = np.linalg.inv(lin.hessian)
    np.testing.assert_allclose(cv.limit_covariance(lin), inverse @ lin.noise_cov @ inverse.T, atol=1e-13)


@pytest.mark.parametrize("n_clients", [1, 10, 100])
def test_relative_gap_does_not_depend_on_the_number_of_clients(n_clients: int) -> None:
    # Theorem 2.3 as printed has a relative gap that grows as sqrt(K). For A = I, eta_t = 0.5 t^-0.85 and
    # n = 100 it is 0.87 for every K.
    eye = np.broadcast_to(np.eye(2), (n_clients, 2, 2))
    lin = linearization(eye, 3.0 * eye)
    ratio = cv.average_covariance(lin, step_sizes.polynomial(0.5, 0.85), 100) @ np.linalg.inv(cv.limit_covariance(lin))
    np.testing.assert_allclose(ratio, 1.8706 * np.eye(2), atol=1e-4)


@pytest.mark.parametrize("equal_hessians", [True, False])
def test_equal_client_columns_agree_with_shared_steps(equal_hessians: bool) -> None:
    lin = random_problem()
    if equal_hessians:
        same = np.broadcast_to(lin.client_hessians[0], lin.client_hessians.shape)
        lin = linearization(same, lin.client_noise_cov, lin.weights)
    columns = step_sizes.per_client([STEPS] * lin.n_clients)
    for f in (cv.average_covariance, cv.last_covariance):
        np.testing.assert_allclose(f(lin, columns, 30), f(lin, STEPS, 30), atol=1e-13)


def test_client_steps_give_the_covariance_of_the_stated_recursion() -> None:
    # The linear map from all noises to (Y_1, ..., Y_n), built by running each unit noise through.
    lin, n = random_problem(n_clients=2, dim=2), 6
    eta = np.random.default_rng(1).uniform(0.05, 0.5, (n, 2))
    root = np.linalg.cholesky(lin.client_noise_cov)
    responses = []
    for s in range(n):
        for k in range(2):
            for i in range(2):
                y, path = np.zeros(2), []
                for t in range(n):
                    drift = sum(lin.weights[j] * eta[t, j] * lin.client_hessians[j] for j in range(2))
                    y = y - drift @ y + (lin.weights[k] * eta[t, k] * root[k][:, i] if t == s else 0)
                    path.append(y)
                responses.append(path)
    paths = np.array(responses)
    average, last = paths.mean(axis=1), paths[:, -1]
    np.testing.assert_allclose(cv.average_covariance(lin, eta, n), n * average.T @ average, atol=1e-13)
    np.testing.assert_allclose(cv.last_covariance(lin, eta, n, beta=0.7), n**0.7 * last.T @ last, atol=1e-13)


def test_start_bias_is_its_sum() -> None:
    lin, eta, start = random_problem(), STEPS.eta(9), np.array([1.0, -2.0, 0.5])
    expected = sum(products(lin, eta, 0, t) for t in range(1, 10)) @ (start - lin.optimum) / 9
    np.testing.assert_allclose(cv.start_bias(lin, STEPS, 9, start), expected, atol=1e-14)
    clients = start + np.array([[1.0], [-1.0], [2.0], [-2.0]])
    np.testing.assert_allclose(cv.start_bias(lin, STEPS, 9, clients), expected, atol=1e-14)


def test_total_variation_bound() -> None:
    rng = np.random.default_rng(3)
    first, second = spd(rng, 3, 3), spd(rng, 3, 3)
    values, vectors = np.linalg.eigh(second)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    expected = 1.5 * np.linalg.norm(root @ first @ root - np.eye(3))
    assert cv.total_variation_bound(first, second) == pytest.approx(expected, rel=1e-12)
    assert cv.total_variation_bound(second, second) == pytest.approx(0, abs=1e-12)
    # In one dimension the distance itself is known: 2 (Phi(x/s) - Phi(x)) at the crossing x of the densities.
    s = 1.1
    x = np.sqrt(2 * np.log(s) / (1 - s**-2))
    distance = 2 * abs(ndtr(x / s) - ndtr(x))
    assert distance <= cv.total_variation_bound([[s**2]], [[1.0]])
    assert cv.total_variation_bound([[9.0]], [[1.0]]) == pytest.approx(12.0)  # not clipped


def test_long_runs_satisfy_the_telescoping_identity() -> None:
    # Proof of Theorem 2.3: sum_s Q_s = A^-1 sum_j (I - A_0^j). start_bias of unit vectors is
    # n^-1 sum_j A_0^j.
    lin, n = random_problem(dim=5), 100_000
    share = np.stack([cv.start_bias(lin, STEPS, n, lin.optimum + e) for e in np.eye(5)], axis=1)
    expected = np.linalg.inv(lin.hessian) @ (np.eye(5) - share)
    np.testing.assert_allclose(cv.step_matrices(lin, STEPS, n).mean(axis=0), expected, atol=1e-11)


def test_errors_state_the_rule_and_the_fix() -> None:
    lin = random_problem()
    with pytest.raises(ValueError, match=r"needs the decay beta.*Pass beta="):
        cv.last_covariance(lin, np.full(5, 0.1), 5)
    with pytest.raises(ValueError, match=r"one column for each of the 4 clients; got 3"):
        cv.average_covariance(lin, np.full((5, 3), 0.1), 5)
    with pytest.raises(ValueError, match="one step size for all clients; got 4 columns"):
        cv.step_matrices(lin, np.full((5, 4), 0.1), 5)
    with pytest.raises(ValueError, match=r"start_mean must have shape \(3,\) or \(4, 3\); got \(2,\)"):
        cv.start_bias(lin, STEPS, 5, [0.0, 0.0])
    with pytest.raises(ValueError, match="cov2 must be positive definite"):
        cv.total_variation_bound(np.eye(2), np.diag([1.0, 0.0]))
    with pytest.raises(ValueError, match="n_steps must be at least 1; got 0"):
        cv.average_covariance(lin, STEPS, 0)
