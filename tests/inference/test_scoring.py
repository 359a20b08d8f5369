"""Scoring: steps that never lower the likelihood, a maximum to rounding, and words where there is none."""

from itertools import pairwise

import numpy as np
import pytest

from fedgauss.families import Logistic, Poisson
from fedgauss.families.rows import Rows, Sums
from fedgauss.inference.exact import PooledSites, exact_fit, finite_sums, total
from fedgauss.inference.scoring import NoFiniteEstimate, inverse, scored

RNG = np.random.default_rng(11)
N = 400
X = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
COUNTS = RNG.poisson(np.exp(X @ [0.5, 0.4, -0.3])).astype(float)


def test_a_step_too_far_is_halved():
    """From a start where a whole step of Poisson regression overshoots by orders of magnitude."""
    heard = []

    def ask(theta):
        sums = finite_sums(Poisson(), Rows(X, COUNTS), theta)
        heard.append(sums.log_likelihood)
        return sums

    end = scored(ask, np.array([-6.0, 0.0, 0.0]))
    assert any(later < before for before, later in pairwise(heard))  # tried, and not kept
    np.testing.assert_allclose(end.theta, scored(ask, np.zeros(3)).theta, rtol=1e-9)
    assert np.abs(Poisson().sums(Rows(X, COUNTS), end.theta).score).max() < 1e-9


def test_the_split_does_not_matter():
    whole = Poisson().sums(Rows(X, COUNTS), np.array([0.1, 0.2, 0.3]))
    parts = [Poisson().sums(Rows(X[i], COUNTS[i]), np.array([0.1, 0.2, 0.3])) for i in np.array_split(np.arange(N), 7)]
    for one, other in zip(whole, total(parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_separable_classes_have_no_finite_estimate():
    y = (X[:, 1] > 0).astype(float)
    with pytest.raises(NoFiniteEstimate):
        scored(lambda theta: Logistic().sums(Rows(X, y), theta), np.zeros(3))
    ridge = np.array([0.0, 1.0, 1.0])
    end = scored(lambda theta: Logistic().sums(Rows(X, y), theta), np.zeros(3), ridge=ridge)
    np.testing.assert_allclose(Logistic().sums(Rows(X, y), end.theta).score, ridge * end.theta, atol=1e-9)


def test_a_flat_direction_is_refused():
    with pytest.raises(NoFiniteEstimate, match="a combination of parameters vanishes"):
        inverse(np.ones((2, 2)))
    with pytest.raises(NoFiniteEstimate, match="about a parameter vanishes"):
        inverse(np.diag([1.0, 0.0]))
    with pytest.raises(NoFiniteEstimate, match="about a parameter vanishes"):
        inverse(np.diag([1.0, np.nan]))


def test_a_log_likelihood_that_is_no_number_is_no_step_up():
    def ask(theta):
        return Sums(0.0 if theta[0] < 1.0 else np.nan, np.array([10.0]), np.eye(1))

    with pytest.raises(NoFiniteEstimate):
        scored(ask, np.zeros(1))


def test_a_fit_is_a_few_rounds():
    family = Poisson()
    sites = PooledSites(family, [Rows(X[i], COUNTS[i]) for i in np.array_split(np.arange(N), 3)])
    fit = exact_fit(sites, family, np.array([np.log(COUNTS.mean()), 0.0, 0.0]), [0], N)
    assert fit.rounds <= 9
    assert fit.null.deviance > fit.goodness.deviance > 0
