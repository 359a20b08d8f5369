"""`fit` by scoring: statsmodels' numbers on the pooled frame, whatever the split, and words where there are none."""

import re
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import fedgauss as fg
from any_fit import any_fit

RNG = np.random.default_rng(7)
N = 600
FRAME = pd.DataFrame(
    {
        "year": 1990 + RNG.integers(0, 30, N),
        "income": np.exp(10 + RNG.standard_normal(N)),
        "ward": RNG.choice(["north", "east", "west"], N),
        "smokes": RNG.random(N) < 0.4,
        "weight": RNG.random(N) + 0.2,
        "beds": RNG.integers(1, 9, N),
        "hospital": np.sort(RNG.choice(["a", "b", "c", "d"], N, p=[0.1, 0.2, 0.3, 0.4])),
    }
)
_SCORE = 0.05 * (FRAME.year - 2005) + 1e-5 * FRAME.income - 0.8 * FRAME.smokes + 0.7 * (FRAME.ward == "west")
FRAME["doctor"] = FRAME.hospital + (RNG.integers(0, 12, N)).astype(str)
FRAME["cost"] = 3000 + 500 * (_SCORE + RNG.standard_normal(N))
FRAME["died"] = (_SCORE + RNG.logistic(size=N) > 0).astype(int)
FRAME["visits"] = RNG.poisson(np.exp(0.5 * _SCORE.clip(-3, 3)) * FRAME.beds)
FRAME["cured"] = RNG.binomial(FRAME.beds, 1 / (1 + np.exp(-_SCORE)))
RIGHT = "year + np.log(income) + C(ward) * smokes"
TIGHT = {"tol": 1e-15, "maxiter": 200, "tol_criterion": "params"}
FAMILIES = {"cost": sm.families.Gaussian(), "died": sm.families.Binomial(), "visits": sm.families.Poisson()}


@pytest.mark.parametrize(("target", "family"), [("cost", None), ("died", "binomial"), ("visits", "poisson")])
@pytest.mark.parametrize("errors", ["HC0", "cluster", "site", "model"])
def test_the_fit_is_that_of_statsmodels_on_the_pooled_frame(target, family, errors):
    groups = {"cluster": "doctor", "site": "hospital"}.get(errors)
    how = {"cov_type": "nonrobust"} if errors == "model" else {"cov_type": "HC0"}
    if groups:
        how = {"cov_type": "cluster", "cov_kwds": {"groups": pd.factorize(FRAME[groups])[0]}}
    pooled = smf.glm(f"{target} ~ {RIGHT}", FRAME, family=FAMILIES[target]).fit(**TIGHT, **how)
    cluster = "doctor" if errors == "cluster" else None
    found = fg.fit(
        FRAME,
        fg.Model(target, family=family, formula=f"{target} ~ {RIGHT}", errors=errors, cluster=cluster),
        client="hospital",
    )
    assert found.names == tuple(pooled.params.index)
    np.testing.assert_allclose(found.params, pooled.params, rtol=1e-8)
    np.testing.assert_allclose(found.std_errors, pooled.bse, rtol=1e-6)
    assert found.statistics.log_likelihood == pytest.approx(pooled.llf, rel=1e-8)
    assert found.statistics.deviance == pytest.approx(pooled.deviance, rel=1e-8)
    assert found.statistics.null_deviance == pytest.approx(pooled.null_deviance, rel=1e-8)


@pytest.mark.parametrize(
    ("target", "how"),
    [
        ("cost", {}), ("income", {"family": "gamma"}), ("visits", {"family": "poisson"}),
        ("income", {"event": "smokes"}),
    ],
)  # fmt: skip
def test_rows_of_weight_0_are_not_there(target, how):
    """As in R: not in the degrees of freedom, and a value that is missing there is none."""
    weight = FRAME.weight.where(RNG.random(N) < 0.7, 0.0)
    frame = FRAME.assign(weight=weight, year=FRAME.year.where(weight > 0.0))
    model = {"features": ["year"], "row_weights": "weight", "errors": "HC1"} | how
    found = any_fit(frame, target, "hospital", **model)
    without = any_fit(frame[weight > 0.0], target, "hospital", **model)
    np.testing.assert_array_equal(found.params, without.params)
    np.testing.assert_array_equal(found.cov, without.cov)
    assert found.statistics == without.statistics
    assert found.facts["Rows dropped"] == str(int((weight == 0.0).sum()))


