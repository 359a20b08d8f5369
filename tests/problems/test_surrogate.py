from __future__ import annotations

import numpy as np

import fedgauss as fg

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)


def test_the_surrogate_is_centred_at_zero_and_keeps_hessian_and_noise():
    problem = fg.problems.linear(
        np.random.default_rng(0).standard_normal((3, 2)), [1.0, 2.0, 3.0], weights=[0.2, 0.3, 0.5]
    )
    lin = fg.linearize(problem)
    ghost = fg.linearize(fg.problems.gaussian_surrogate(lin))
    np.testing.assert_allclose(ghost.optimum, 0.0, atol=1e-12)
    np.testing.assert_allclose(ghost.hessian, lin.hessian)
    np.testing.assert_allclose(ghost.client_noise_cov, lin.client_noise_cov)
    np.testing.assert_allclose(ghost.noise_cov, lin.noise_cov)


def test_the_averaged_surrogate_has_covariance_sigma_n():
    # Ybar_n of Client-GA is Gaussian with covariance Sigma_n / n exactly, whatever the weights and the network.
    # False failure: 3 entries beyond 4.6 standard errors over 40,000 runs, 1.3e-5. Catches a factor of K or w_k.
    problem = fg.problems.linear(
        np.random.default_rng(0).standard_normal((3, 2)), [1.0, 2.0, 3.0], weights=[0.2, 0.3, 0.5]
    )
    lin = fg.linearize(problem)
    runs = fg.simulate(
        fg.problems.gaussian_surrogate(lin), fg.networks.path(3), STEPS, 50, sync_every=4, replicates=40_000
    )
    sigma = fg.theory.average_covariance(lin, STEPS, 50)
    z = 50**0.5 * runs.average.astype(float) @ np.linalg.inv(np.linalg.cholesky(sigma)).T
    for i, j in [(0, 0), (1, 1), (0, 1)]:
        product = z[:, i] * z[:, j]
        assert abs(product.mean() - (i == j)) < 4.6 * product.std() / 200
