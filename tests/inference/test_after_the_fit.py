"""After a fit of a frame: statistics, tests of models, predictions and files, against statsmodels."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import fedgauss as fg
from any_fit import any_fit
from fedgauss import families
from fedgauss.inference.fit_result import Fit, likelihood_ratio

RNG = np.random.default_rng(4)
N = 400
FRAME = pd.DataFrame(
    {
        "age": RNG.uniform(20, 80, N),
        "dose": RNG.exponential(2.0, N),
        "ward": RNG.choice(["east", "north", "west"], N),
        "days": RNG.uniform(1, 9, N),
        "site": RNG.choice(["a", "b", "c"], N),
    }
)
SCORE = 0.03 * (FRAME.age - 50) - 0.2 * FRAME.dose + 0.5 * (FRAME.ward == "west")
FRAME["died"] = (SCORE + RNG.logistic(size=N) > 0).astype(int)
FRAME["cost"] = 10 + SCORE + RNG.standard_normal(N)
FRAME["visits"] = RNG.poisson(FRAME.days * np.exp(SCORE.clip(-2, 2)))
NEW = FRAME.drop(columns=["died", "cost", "visits", "site"]).iloc[[5, 1, 2, 100, 7]]
MODELS = {
    "gaussian": ("cost ~ age*dose + ward", sm.families.Gaussian()),
    "binomial": ("died ~ age + log(dose) + C(ward, Treatment('west'))", sm.families.Binomial()),
    "poisson": ("visits ~ age + ward + offset(log(days))", sm.families.Poisson()),
}


def both(family):
    formula, model = MODELS[family]
    ours = fg.fit(FRAME, formula.split()[0], "site", family, formula=formula, errors="model")
    theirs = formula.replace(" + offset(log(days))", "").replace("log(", "np.log(")
    offset = np.log(FRAME.days) if "offset" in formula else None
    return ours, smf.glm(theirs, FRAME, family=model, offset=offset).fit()


@pytest.mark.parametrize("family", MODELS)
def test_statistics_and_predictions_are_those_of_statsmodels(family, tmp_path):
    ours, pooled = both(family)
    held = ours.statistics
    found = (held.log_likelihood, held.deviance, held.null_deviance, held.pearson_chi2, held.aic, held.dof_resid)
    known = (pooled.llf, pooled.deviance, pooled.null_deviance, pooled.pearson_chi2, pooled.aic, pooled.df_resid)
    np.testing.assert_allclose(found, known, rtol=1e-8)
    assert f"Rounds: {held.rounds}" in ours.summary()
    offset = {"offset": np.log(NEW.days)} if family == "poisson" else {}
    np.testing.assert_allclose(ours.predict(NEW), pooled.predict(NEW, **offset), rtol=1e-8)
    table = pooled.get_prediction(NEW, **offset).summary_frame()
    interval = ours.predict(NEW, interval="confidence")
    np.testing.assert_allclose(interval.low, table["mean_ci_lower"], rtol=1e-7)
    np.testing.assert_allclose(interval.high, table["mean_ci_upper"], rtol=1e-7)
    ours.save(tmp_path / "fit.json")
    again = Fit.load(tmp_path / "fit.json")
    assert again.summary() == ours.summary()
    assert again.statistics == held
    np.testing.assert_array_equal(again.predict(NEW), ours.predict(NEW))
    np.testing.assert_array_equal(again.predict(NEW, interval="confidence").high, interval.high)


@pytest.mark.parametrize(
    ("target", "how"),
    [
        ("cost", {"family": "gaussian"}),
        ("cost", {"family": "gaussian", "row_weights": "days"}),
        ("cost", {"family": "gamma"}),
        ("died", {"family": "binomial"}),
        ("visits", {"family": "negative_binomial"}),
    ],
)
def test_the_null_log_likelihood_is_that_of_the_model_without_covariates(target, how):
    """At a dispersion of its own. statsmodels' `llnull` takes that of the full model, so it depends on covariates."""
    held = any_fit(FRAME, target, "site", formula=f"{target} ~ age + ward", **how).statistics
    alone = any_fit(FRAME, target, "site", formula=f"{target} ~ 1", **how).statistics
    assert held.null_log_likelihood == pytest.approx(alone.log_likelihood, rel=1e-10)
    if how == {"family": "gaussian"}:
        assert alone.log_likelihood == pytest.approx(sm.OLS(FRAME.cost, np.ones(N)).fit().llf, rel=1e-10)


