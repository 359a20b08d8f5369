"""Negative binomial regression against statsmodels, and counts that are not overdispersed."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.discrete.discrete_model import NegativeBinomial as Discrete

import fedgauss as fg
from exact_fits import fit_split
from fedgauss.families import NegativeBinomial
from fedgauss.families.negative_binomial import _rising
from fedgauss.families.rows import NoFiniteEstimate, Rows

RNG = np.random.default_rng(2)
X = RNG.normal(size=(400, 2))
MEAN = np.exp(0.7 + X @ [0.4, -0.3])
Y = RNG.poisson(MEAN * RNG.gamma(1.5, 1 / 1.5, 400)).astype(float)
SITE = RNG.integers(0, 5, 400)


def test_alpha_and_coefficients_are_those_of_the_pooled_fit():
    """Standard errors too: from the observed information of all parameters, alpha's by the delta method."""
    offset = 0.2 * RNG.normal(size=400)
    theirs = Discrete(Y, sm.add_constant(X), offset=offset).fit(method="newton", tol=1e-14, disp=0)
    ours = fit_split(NegativeBinomial(), X, Y, SITE, offset=offset)
    alpha = np.exp(ours.params[-1])
    np.testing.assert_allclose([*ours.params[:-1], alpha], theirs.params, rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model") * [1, 1, 1, alpha], theirs.bse, rtol=1e-8)
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-12)
    robust = Discrete(Y, sm.add_constant(X), offset=offset).fit(method="newton", tol=1e-14, disp=0, cov_type="HC0")
    np.testing.assert_allclose(ours.bse("HC0") * [1, 1, 1, alpha], robust.bse, rtol=1e-8)


def test_with_alpha_given_it_is_a_generalised_linear_model():
    weights = RNG.uniform(0.5, 2.0, 400)
    law = sm.families.NegativeBinomial(alpha=0.7)
    theirs = sm.GLM(Y, sm.add_constant(X), family=law, freq_weights=weights).fit(
        tol=1e-14, tol_criterion="params", maxiter=300
    )
    ours = fit_split(NegativeBinomial(0.7), X, Y, SITE, weights=weights)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model"), theirs.bse, rtol=1e-9)
    found = [ours.exact.goodness.deviance, ours.exact.goodness.log_likelihood, ours.exact.goodness.pearson]
    np.testing.assert_allclose(found, [theirs.deviance, theirs.llf, theirs.pearson_chi2], rtol=1e-10)


@pytest.mark.parametrize("far", [-6.0, -2.0, 3.0, 5.0])
def test_it_finds_the_way_from_a_bad_start(far):
    """Where the log-likelihood is not concave in log(alpha), too."""
    near = fit_split(NegativeBinomial(), X, Y, SITE)
    away = fit_split(NegativeBinomial(), X, Y, SITE, start=[0.0, 0.0, 0.0, far])
    np.testing.assert_allclose(away.params, near.params, rtol=1e-8)


def test_counts_that_do_not_vary_enough_are_sent_to_poisson():
    """Binomial counts vary less than Poisson counts do, whatever the covariates say."""
    counts = RNG.binomial(8, 1 / (1 + np.exp(-X @ [0.3, 0.2]))).astype(float)
    with pytest.raises(NoFiniteEstimate, match=r"vary no more than those of a Poisson law: .* Use family='poisson'"):
        fit_split(NegativeBinomial(), X, counts, SITE)


def test_a_small_alpha_of_large_counts_is_found():
    """The mean is 1e4 and alpha 1e-4, so that the variance is twice the mean."""
    large = RNG.poisson(1e4 * RNG.gamma(1e4, 1e-4, 2000)).astype(float)
    alpha = np.exp(fit_split(NegativeBinomial(), RNG.normal(size=(2000, 1)), large, np.arange(2000) % 3).params[-1])
    assert 0.85e-4 < alpha < 1.15e-4  # its standard error is 6 %: four of them would be 1e-4 chance


def test_sums_over_small_and_over_huge_counts_agree(monkeypatch):
    """Those term by term are those of log-gammas and their derivatives."""
    y = np.array([0.0, 1.0, 7.0, 40.0, 900.0])
    whole = _rising(y, 0.3)
    monkeypatch.setattr("fedgauss.families.negative_binomial._TABLE", 5)
    for term, other in zip(whole, _rising(y, 0.3), strict=True):
        np.testing.assert_allclose(term, other, rtol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match=r"must be counts 0, 1, 2, \.\.\.; row 1 is 0.5"):
        NegativeBinomial().read("visits", np.array([1.0, 0.5]), None)
    with pytest.raises(ValueError, match=r"alpha must be greater than 0; got 0. Use family='poisson'"):
        NegativeBinomial(0.0)
    with pytest.raises(ValueError, match=r"has no fit by SGD: alpha is estimated .* Use solver='scoring'"):
        fg.problems.from_arrays(X, Y, SITE, "negative_binomial")


def test_what_a_row_counts_for():
    """Each number of an answer is a column of X, or of ones, times one of these."""
    family, rows, theta = NegativeBinomial(), Rows(X, Y, 0.0, 1.0 + np.arange(400) % 3), np.array([0.1, 0.2, -0.5])
    columns, sums, scores = (f(rows, *more, theta) for f, more in (
        (family.behind, ("final",)), (family.sums, ()), (family.row_scores, ())
    ))  # fmt: skip
    for what, wanted in (("observed", sums.information), ("squares", scores.T @ scores)):
        pair = "0" if what == "observed" else "0 0"
        found = [X.T @ columns[f"{what} {pair} x{j}"] for j in range(2)]
        np.testing.assert_allclose(found, wanted[:2, :2], rtol=1e-9)
        np.testing.assert_allclose(X.T @ columns[f"{what} log(alpha)"], wanted[2, :2], rtol=1e-9)
        np.testing.assert_allclose(columns[f"{what} log(alpha) twice"].sum(), wanted[2, 2], rtol=1e-9)
    np.testing.assert_allclose([*(X.T @ columns["score 0"]), columns["score log(alpha)"].sum()], sums.score, rtol=1e-9)
    assert list(family.behind(rows, "score", theta)) == ["score 0", "score log(alpha)"]
    assert not any(name.startswith("squares") for name in family.behind(rows, "sums", theta))