@pytest.mark.parametrize(("target", "family", "law"), [
    ("income", "gamma", sm.families.Gamma(sm.families.links.Log())), ("visits", "poisson", sm.families.Poisson()),
])  # fmt: skip
def test_sites_own_fits_are_found_whatever_the_unit_of_the_target(target, family, law):
    """Means of 1e4 and more lie far from a predictor of zero."""
    frame = FRAME.assign(**{target: FRAME[target] * 10_000})
    found = fg.fit(frame, target, "hospital", family, ["beds"]).sites
    assert found.sites == ("a", "b", "c", "d")
    for site, params, errors in zip(found.sites, found.params, found.std_errors, strict=True):
        pooled = smf.glm(f"{target} ~ beds", frame[frame.hospital == site], family=law).fit(cov_type="HC0", **TIGHT)
        np.testing.assert_allclose(params, pooled.params, rtol=1e-8)
        np.testing.assert_allclose(errors, pooled.bse, rtol=1e-6)


def test_hc1_is_that_of_least_squares():
    pooled = smf.ols(f"cost ~ {RIGHT}", FRAME).fit(cov_type="HC1")
    found = fg.fit(FRAME, "cost", "hospital", formula=f"cost ~ {RIGHT}", errors="HC1")
    np.testing.assert_allclose(found.std_errors, pooled.bse, rtol=1e-8)


def test_exposure_offset_weights_and_trials():
    rate = smf.glm("visits ~ year", FRAME, family=sm.families.Poisson(), exposure=FRAME.beds).fit(**TIGHT)
    found = fg.fit(
        FRAME,
        fg.Model("visits", family="poisson", features=["year"], exposure="beds", errors="model"),
        client="hospital",
    )
    np.testing.assert_allclose(found.params, rate.params, rtol=1e-8)
    np.testing.assert_allclose(found.std_errors, rate.bse, rtol=1e-6)
    logs = FRAME.assign(logs=np.log(FRAME.beds))
    other = fg.fit(logs, fg.Model("visits", family="poisson", features=["year"], offset="logs"), client="hospital")
    np.testing.assert_allclose(other.params, found.params, rtol=1e-12)
    heavy = smf.wls("cost ~ year", FRAME, weights=FRAME.weight).fit()
    found = fg.fit(FRAME, fg.Model("cost", features=["year"], row_weights="weight", errors="model"), client="hospital")
    np.testing.assert_allclose(found.params, heavy.params, rtol=1e-8)
    np.testing.assert_allclose(found.std_errors, heavy.bse, rtol=1e-6)
    both = np.column_stack([FRAME.cured, FRAME.beds - FRAME.cured])
    shares = sm.GLM(both, sm.add_constant(FRAME[["year"]]), family=sm.families.Binomial()).fit(**TIGHT)
    found = fg.fit(FRAME, fg.Model("cured", features=["year"], trials="beds", errors="model"), client="hospital")
    np.testing.assert_allclose(found.params, shares.params, rtol=1e-8)
    assert found.statistics.log_likelihood == pytest.approx(shares.llf, rel=1e-8)


def test_clients_and_their_order_do_not_matter():
    one = fg.fit(FRAME, "died", "hospital", "binomial", ["year", "ward"])
    for split in (np.arange(N) % 40, FRAME.year > 2005, RNG.permutation(N) % 3):
        other = fg.fit(FRAME.assign(hospital=split), "died", "hospital", "binomial", ["year", "ward"])
        np.testing.assert_allclose(other.params, one.params, rtol=1e-11)
        np.testing.assert_allclose(other.std_errors, one.std_errors, rtol=1e-11)


def test_frames_of_every_kind_say_the_same():
    one = fg.fit(FRAME, "cost", "hospital", features=["ward", "smokes", "year"])
    for frame in (pl.from_pandas(FRAME), FRAME.to_dict("list"), FRAME.astype({"ward": "category"})):
        other = fg.fit(frame, "cost", "hospital", features=["ward", "smokes", "year"])
        assert other.names == one.names
        np.testing.assert_array_equal(other.params, one.params)