@pytest.mark.parametrize(
    ("target", "how"),
    [
        ("cost", {"formula": "cost ~ ns(age, df=3)*ward + scale(dose) + center(log(days)) + I((age - 50) ** 2)"}),
        ("cost", {"formula": "cost ~ ns(age, knots=[40, 60], bounds=[20, 80]) + age:C(ward, Treatment('west')) - 1"}),
        ("cost", {"formula": "cost ~ a:b + .", "family": families.Huber(2.0)}),
        ("cost", {"features": ["old", "ward"], "site_effects": True, "errors": "model"}),
        ("visits", {"family": "negative_binomial", "features": ["age"], "exposure": "days", "offset": "dose"}),
        ("died", {"family": "binomial", "features": ["age", "ward"], "link": "probit"}),
        ("ward", {"family": "multinomial", "features": ["age"]}),
        ("days", {"family": families.Cox("breslow"), "event": "died", "features": ["age", "ward"]}),
        ("cost", {"features": []}),
    ],
)  # fmt: skip
def test_a_fit_from_a_file_predicts_what_it_did(tmp_path, target, how):
    frame = FRAME.assign(old=FRAME.age > 50, b=FRAME.dose**2, a=RNG.standard_normal(N))
    ours = any_fit(frame, target, "site", **how)
    ours.save(tmp_path / "fit.json")
    again, new = Fit.load(tmp_path / "fit.json"), frame.iloc[[5, 1, 2, 100, 7]]
    np.testing.assert_array_equal(again.predict(new), ours.predict(new))
    shown = again.predict(new, interval="confidence", type="predictor")
    np.testing.assert_array_equal(shown.low, ours.predict(new, interval="confidence", type="predictor").low)
    assert again.family == ours.family
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "fit.json").read_bytes()


def test_effects_of_sites_are_those_of_the_column_of_sites():
    model = smf.ols("cost ~ age + C(site)", FRAME).fit()
    ours = fg.fit(FRAME, fg.Model("cost", features=["age"], site_effects=True), client="site")
    new = FRAME.head(9)
    np.testing.assert_allclose(ours.predict(new), model.predict(new), rtol=1e-9)
    with pytest.raises(ValueError, match="sites must be among those of the fit, which have effects; 'z' is not"):
        ours.predict(new.assign(site="z"))
    with pytest.raises(ValueError, match="the site of each row must name a column of the frame"):
        ours.predict(new.drop(columns="site"))


def test_with_levels_that_are_no_json_a_file_comes_without_predictions(tmp_path):
    ours = fg.fit(FRAME.assign(age=pd.cut(FRAME.age, [0, 40, 60, 99])), "cost", "site", features=["age"])
    ours.save(tmp_path / "fit.json")
    with pytest.raises(ValueError, match="this fit does not know them"):
        Fit.load(tmp_path / "fit.json").predict(NEW)


def test_a_shape_is_no_coefficient_to_take_the_exponential_of(tmp_path):
    """Nor has the model without covariates the same one: its deviance would be about another alpha."""
    ours = fg.fit(FRAME, "visits", "site", "negative_binomial", ["age", "dose"])
    assert ours.names[-1] == "log(alpha)"
    assert list(ours.to_frame().index) == ["const", "age", "dose", "log(alpha)"]
    assert list(ours.to_frame(exp=True).index) == ["age", "dose"]
    assert [label.get_text() for label in ours.plot().axes[0].get_yticklabels()] == ["age", "dose"]
    assert ours.statistics.null_deviance is None
    ours.save(tmp_path / "fit.json")
    assert Fit.load(tmp_path / "fit.json").to_latex(exp=True) == ours.to_latex(exp=True)


def test_a_new_level_and_a_missing_column_are_named():
    ours, _ = both("gaussian")
    with pytest.raises(ValueError, match="'south' of 'ward' is not"):
        ours.predict(NEW.assign(ward="south"))
    with pytest.raises(ValueError, match="the frame must have all columns of the model; it lacks 'dose'"):
        ours.predict(NEW.drop(columns="dose"))


def test_a_model_without_covariates_predicts_its_mean():
    ours = fg.fit(FRAME, "cost", "site", "gaussian", [])
    np.testing.assert_allclose(ours.predict(NEW), np.full(5, FRAME.cost.mean()))


def test_the_likelihood_ratio_of_two_fits():
    big = fg.fit(FRAME, "died", "site", "binomial", ["age", "dose", "ward"])
    small = fg.fit(FRAME, "died", "site", "binomial", ["age", "dose"])
    test = likelihood_ratio(big, small)
    logits = [
        smf.logit(f"died ~ age + dose{more}", FRAME).fit(disp=0).llf for more in (" + ward", "")
    ]  # fmt: skip
    assert test.statistic == pytest.approx(2 * (logits[0] - logits[1]), rel=1e-7)
    assert test.dof == 2
    fewer = fg.fit(FRAME.iloc[:-1], "died", "site", "binomial", ["age", "dose"])
    with pytest.raises(ValueError, match="the same rows; got 400 and 399"):
        likelihood_ratio(big, fewer)
