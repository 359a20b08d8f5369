"""Huber regression by exact fits: the minimum of its loss, from any start."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import minimize

from exact_fits import fit_split
from fedgauss.families import Huber
from fedgauss.inference.errors import check_errors

RNG = np.random.default_rng(5)
X = RNG.normal(size=(200, 2))
Y = X @ [1.0, -2.0] + RNG.standard_t(2.0, 200)
SITE = RNG.integers(0, 4, 200)


def test_it_is_the_robust_fit_with_a_fixed_scale():
    """Statsmodels' threshold is in units of a scale, here that of its first residuals."""
    theirs = sm.RLM(Y, sm.add_constant(X), M=sm.robust.norms.HuberT(1.345)).fit(
        update_scale=False, tol=1e-13, maxiter=500
    )
    ours = fit_split(Huber(1.345 * theirs.scale), X, Y, SITE)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-9)


def test_errors_are_the_sandwich():
    """A^-1 B A^-1 with the rows inside the threshold in A, and clipped residuals squared in B."""
    design, ours = sm.add_constant(X), fit_split(Huber(1.0), X, Y, SITE)
    residual = np.clip(Y - design @ ours.params, -1.0, 1.0)
    bread = np.linalg.inv(design[np.abs(residual) < 1.0].T @ design[np.abs(residual) < 1.0])
    wanted = bread @ (design * residual[:, None] ** 2).T @ design @ bread
    np.testing.assert_allclose(ours.cov("HC0"), wanted, rtol=1e-9)
    with pytest.raises(ValueError, match=r"'huber' has no model for errors='model' .* Use errors='HC0'"):
        check_errors("model", Huber(), clustered=False)


@pytest.mark.parametrize("threshold", [0.3, 1.345, 20.0])
@pytest.mark.parametrize("wild", [0.0, 1e6])
def test_it_is_the_minimum_from_any_start(threshold, wild):
    """A start at which no row lies inside the threshold is as good as any, and so is a mean that one value moves."""
    y = Y + wild * (np.arange(200) == 7)
    design = sm.add_constant(X)

    def loss(theta):
        size = np.abs(y - design @ theta)
        inside = np.minimum(size, threshold)
        return np.sum(inside * (size - inside / 2.0))

    ours = [fit_split(Huber(threshold), X, y, SITE, start=start) for start in (None, [30.0, -50.0, 20.0])]
    np.testing.assert_allclose(ours[1].params, ours[0].params, rtol=1e-8)
    gradient = design.T @ np.clip(y - design @ ours[0].params, -threshold, threshold)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-7)
    other = minimize(loss, ours[0].params + 0.1, method="BFGS", options={"gtol": 1e-6})
    assert loss(ours[0].params) <= other.fun * (1.0 + 1e-12)
