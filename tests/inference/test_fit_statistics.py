"""Statistics of an exact fit, against statsmodels; the likelihood-ratio test and its checks."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import fedgauss as fg
from fedgauss.inference.fit_result import Fit, FitStatistics, likelihood_ratio

RNG = np.random.default_rng(2)
X = sm.add_constant(RNG.standard_normal((300, 3)))
ETA = X @ [0.2, 0.5, -0.4, 0.0]
RESPONSES = {
    "Binomial": (RNG.random(300) < 1 / (1 + np.exp(-ETA))).astype(float),
    "Poisson": RNG.poisson(np.exp(ETA)).astype(float),
    "Gaussian": ETA + RNG.standard_normal(300),
}


def theirs(family, columns=(0, 1, 2, 3)):
    return sm.GLM(RESPONSES[family], X[:, list(columns)], family=getattr(sm.families, family)()).fit()


def ours(family, columns=(0, 1, 2, 3)):
    """A fit with the numbers of statsmodels: what a solver would hand over."""
    pooled = theirs(family, columns)
    statistics = FitStatistics(
        int(pooled.nobs), len(columns), pooled.df_resid, pooled.llf, pooled.llnull, pooled.deviance,
        pooled.null_deviance, pooled.scale, pooled.pearson_chi2, 5, family == "Gaussian",
    )  # fmt: skip
    names = tuple(f"x{i}" for i in columns)
    facts = {"Target": "y", "Family": family}
    return Fit(pooled.params, pooled.cov_params(), 0.95, "scoring", names, facts, statistics=statistics)


@pytest.mark.parametrize("family", RESPONSES)
def test_criteria_are_those_of_statsmodels(family):
    found, pooled = ours(family).statistics, theirs(family)
    assert found.aic == pytest.approx(pooled.aic, rel=1e-12)
    assert found.bic == pytest.approx(pooled.bic_llf, rel=1e-12)
    if family == "Gaussian":
        assert found.r2 == pytest.approx(sm.OLS(RESPONSES[family], X).fit().rsquared, rel=1e-10)
        assert "R2" in found.facts()
    else:
        assert found.r2 == pytest.approx(pooled.pseudo_rsquared(kind="mcf"), rel=1e-10)
        assert "Pseudo R2 (McFadden)" in found.facts()
    assert "Log-likelihood" in str(found)
    assert repr(found) == "<Fit statistics>"


def test_what_a_family_does_not_have_is_not_shown():
    bare = FitStatistics(100, 2, 98, log_likelihood=-5.0)
    assert (bare.r2, bare.aic) == (None, 14.0)
    assert set(bare.facts()) == {"Residual dof", "Log-likelihood", "AIC", "BIC"}
    assert FitStatistics(100, 2, 98).aic is None
    assert FitStatistics(100, 2, 98).bic is None


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"n_rows": 0}, "n_rows must be at least 1"),
        ({"log_likelihood": np.nan}, "log_likelihood must be finite"),
        ({"rounds": -1}, "rounds must be at least 0"),
        ({"gaussian": 1}, "gaussian must be true or false"),
        ({"dof_resid": "many"}, "dof_resid must be a real number"),
    ],
)
def test_statistics_are_checked(change, rule):
    with pytest.raises(ValueError, match=rule):
        replace(FitStatistics(100, 2, 98.0), **change).checked()


@pytest.mark.parametrize("family", RESPONSES)
def test_the_likelihood_ratio_is_that_of_statsmodels(family):
    test = likelihood_ratio(ours(family), ours(family, (0, 1)))
    statistic = 2 * (theirs(family).llf - theirs(family, (0, 1)).llf)
    assert test.statistic == pytest.approx(statistic, rel=1e-10)
    assert test.dof == 2
    assert test.p_value == pytest.approx(stats.chi2.sf(statistic, 2), rel=1e-10)


@pytest.mark.parametrize(("family", "law"), [("gamma", sm.families.Gamma), ("gaussian", sm.families.Gaussian)])
def test_with_a_dispersion_by_moments_it_is_the_difference_of_deviances_over_that_of_the_bigger_model(family, law):
    """R's anova(test="LRT"). Log-likelihoods, each at its own dispersion, may fall as a model grows."""
    rng = np.random.default_rng(8)
    frame = {"x": X[:, 1], "y": rng.gamma(2.0, np.exp(ETA) / 2.0), "k": np.arange(300) % 3}
    link, falls = sm.families.links.Log(), 0
    small = fg.fit(frame, fg.Model("y", family=family, features=["x"], link="log"), client="k")
    for _ in range(8):
        noise = rng.standard_normal(300)
        big = fg.fit(
            frame | {"noise": noise}, fg.Model("y", family=family, features=["x", "noise"], link="log"), client="k"
        )
        one, other = (sm.GLM(frame["y"], x, law(link)).fit(tol=1e-12) for x in (X[:, :2], np.c_[X[:, :2], noise]))
        found = likelihood_ratio(big, small)
        assert found.statistic == pytest.approx((one.deviance - other.deviance) / other.scale, rel=1e-6)
        assert found.dof == 1
        falls += other.llf < one.llf
    assert falls or family == "gaussian"  # or this would show nothing


def test_penalised_fits_are_not_compared():
    frame = {"x": X[:, 1], "z": X[:, 2], "y": RESPONSES["Poisson"], "k": np.arange(300) % 3}
    big = fg.fit(frame, fg.Model("y", family="poisson", features=["x", "z"], ridge=1.0), client="k")
    assert "The penalty draws coefficients towards zero" in big.summary()
    with pytest.raises(ValueError, match="needs fits without a penalty"):
        likelihood_ratio(big, fg.fit(frame, "y", "k", "poisson", ["x"]))


def test_a_partial_likelihood_has_no_deviance_to_compare():
    def cox(names, log_likelihood, null):
        held = FitStatistics(50, len(names), 50, log_likelihood=log_likelihood, null_log_likelihood=null)
        return Fit(np.ones(len(names)), np.eye(len(names)), 0.95, "scoring", names, statistics=held)

    assert likelihood_ratio(cox(("a", "b"), -90.0, -99.0), cox(("a",), -92.0, -99.0)).statistic == 4.0
    with pytest.raises(ValueError, match="null_log_likelihood of the two, -99 and -98, says that they are not"):
        likelihood_ratio(cox(("a", "b"), -90.0, -99.0), cox(("a",), -92.0, -98.0))


def test_models_that_cannot_be_compared_are_refused():
    big, small = ours("Poisson"), ours("Poisson", (0, 1))
    cases = {
        "needs the log-likelihood of both": (big, replace(small, statistics=None)),
        "the same family; got 'Poisson' and 'Binomial'": (big, ours("Binomial", (0, 1))),
        "the same target; got 'y' and 'z'": (big, replace(small, facts={"Target": "z", "Family": "Poisson"})),
        "the same rows; got 300 and 299": (big, replace(small, statistics=replace(small.statistics, n_rows=299))),
        "says that they are not": (big, replace(small, statistics=replace(small.statistics, null_deviance=1.0))),
        "which has no 'x9'": (big, replace(small, names=("x0", "x9"))),
        "Give the bigger one first": (small, replace(big, names=("x0", "x1", "x0", "x1"))),
        "must be the more likely": (replace(big, statistics=replace(big.statistics, log_likelihood=-1e4)), small),
    }
    for rule, (bigger, smaller) in cases.items():
        with pytest.raises(ValueError, match=rule):
            likelihood_ratio(bigger, smaller)
