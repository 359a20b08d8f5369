"""Moments of every step against those that `exact_moments` gives for the last."""

import numpy as np
import pytest

from fedgauss import networks, step_sizes
from fedgauss.problems.regression import random_effects
from fedgauss.theory.exact import exact_moments, exact_path, mean_recursion

SETTING = (
    random_effects(4, dim=3, seed=3, design_cov=np.diag([1.0, 2.0, 0.5])),
    networks.ring(4),
    step_sizes.polynomial(0.2, beta=0.7),
)


@pytest.mark.parametrize("n", [1, 7, 12])
def test_each_step_is_the_last_of_a_shorter_run(n):
    start = np.array([1.0, -1.0, 0.5])
    path = exact_path(*SETTING, n_steps=12, sync_every=4, start_mean=start)
    law = exact_moments(*SETTING, n, 4, start)
    np.testing.assert_allclose(path.mean[n - 1], law.mean_last, rtol=1e-12)
    np.testing.assert_allclose(path.sd[n - 1] ** 2, np.diag(law.cov_last), rtol=1e-10)


def test_means_are_those_of_the_mean_recursion():
    path = exact_path(*SETTING, n_steps=12, sync_every=4, start_mean=np.zeros(3))
    np.testing.assert_allclose(path.mean, mean_recursion(*SETTING, 12, 4, np.zeros(3)).mean_path, rtol=1e-12)


def test_disagreement_is_that_of_the_client_moments():
    start = np.zeros(3)
    law = exact_moments(*SETTING, 11, 4, start)
    k, d = law.client_means.shape
    apart = np.kron(np.eye(k) - 1.0 / k, np.eye(d))  # Theta (I - J), clients stacked
    second = law.client_cov.reshape(k * d, k * d) + np.outer(law.client_means, law.client_means)
    path = exact_path(*SETTING, n_steps=12, sync_every=4, start_mean=start)
    assert path.disagreement[10] == pytest.approx(np.trace(apart @ second @ apart), rel=1e-10)
    assert path.disagreement[11] < path.disagreement[10]  # step 12 mixes