def test_site_effects_are_indicators():
    pooled = smf.ols("cost ~ year + C(hospital)", FRAME).fit(cov_type="HC0")
    found = fg.fit(FRAME, fg.Model("cost", features=["year"], site_effects=True), client="hospital")
    assert found.names == ("const", "year", "site[T.b]", "site[T.c]", "site[T.d]")
    order = ["Intercept", "year", "C(hospital)[T.b]", "C(hospital)[T.c]", "C(hospital)[T.d]"]
    np.testing.assert_allclose(found.params, pooled.params[order], rtol=1e-8)


def test_missing_rows_are_refused_or_dropped_and_counted():
    holes = FRAME.assign(income=FRAME.income.where(FRAME.index % 50 > 0))
    with pytest.raises(ValueError, match=r"values must not be missing; they are in 'income' \(12\)"):
        fg.fit(holes, "cost", "hospital", features=["income", "year"])
    found = fg.fit(holes, "cost", "hospital", features=["income", "year"], missing="drop")
    assert (found.facts["Rows"], found.facts["Rows dropped"]) == ("588", "12")
    whole = fg.fit(holes.dropna(), "cost", "hospital", features=["income", "year"])
    np.testing.assert_array_equal(found.params, whole.params)


def test_a_penalty_shrinks_slopes_and_not_the_intercept():
    found = fg.fit(FRAME, fg.Model("cost", features=["year", "income"], ridge=50.0), client="hospital")
    x = FRAME[["year", "income"]].to_numpy(float)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    slopes = np.linalg.solve(scaled.T @ scaled + 50.0 * np.eye(2), scaled.T @ FRAME.cost) / x.std(axis=0)
    np.testing.assert_allclose(found.params[1:], slopes, rtol=1e-9)
    assert found.params[0] == pytest.approx(FRAME.cost.mean() - x.mean(axis=0) @ slopes, rel=1e-9)


def test_one_step_after_a_pass_is_nearly_the_exact_fit_and_five_are():
    exact = fg.fit(FRAME, "died", "hospital", "binomial", ["year", "ward"])
    for steps, close in ((1, 3e-2), (5, 1e-9)):
        found = fg.fit(FRAME, "died", "hospital", "binomial", ["year", "ward"], solver=fg.SGD(finish=steps))
        assert np.abs((found.params - exact.params) / exact.std_errors).max() < close
        assert "of scoring" in found.facts["Solver"]
    np.testing.assert_allclose(found.std_errors, exact.std_errors, rtol=1e-8)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"target": "died"}, "family must be given for a target with two values; 'died' has 0 and 1"),
        ({}, {"errors": "HC3"}, "errors must be one of"),
        ({}, {"ridge": -1.0}, "ridge must be a number that is not negative; got -1.0"),
        ({}, {"target": "died", "family": "binomial", "link": "log"}, "link of family 'logistic' must be one of"),
        ({"copy": FRAME.year * 2.0}, {"features": ["year", "copy"]}, "'(year|copy)' is made up of '(year|copy)' and"),
        ({"year": 5}, {}, "columns must vary; column 'year' is constant"),
        ({"died": FRAME.year > 2004}, {"target": "died", "family": "binomial"}, "linearly separable"),
        ({"year": FRAME.year.where(FRAME.index > 0, 1e9)}, {}, "one of column 'year' does. Is it a typing error"),
        ({"year": FRAME.year.astype(str)}, {}, "column 'year' holds numbers as text"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_fix(change, options, message):
    asked = {"target": "cost", "client": "hospital", "features": ["year", "ward"]} | options
    with pytest.raises(ValueError, match=message):
        any_fit(FRAME.assign(**change), **asked)


def test_an_exact_fit_needs_no_jax():
    code = (
        "import sys, fedgauss as fg; fg.fit({'y': [1., 2, 4, 3, 5, 9], 'x': [0., 1, 2, 3, 4, 7], 'h': list('aabbcc')}, "
        "'y', 'h'); sys.exit('jax' in sys.modules)"
    )
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_few_clusters_are_noted():
    few = fg.fit(FRAME, "cost", "hospital", features=["year", "income", "smokes"], errors="site")
    (note,) = few.notes
    assert "those of 4 clusters" in note
    assert "They have rank 3, and there are 4 parameters" in note
    many = fg.fit(FRAME, fg.Model("cost", features=["year"], errors="cluster", cluster="doctor"), client="hospital")
    assert FRAME.doctor.nunique() >= 30
    assert many.notes == ()


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        ("cost", {"errors": "cluster"}, "errors='cluster' needs a column that says who belongs together"),
        ("cost", {"cluster": "doctor"}, "cluster is for errors='cluster'; got errors='HC0'"),
        ("cost", {"solver": "sgd", "ridge": 1.0}, r"ridge=1.0 belongs to solver='scoring'"),
        ("cost", {"solver": "sgd", "errors": "HC1"}, r"errors='HC1' belongs to solver='scoring'"),
        ("income", {"event": "smokes", "site_effects": True}, "sites are strata already"),
        ("income", {"event": "smokes", "features": ["year", "size"]}, "columns must vary within sites .* 'size' is"),
        ("loss", {"link": "log"}, "the log link must be able to give the mean response; that of all rows is -"),
        ("cost", {"features": ["year", "beds", "nearly"]}, "is all but .* made up of .* Leave one out"),
    ],
)  # fmt: skip
def test_what_would_be_ignored_or_end_without_a_word_is_refused(target, how, message):
    nearly = FRAME.year + FRAME.beds + 3e-5 * np.sin(np.arange(N))
    frame = FRAME.assign(
        size=FRAME.hospital.map({"a": 1.0, "b": 2.0, "c": 5.0, "d": 7.0}), loss=-FRAME.cost, nearly=nearly
    )
    with pytest.raises(ValueError, match=message):
        any_fit(frame, target, "hospital", **{"features": ["year"]} | how)


