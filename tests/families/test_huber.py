"""Huber regression by exact fits: the minimum of its smooth loss, from any start."""

from itertools import pairwise

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm

from exact_fits import fit_split
from fedgauss.families import Huber
from fedgauss.inference.fit_exact import check_errors

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 2))
Y = X @ [1.0, -2.0] + RNG.standard_t(2.0, 200)
SITE = RNG.integers(0, 4, 200)
DESIGN = sm.add_constant(X)


def twin(theta, y, c):
    """The loss and its gradient, as they are written."""
    r = DESIGN @ theta - y
    root = np.sqrt(1.0 + (r / c) ** 2)
    return np.sum(c**2 * (root - 1.0)), DESIGN.T @ (r / root)


@pytest.mark.parametrize("threshold", [0.3, 1.345, 20.0])
@pytest.mark.parametrize("wild", [0.0, 1e6])
def test_it_is_the_minimum_from_any_start(threshold, wild):
    """A start far from all rows is as good as any, and so is a mean that one value moves."""
    y = Y + wild * (np.arange(200) == 7)
    ours = [fit_split(Huber(threshold), X, y, SITE, start=start) for start in (None, [30.0, -50.0, 20.0])]
    np.testing.assert_allclose(ours[1].params, ours[0].params, rtol=1e-8)
    np.testing.assert_allclose(twin(ours[0].params, y, threshold)[1], 0.0, atol=1e-7)
    other = minimize(twin, ours[0].params + 0.1, (y, threshold), "BFGS", jac=True, options={"gtol": 1e-9})
    np.testing.assert_allclose(ours[0].params, other.x, rtol=1e-6, atol=1e-6)


def test_errors_are_the_sandwich():
    """A^-1 B A^-1 with the second derivatives of rows in A, and their first derivatives squared in B."""
    ours = fit_split(Huber(1.0), X, Y, SITE)
    root = np.sqrt(1.0 + (Y - DESIGN @ ours.params) ** 2)
    bread = np.linalg.inv(DESIGN.T @ (DESIGN / root[:, None] ** 3))
    meat = (DESIGN * (root**2 - 1.0)[:, None] / root[:, None] ** 2).T @ DESIGN
    np.testing.assert_allclose(ours.cov("HC0"), bread @ meat @ bread, rtol=1e-9)
    with pytest.raises(ValueError, match=r"'huber' has no model for errors='model' .* Use errors='HC0'"):
        check_errors("model", Huber(), clustered=False)


def test_it_is_near_the_robust_fit_with_corners():
    """Statsmodels' loss has corners, so estimates differ; but by little of a standard error, and so do the errors."""
    theirs = sm.RLM(Y, DESIGN, M=sm.robust.norms.HuberT(1.345)).fit(update_scale=False, tol=1e-13, maxiter=500)
    ours = fit_split(Huber(1.345 * theirs.scale), X, Y, SITE)
    assert np.abs((ours.params - theirs.params) / theirs.bse).max() < 0.3
    np.testing.assert_allclose(ours.bse("HC0"), theirs.bse, rtol=0.2)


def test_weights_have_no_jump():
    """The second derivative of the loss moves by no more than .86 / c for each unit of a residual."""
    y = np.linspace(-8.0, 8.0, 100_001)
    for part in (Huber(0.5).weight, Huber(0.5).curvature):
        slopes = np.diff(part(np.zeros((1, len(y))), y)[0]) / np.diff(y)
        assert np.abs(slopes).max() <= 0.86 / 0.5
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        far = np.array([0.0, 1e-200, 1e200])
        assert np.all(np.isfinite(Huber(0.5).loss(np.zeros((1, 3)), far)))
        np.testing.assert_allclose(Huber(0.5).residual(np.zeros((1, 3)), far), [[0.0, -1e-200, -0.5]])


def test_the_efficiency_is_that_of_the_documentation():
    def mean(of):
        return quad(lambda r: of(r) * norm.pdf(r), -12.0, 12.0, epsabs=1e-12)[0]

    slope = mean(lambda r: (1.0 + (r / 1.345) ** 2) ** -1.5)
    square = mean(lambda r: r**2 / (1.0 + (r / 1.345) ** 2))
    assert slope**2 / square == pytest.approx(0.954, abs=5e-4)


@pytest.mark.parametrize("spread", [1e-3, 0.3, 2.0, 50.0, 1e4])
def test_moments_are_those_of_adaptive_quadrature(spread):
    """Whether nearly all rows are in the middle of the loss or in its tails."""
    beta, theta, noise = np.array([[0.3, -0.2]]), np.array([0.1, 0.4]), np.array([0.5])
    cov = np.array([[[1.0, 0.3], [0.3, 2.0]]])
    moments = Huber(1.0).moments(spread * theta, spread * beta, spread**2 * noise, cov)
    delta = spread * (theta - beta[0])
    v = delta @ cov[0] @ delta + spread**2 * noise[0]
    points = sorted({min(9.0, k / np.sqrt(v)) for k in (0.1, 1.0, 10.0, 100.0)} | {3.0})

    def mean(of):
        ends = [0.0, *points, 9.0]
        pieces = pairwise(ends)
        return 2.0 * sum(quad(lambda z: of(np.sqrt(v) * z) * norm.pdf(z), *piece, epsabs=1e-13)[0] for piece in pieces)

    pull = cov[0] @ delta
    slope, with_square = (mean(lambda r, p=p: r**p * (1.0 + r**2) ** -1.5) for p in (0, 2))
    np.testing.assert_allclose(moments[0][0], slope * pull, rtol=1e-8)
    outer = np.outer(pull, pull) / v
    np.testing.assert_allclose(moments[1][0], slope * cov[0] + (with_square / v - slope) * outer, rtol=1e-7)
    size, with_size = (mean(lambda r, p=p: r**p * r**2 / (1.0 + r**2)) for p in (0, 2))
    second = size * cov[0] + (with_size / v - size) * outer - np.outer(slope * pull, slope * pull)
    np.testing.assert_allclose(moments[2][0], second, rtol=1e-7)
