"""A simulated number beside the number it should be."""

import numpy as np
import pytest

from fedgauss.report.comparison import Comparison, compare, judge, product_terms


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
    one = judge([Comparison("a", 0.0, 1.0, 0.0)], replicates=10**6)
    many = judge([Comparison("a", 0.0, 1.0, 0.0)] * 50, replicates=10**6)
    assert one.limit == pytest.approx(2.5758, abs=1e-3)  # the 99.5 % normal quantile
    assert many.limit == pytest.approx(3.7190, abs=1e-3)  # the 99.99 % one
    assert judge([Comparison("a", 0.0, 1.0, 0.0)], replicates=20).limit > one.limit


def test_one_large_difference_is_a_disagreement_of_either_sign():
    for sign in (1.0, -1.0):
        verdict = judge([Comparison("a", 0.1, 1.0, 0.0), Comparison("b", 5.0 * sign, 1.0, 0.0)], replicates=1000)
        assert not verdict.agrees
        assert "do not agree" in str(verdict)
        assert "5.0" in str(verdict)
