"""Monte-Carlo moments of Ybar_n against the exact recursion, over many seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg

SEEDS, REPLICATES, N, TAU = 40, 2000, 60, 4
STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)


def problems():
    rng = np.random.default_rng(11)
    beta = rng.standard_normal((5, 2))
    root = rng.standard_normal((5, 2, 4))
    unequal = root @ np.swapaxes(root, 1, 2) / 4 + 0.2 * np.eye(2)
    weights = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    shared = np.array([[1.0, 0.4], [0.4, 0.6]])
    return {
        "equal Hessians": (fg.problems.linear(beta, 2.0), "zeros"),
        "a shared design": (fg.problems.linear(beta, 2.0, shared), "optimum"),
        "unequal Hessians": (fg.problems.linear(beta, 1.0, unequal), "optimum"),
        "unequal weights": (fg.problems.linear(beta, 1.0, weights=weights), [1.0, -1.0]),
        "everything unequal": (fg.problems.linear(beta, np.arange(1, 6), unequal, weights), 2 * beta),
        "Student noise": (fg.problems.linear(beta, 1.0, unequal, weights, df=5), "zeros"),
    }


# The last case has all that the others have; those go with the studies.
CASES = [case if case == "Student noise" else pytest.param(case, marks=pytest.mark.study) for case in problems()]


@pytest.mark.parametrize("case", CASES)
def test_mean_and_covariance_agree_with_the_exact_recursion(case):
    # Whitened by the exact covariance, z-scores of means and covariances over 40 seeds have mean 0 and variance 1.
    # False failure: four two-sided tests at 1e-5 and 2e-5 each, 8e-5 with the skewness of studentised products.
    # Catches a bias of 0.016 standard deviations, or
    # a variance wrong by 2 %: one wrong factor of K w_k, H_k or the mixing moves both by far more.
    problem, start = problems()[case]
    ring = fg.networks.ring(5)
    lin = fg.linearize(problem)
    point = {"zeros": np.zeros(2), "optimum": lin.optimum}.get(start) if isinstance(start, str) else start
    exact = fg.theory.exact_moments(problem, ring, STEPS, N, TAU, point)
    whiten = np.linalg.inv(np.linalg.cholesky(exact.cov_average))
    z_mean, z_cov = [], []
    for seed in range(SEEDS):
        runs = fg.simulate(problem, ring, STEPS, N, sync_every=TAU, replicates=REPLICATES, seed=seed, start=start)
        z = (runs.average.astype(float) - exact.mean_average) @ whiten.T
        z_mean.append(z.mean(axis=0) * np.sqrt(REPLICATES))
        products = np.stack([z[:, 0] ** 2 - 1, z[:, 1] ** 2 - 1, z[:, 0] * z[:, 1]], axis=1)
        z_cov.append(products.mean(axis=0) / (products.std(axis=0) / np.sqrt(REPLICATES)))
    for what, z in (("means", np.concatenate(z_mean)), ("covariances", np.concatenate(z_cov))):
        print(f"{case}: {z.size} z-scores of {what} have mean {z.mean():+.3f} and sd {z.std():.3f}")  # shown by -rP
        assert abs(stats.norm.ppf(5e-6)) > abs(z.sum() / np.sqrt(z.size))
        assert 1e-5 < stats.chi2.cdf((z**2).sum(), z.size) < 1 - 1e-5


def test_the_mean_has_its_closed_form_with_equal_hessians():
    problem, ring = fg.problems.random_effects(5, seed=2), fg.networks.ring(5)
    lin = fg.linearize(problem)
    exact = fg.theory.exact_moments(problem, ring, STEPS, N, TAU, np.zeros(2))
    closed = fg.theory.start_bias(lin, STEPS, N, np.zeros(2))
    np.testing.assert_allclose(exact.mean_average - lin.optimum, closed, rtol=1e-10)


def test_the_surrogate_has_the_covariance_of_remark_3_2():
    # One client, F = (theta - mu)^2 / 2, gradient theta - mu + xi: the Gaussian path has exactly Cov(Y_s, Y_t).
    # False failure: 36 z-scores beyond 5.3, at most 4.2e-6. Catches a noise scale wrong by 1.5 %.
    lin = fg.linearization(np.eye(1)[None], 2.25 * np.eye(1)[None])
    n, eta = 8, STEPS.eta(8)
    runs = fg.simulate(fg.problems.gaussian_surrogate(lin), None, STEPS, n, replicates=200_000, keep="path")
    loads = np.zeros((n, n))  # Y_t = sum_s loads[t, s] xi_s
    for t in range(n):
        if t:
            loads[t] = (1 - eta[t]) * loads[t - 1]
        loads[t, t] = eta[t]
    exact = 2.25 * loads @ loads.T
    path = runs.path[:, :, 0].astype(float)
    for s in range(n):
        for t in range(s + 1):
            product = path[:, s] * path[:, t]
            assert abs(product.mean() - exact[s, t]) < 5.3 * product.std() / np.sqrt(len(product))
