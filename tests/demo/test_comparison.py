"""Simulated numbers compared with what they should be."""

import numpy as np
import pytest

from fedgauss.demo.comparison import Comparison, Ellipse, check_z, compare, product_terms, variance_ratio


def test_product_terms_average_to_the_sample_covariance():
    x, y = np.random.default_rng(0).standard_normal((2, 50))
    assert product_terms(x, y).mean() == pytest.approx(np.cov(x, y)[0, 1], rel=1e-12)


def test_compare_states_the_standard_error_of_the_mean():
    terms = np.array([1.0, 2.0, 3.0, 6.0])
    row = compare("mean", terms, exact=2.0)
    assert row.simulated == 3.0
    assert row.error == pytest.approx(terms.std(ddof=1) / 2)
    assert row.z == pytest.approx(1.0 / row.error)


def test_positive_quantities_are_compared_on_a_log_scale():
    row = Comparison("variance", simulated=2.0, error=0.1, exact=1.0, positive=True)
    assert row.z == pytest.approx(np.log(2.0) / 0.05)
    assert Comparison("variance", 1.001, 0.1, 1.0, positive=True).z == pytest.approx(0.01, rel=1e-2)


def test_the_limit_grows_with_the_number_of_comparisons():
    one = check_z([Comparison("a", 0.0, 1.0, 0.0)], replicates=10**6)
    many = check_z([Comparison("a", 0.0, 1.0, 0.0)] * 50, replicates=10**6)
    assert one.limit == pytest.approx(2.5758, abs=1e-3)  # the 99.5 % normal quantile
    assert many.limit == pytest.approx(3.7190, abs=1e-3)  # the 99.99 % one
    assert check_z([Comparison("a", 0.0, 1.0, 0.0)], replicates=20).limit > one.limit


def test_one_large_difference_is_a_disagreement_of_either_sign():
    for sign in (1.0, -1.0):
        found = check_z([Comparison("a", 0.1, 1.0, 0.0), Comparison("b", 5.0 * sign, 1.0, 0.0)], replicates=1000)
        assert not found.agrees
        assert "do not agree" in str(found)
        assert "5.0" in str(found)


def test_ratios_are_one_over_the_right_covariance():
    points = np.random.default_rng(2).standard_normal((500, 2)) @ np.diag([1.0, 3.0])
    own = variance_ratio(points, np.diag([1.0, 9.0]), np.cov(points.T))
    assert own.simulated == pytest.approx(1.0)
    half = variance_ratio(points, np.diag([1.0, 9.0]), np.diag([2.0, 18.0]))
    assert half.exact == pytest.approx(0.5)
    assert abs(half.simulated - 0.5) < 4 * half.error


def test_an_ellipse_holds_95_percent_of_its_law():
    cov = np.array([[2.0, 0.7], [0.7, 1.0]])
    ellipse = Ellipse("law", "exact", np.array([1.0, -1.0]), cov)
    draws = np.random.default_rng(1).multivariate_normal(ellipse.center, cov, size=20_000)
    # Four binomial standard errors: fails once in 16,000 seeds. A radius of 1.96, a common slip, holds 85 %.
    assert abs(ellipse.share(draws) - 0.95) < 4 * (0.95 * 0.05 / 20_000) ** 0.5
    inside = ellipse.center + 0.999 * (ellipse.outline - ellipse.center)
    outside = ellipse.center + 1.001 * (ellipse.outline - ellipse.center)
    assert ellipse.share(inside) == 1.0
    assert ellipse.share(outside) == 0.0
