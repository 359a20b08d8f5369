"""Wald's widths with the true covariance, in units of which the widths of the grid are given."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from sgd_intervals import COVARIANCES, Setting


@pytest.mark.parametrize("design", COVARIANCES)
@pytest.mark.parametrize("dim", [5, 100])
def test_widths_of_the_intercept_are_those_of_an_adaptive_quadrature(design, dim):
    """The intercept is independent of all else in A, so that its variance is 1 / E[p (1 - p)] over the rows."""
    setting = Setting("logistic", design, dim, 1000, 1, 1)
    beta = setting.truth[1:]
    size = np.sqrt(beta @ COVARIANCES[design](dim - 1) @ beta)
    wanted, _ = integrate.quad(
        lambda u: stats.norm.pdf(u / size) / size / (4 * np.cosh(u / 2) ** 2), -60.0, 60.0, points=[0.0]
    )
    np.testing.assert_allclose(setting.least()[0], stats.norm.ppf(0.975) / np.sqrt(1000 * wanted), rtol=1e-6)


def test_widths_of_a_logistic_model_are_those_of_its_information_matrix():
    """From 400,000 rows, whose mean is off by .4 %; it would fail if a direction had the variance of another."""
    setting = Setting("logistic", "equicorrelated", 5, 1000, 1, 1)
    root = np.linalg.cholesky(COVARIANCES["equicorrelated"](4))
    x = np.column_stack([np.ones(400_000), np.random.default_rng(0).standard_normal((400_000, 4)) @ root.T])
    weights = 1 / (4 * np.cosh(x @ setting.truth / 2) ** 2)
    information = (x * weights[:, None]).T @ x / len(x)
    wanted = stats.norm.ppf(0.975) * np.sqrt(np.diag(np.linalg.inv(information)) / 1000)
    np.testing.assert_allclose(setting.least(), wanted, rtol=0.01)
