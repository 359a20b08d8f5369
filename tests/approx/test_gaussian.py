"""The three approximations, and the theorem that two of them are one."""

from __future__ import annotations

import numpy as np
from scipy import stats

import fedgauss as fg
from fedgauss.engine.observers import sup_partial_sum

STEPS = fg.step_sizes.polynomial(0.7, beta=0.85)
PROBLEM = fg.problems.linear(
    np.random.default_rng(0).standard_normal((4, 2)), [1.0, 2.0, 3.0, 4.0], weights=[0.1, 0.2, 0.3, 0.4]
)
LIN = fg.linearize(PROBLEM)
RING = fg.networks.ring(4)


def test_the_client_average_of_client_ga_is_aggr_ga_driven_by_the_weighted_noise():
    # The theorem in float64, on a path written out: mixing preserves the mean, so averaging commutes with it.
    rng = np.random.default_rng(1)
    theta, aggregated = np.zeros((2, 4)), np.zeros(2)
    for t, eta in enumerate(STEPS.eta(200), start=1):
        z = rng.standard_normal((2, 4))
        theta = theta - eta * LIN.hessian @ theta + eta * 4 * LIN.weights * z
        theta = theta @ RING.matrix if t % 3 == 0 else theta
        aggregated = aggregated - eta * LIN.hessian @ aggregated + eta * z @ LIN.weights
        np.testing.assert_allclose(theta.mean(axis=1), aggregated, atol=1e-12)


def test_client_ga_and_aggr_ga_have_one_law():
    # Two-sample Kolmogorov at 1e-5. Catches a noise scale wrong by 6 % (and sqrt(K) = 2, at once).
    watch = [sup_partial_sum(np.zeros(2))]
    a = fg.approx.aggregated(LIN, STEPS, 100, replicates=4000, seed=1, observe=watch)
    c = fg.approx.client(LIN, RING, STEPS, 100, sync_every=7, replicates=4000, seed=2, observe=watch)
    assert stats.ks_2samp(a.sup_partial_sum, c.sup_partial_sum).pvalue > 1e-5


def test_aggr_ga_has_covariance_sigma_n():
    # 3 entries beyond 4.6 standard errors, 1.3e-5.
    runs = fg.approx.aggregated(LIN, STEPS, 60, replicates=20_000, seed=3)
    sigma = fg.theory.average_covariance(LIN, STEPS, 60)
    z = 60**0.5 * runs.average.astype(float) @ np.linalg.inv(np.linalg.cholesky(sigma)).T
    for i, j in [(0, 0), (1, 1), (0, 1)]:
        product = z[:, i] * z[:, j]
        assert abs(product.mean() - (i == j)) < 4.6 * product.std() / np.sqrt(len(product))


def test_the_functional_clt_is_white_noise_with_the_limit_covariance():
    # 3 covariances and 4 lagged ones beyond 5 standard errors, 4e-6. Catches Sigma in the place of Sigma/K.
    runs = fg.approx.brownian(LIN, 5, replicates=20_000, seed=4, keep="path")
    root = np.linalg.inv(np.linalg.cholesky(fg.theory.limit_covariance(LIN)))
    z = runs.path.astype(float) @ root.T
    for t in (0, 4):
        assert np.abs(np.cov(z[:, t].T) - np.eye(2)).max() < 5 * np.sqrt(2 / 20_000)
    assert np.abs(z[:, 2].T @ z[:, 3]).max() / 20_000 < 5 / np.sqrt(20_000)