def test_decimals_are_numbers():
    """As databases and polars give them."""
    frame = FRAME[["cost", "hospital"]].assign(year=[Decimal(int(year)) for year in FRAME.year])
    found = fg.fit(frame, "cost", "hospital")
    np.testing.assert_array_equal(found.params, fg.fit(FRAME, "cost", "hospital", features=["year"]).params)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("level", "parameter", "named"),
    [("zoo", "ward[T.zoo]", r"ward\[T.zoo\] \(1\)"), ("attic", "ward[T.west]", r"the base level of ward \(1\)")],
)
def test_levels_of_few_rows_come_with_a_note(level, parameter, named):
    """A level with one row fits that row exactly, so that its robust error counts none of the noise of the row."""
    frame = FRAME.assign(ward=FRAME.ward.where(FRAME.index != 5, level))
    robust, model = (fg.fit(frame, "cost", "hospital", features=["ward"], errors=how) for how in ("HC0", "model"))
    place = robust.names.index(parameter)
    assert robust.std_errors[place] < model.std_errors[place] / 5
    (note,) = robust.notes
    assert re.search(f"Fewer than 5 rows stand behind {named}: robust errors are then too small", note)
    assert "nan" not in str(model)
    assert model.notes == ()
    assert str(robust)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"income": FRAME.income * 1e120}, r"at most 1e\+100 in size; column 'income' has larger"),
        ({"income": FRAME.income.where(FRAME.index > 2)}, r"'income' \(3\). Fill them in, or .* missing='drop'"),
        ({"income": pd.date_range("2020-01-01", periods=N)}, "got datetime. Make it a number first"),
    ],
)
def test_columns_that_cannot_be_used_come_with_what_to_do(changed, rule):
    with pytest.raises(ValueError, match=rule):
        fg.fit(FRAME.assign(**changed), "cost", "hospital", features=["income"])


def test_logit_is_a_name_of_the_binomial_family():
    one, other = (fg.fit(FRAME, "died", "hospital", family, ["year"]) for family in ("logit", "binomial"))
    assert np.array_equal(one.params, other.params)


def test_a_caret_in_a_formula_is_answered_with_the_right_sign():
    with pytest.raises(ValueError, match=r"may not have '\^' .* Powers are written with \*\*"):
        fg.fit(FRAME, "cost", "hospital", formula="cost ~ year^2")
