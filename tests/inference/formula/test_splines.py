"""Natural splines against patsy's cr, and by what defines them."""

import numpy as np
import patsy
import pytest
from scipy.stats import norm

from fedgauss.inference.formula.splines import natural_basis, normal_knots

KNOTS = np.array([20.0, 30.0, 50.0, 57.0, 80.0])
X = np.linspace(5.0, 95.0, 181)


def test_functions_are_one_at_their_knot_and_zero_at_the_others():
    np.testing.assert_allclose(natural_basis(KNOTS, KNOTS), np.eye(5)[:, 1:], atol=1e-14)


@pytest.mark.parametrize("knots", [KNOTS, KNOTS[[0, 2, 4]], KNOTS[[0, 4]]])
def test_the_span_is_that_of_patsys_cr(knots):
    inside = X[(knots[0] <= X) & (knots[-1] >= X)]
    basis = np.column_stack([np.ones(len(inside)), natural_basis(inside, knots)])
    if len(knots) == 2:  # a straight line, which cr does not have
        wanted = np.column_stack([np.ones(len(inside)), inside])
    else:
        options = {"inside": inside, "inner": knots[1:-1].tolist(), "low": knots[0], "high": knots[-1]}
        wanted = np.asarray(patsy.dmatrix("cr(inside, knots=inner, lower_bound=low, upper_bound=high) - 1", options))
    assert np.linalg.matrix_rank(basis) == len(knots)
    left = wanted - basis @ np.linalg.lstsq(basis, wanted, rcond=None)[0]
    assert np.abs(left).max() < 1e-11


def test_beyond_the_bounds_functions_are_straight_and_go_on_smoothly():
    step = 0.01
    grid = np.arange(5.0, 95.0, step)
    basis = natural_basis(grid, KNOTS)
    second = np.diff(basis, 2, axis=0) / step**2
    middle = grid[1:-1]
    outside = (middle < KNOTS[0] - step) | (middle > KNOTS[-1] + step)
    assert np.abs(second[outside]).max() < 1e-8
    assert np.abs(second[~outside]).max() > 1e-3
    # Two continuous derivatives: the second makes no jump, at knots or elsewhere.
    assert np.abs(np.diff(second, axis=0)).max() < 1e-3


def test_a_straight_line_is_among_them():
    basis = np.column_stack([np.ones(len(X)), natural_basis(X, KNOTS)])
    weights = np.concatenate([[KNOTS[0]], KNOTS[1:] - KNOTS[0]])
    np.testing.assert_allclose(basis @ weights, X, atol=1e-11)


def test_columns_are_far_from_collinear():
    """By the knots that are agreed on: of a standard deviation, what is left of each beside the others."""
    rng = np.random.default_rng(0)
    normal, skewed = rng.normal(50.0, 10.0, 500), rng.exponential(10.0, 500)
    for x, df in [(normal, 2), (normal, 4), (normal, 10), (skewed, 2), (skewed, 4)]:
        basis = natural_basis(x, normal_knots(x.mean(), x.std(), df))
        scaled = (basis - basis.mean(axis=0)) / basis.std(axis=0)
        assert np.abs(np.diag(np.linalg.qr(scaled, mode="r"))).min() / np.sqrt(500) > 0.03


def test_knots_are_normal_quantiles():
    np.testing.assert_allclose(normal_knots(50.0, 10.0, 4), 50 + 10 * norm.ppf([0.05, 0.275, 0.5, 0.725, 0.95]), atol=1)


@pytest.mark.parametrize("df", range(1, 16))
def test_knots_nobody_wrote_are_on_a_coarse_grid(df):
    """A power of two, at most half of the spread and of what lies between two knots."""
    least = np.diff(norm.ppf(np.linspace(0.05, 0.95, df + 1))).min()
    for mean, sd in ((50.0, 10.0), (-3e4, 1.7), (0.1, 1e-5)):
        knots = normal_knots(mean, sd, df)
        grid = 2.0 ** np.floor(np.log2(sd * min(1.0, least) / 2.0))
        assert np.all(knots / grid == np.rint(knots / grid))
        assert np.all(np.diff(knots) > 0.0)
