"""`fit`: frames in, estimates on their own scale out, and a sentence for whatever cannot be fitted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

import fedgauss as fg
from any_fit import any_fit
from fedgauss._random import Noise, stage_key
from fedgauss.inference.client_steps import row_batches
from fedgauss.inference.passes import run_passes

by_sgd = partial(any_fit, solver="sgd")
RNG = np.random.default_rng(7)
N = 600
FRAME = pd.DataFrame(
    {
        "year": 1990 + RNG.integers(0, 30, N),
        "income": np.exp(10 + RNG.standard_normal(N)),
        "ward": RNG.choice(["north", "east", "west"], N),
        "smokes": RNG.random(N) < 0.4,
        "stage": RNG.integers(1, 4, N),
        "hospital": RNG.choice(["a", "b", "c", "d"], N, p=[0.1, 0.2, 0.3, 0.4]),
    }
)
_SCORE = (
    0.08 * (FRAME.year - 2005)
    + 2e-5 * FRAME.income
    - 0.8 * FRAME.smokes
    + 0.7 * (FRAME.ward == "west")
    - 0.4 * (FRAME.stage == 3)
)
FRAME["cost"] = 3000 + 500 * (_SCORE + RNG.standard_normal(N))
FRAME["died"] = (_SCORE + RNG.logistic(size=N) > 0).astype(int)
FRAME["visits"] = RNG.poisson(np.exp(1 + 0.3 * _SCORE.clip(-3, 3)))


def changed(**columns):
    return FRAME.assign(**columns)


def unequal_rows(counts=(7, 20, 33), family="linear"):
    total = sum(counts)
    x = np.column_stack([np.arange(total), RNG.standard_normal(total)])
    return fg.problems.from_arrays(x, x[:, 1], np.repeat(np.arange(len(counts)), counts), family, weights="rows")


@pytest.mark.parametrize("counts", [(7, 20, 33), (5, 5, 5), (1, 1, 40), (12, 24, 36, 3)])
def test_every_row_is_read_once_a_pass(counts):
    rows = unequal_rows(counts)
    noise = Noise(stage_key(0, "data"), jnp.uint32(0), len(counts), 1)
    sample = jax.jit(lambda problem, t: problem.sample(noise, t))
    orders = []
    for number in (0, 1):
        problem = row_batches(rows, seed=3, number=number)
        read = [jax.tree.map(np.asarray, sample(problem, t)) for t in range(1, problem.n_steps + 1)]
        seen = np.concatenate([x[:, 0][count > 0] for x, _, count in read])
        np.testing.assert_array_equal(np.sort(seen), np.arange(sum(counts)))
        orders.append(tuple(seen))
        again = jax.tree.map(np.asarray, sample(problem, problem.n_steps + 1))
        assert all(np.array_equal(a, b) for a, b in zip(again, read[0], strict=True))
    assert orders[0] != orders[1]


@pytest.mark.parametrize("family", ["linear", "logistic"])
def test_rows_count_the_same_however_many_a_client_has(family):
    """Over a pass at one place, the mean gradient of a client is that over its rows."""
    counts = (7, 20, 33)
    total = sum(counts)
    x = RNG.standard_normal((total, 2))
    y = (x[:, 0] > 0.2).astype(float)
    rows = fg.problems.from_arrays(x, y, np.repeat(np.arange(3), counts), family, weights="rows")
    problem = row_batches(rows)
    theta = np.array([0.3, -0.5])
    noise = Noise(stage_key(0, "data"), jnp.uint32(0), 3, 1)
    place = jnp.broadcast_to(jnp.float32(theta)[:, None, None], (2, 3, 1))
    gradient = jax.jit(lambda t: problem.gradient(place, problem.sample(noise, t)))
    steps = [gradient(t) for t in range(1, problem.n_steps + 1)]
    mean = np.mean([np.asarray(step)[..., 0].T for step in steps], axis=0)
    np.testing.assert_allclose(mean, rows.moments(theta).gradient, atol=2e-6)


@pytest.mark.parametrize(
    ("formula", "family", "model"),
    [
        pytest.param("cost ~ year + income + C(stage)", "linear", sm.families.Gaussian(), marks=pytest.mark.study),
        ("died ~ year + income + C(stage) + ward + smokes", "logistic", sm.families.Binomial()),
        pytest.param(
            "visits ~ year + income + C(stage) + ward + smokes", "poisson", sm.families.Poisson(),
            marks=pytest.mark.study,
        ),
    ],
    ids=["linear", "logistic", "poisson"],
)  # fmt: skip
def test_many_passes_are_the_pooled_fit(formula, family, model):
    """On the scale of the frame: names, estimates and robust errors as statsmodels has them, unequal clients."""
    pooled = smf.glm(formula, FRAME, family=model).fit(cov_type="HC0")
    found = by_sgd(FRAME, formula.split()[0], "hospital", family, formula=formula, passes=15)
    assert set(found.names) == set(pooled.params.index)
    assert found.names[0] == "Intercept"
    table = found.to_frame()
    gap = (table["estimate"] - pooled.params) / pooled.bse
    assert gap.abs().max() < 0.5
    ratio = table["std_error"] / pooled.bse
    assert 0.9 < ratio.min() < ratio.max() < 1.15
    assert "Rows were read 15 times" in str(found).replace("\n", " ")
    assert "with the 600 rows there are, plus the optimisation error" in str(found).replace("\n", " ")


def test_one_pass_says_what_it_is():
    found = by_sgd(FRAME, "died", "hospital", "logistic", ["year", "smokes"])
    assert found.names == ("const", "year", "smokes[T.True]")
    assert found.facts["Rows"] == "600"
    assert found.facts["Passes"] == "1"
    assert found.facts["Family"] == "logistic"
    assert found.facts["Clients"] == "4 (ring)"
    assert found.facts["Step sizes"] == "whitened, t^-0.75"
    np.testing.assert_allclose(found.scales, [1.0, FRAME.year.std(ddof=0), FRAME.smokes.std(ddof=0)])


@pytest.mark.study
def test_frames_of_every_kind_say_the_same():
    columns = ["year", "ward", "smokes"]
    one = by_sgd(FRAME, "cost", "hospital", features=columns, passes=2)
    kinds = [
        pl.from_pandas(FRAME),
        {name: FRAME[name].to_numpy() for name in FRAME},
        {name: FRAME[name].tolist() for name in FRAME},
        FRAME.astype({"ward": "category", "year": "Int64", "smokes": "boolean"}),
        pl.from_pandas(FRAME).with_columns(pl.col("ward").cast(pl.Enum(["east", "north", "west"]))),
    ]
    for frame in kinds:
        other = by_sgd(frame, "cost", "hospital", features=columns, passes=2)
        assert other.names == one.names == ("const", "year", "ward[T.north]", "ward[T.west]", "smokes[T.True]")
        np.testing.assert_array_equal(other.params, one.params)
        np.testing.assert_array_equal(other.cov, one.cov)


@pytest.mark.study
def test_declared_categories_keep_their_order():
    ward = pd.Categorical(FRAME.ward, categories=["west", "south", "north", "east"])
    found = by_sgd(changed(ward=ward), "cost", "hospital", features=["ward"])
    assert found.names == ("const", "ward[T.north]", "ward[T.east]")


@pytest.mark.study
def test_all_other_columns_are_covariates_by_default():
    small = FRAME[["cost", "hospital", "year", "smokes"]]
    named = by_sgd(small, "cost", "hospital")
    assert named.names == ("const", "year", "smokes[T.True]")
    dotted = by_sgd(small, "cost", "hospital", formula="cost ~ .")  # columns come as statsmodels has them
    assert dotted.names == ("Intercept", "smokes[T.True]", "year")
    np.testing.assert_allclose(dotted.params[[0, 2, 1]], named.params, atol=1e-3 * named.std_errors.min())


@pytest.mark.study
def test_without_an_intercept_the_first_column_of_levels_is_whole():
    found = by_sgd(FRAME, "cost", "hospital", formula="cost ~ ward + smokes + year - 1", passes=15)
    pooled = smf.ols("cost ~ ward + smokes + year - 1", FRAME).fit(cov_type="HC0")
    assert list(found.names) == list(pooled.params.index) == [
        "ward[east]", "ward[north]", "ward[west]", "smokes[T.True]", "year"
    ]  # fmt: skip
    assert np.abs((found.params - pooled.params) / pooled.bse).max() < 0.5
    for other in ("0 + ward + smokes + year", "ward + smokes + year + 0"):
        assert by_sgd(FRAME, "cost", "hospital", formula=other, passes=2).names == found.names


@pytest.mark.study
def test_names_with_signs_can_be_quoted():
    frame = FRAME.rename(columns={"year": "year + 1", "income": "in come"})
    formula = "cost ~ Q('year + 1') + in come + C(Q('stage'))"
    found = by_sgd(frame, "cost", "hospital", formula=formula, passes=2)
    assert found.names == ("Intercept", "C(Q('stage'))[T.2]", "C(Q('stage'))[T.3]", "year + 1", "in come")


@pytest.mark.study
def test_units_do_not_matter():
    """Whitened steps see the same rows in other units, so only rounding differs."""
    one = by_sgd(FRAME, "cost", "hospital", features=["year", "smokes"])
    other = by_sgd(
        changed(year=1000.0 * FRAME.year, cost=FRAME.cost / 50), "cost", "hospital", features=["year", "smokes"]
    )
    scale = np.array([50.0, 50_000.0, 50.0])
    np.testing.assert_allclose(other.params * scale, one.params, rtol=1e-3)
    np.testing.assert_allclose(other.std_errors * scale, one.std_errors, rtol=1e-3)


def test_standardising_changes_the_way_and_not_the_result():
    modest = changed(year=(FRAME.year - 2005) / 10, cost=(FRAME.cost - 3000) / 500)
    found = [
        by_sgd(modest, "cost", "hospital", features=["year", "smokes"], passes=15, standardise=s) for s in (True, False)
    ]
    np.testing.assert_array_less(np.abs(found[0].params - found[1].params) / found[0].std_errors, 0.1)
    np.testing.assert_allclose(found[0].std_errors, found[1].std_errors, rtol=0.05)


@pytest.mark.study
def test_huber_keeps_its_threshold_in_the_units_of_the_target():
    from fedgauss.families import Huber

    frame = changed(cost=FRAME.cost + 20_000 * (RNG.random(N) < 0.05))
    x = np.column_stack([np.ones(N), FRAME.year, FRAME.smokes])
    wanted = np.linalg.lstsq(x, frame.cost, rcond=None)[0]
    for _ in range(200):  # reweighted least squares
        w = 1.0 / np.sqrt(1.0 + ((x @ wanted - frame.cost) / 700.0) ** 2)
        wanted = np.linalg.solve(x.T * w.to_numpy() @ x, x.T @ (w * frame.cost))
    found = by_sgd(frame, "cost", "hospital", Huber(700.0), ["year", "smokes"], passes=15)
    assert np.abs((found.params - wanted) / found.std_errors).max() < 0.3
    assert found.facts["Family"] == "huber (threshold 700)"


@pytest.mark.study
def test_one_versus_rest_is_a_logistic_model_for_each_class():
    found = by_sgd(FRAME, "ward", "hospital", "one_versus_rest", ["year", "cost"], passes=15)
    assert found.names[:4] == ("east: const", "east: year", "east: cost", "north: const")
    west = by_sgd(changed(west=FRAME.ward == "west"), "west", "hospital", "logistic", ["year", "cost"], passes=15)
    np.testing.assert_array_less(np.abs(found.params[6:] - west.params) / west.std_errors, 0.1)
    np.testing.assert_allclose(found.std_errors[6:], west.std_errors, rtol=0.05)


@pytest.mark.parametrize("method", ["bootstrap", "random_scaling", "batch_means"])
@pytest.mark.study
def test_other_methods_come_back_unscaled_too(method):
    plain = by_sgd(FRAME, "cost", "hospital", features=["year", "smokes"])
    other = by_sgd(FRAME, "cost", "hospital", features=["year", "smokes"], method=method)
    # At the average, from where the plug-in takes a Newton step.
    assert np.all(np.abs(other.params - plain.params) < 2 * plain.std_errors)
    ratio = other.std_errors / plain.std_errors
    assert np.all((ratio > 0.02) & (ratio < 3.0))  # a random scale, made up for by its quantiles
    assert np.isfinite(other.conf_int()).all()
    if method == "bootstrap":
        assert np.all((ratio > 0.7) & (ratio < 1.4))


def test_the_population_of_clients_can_be_the_target():
    cost = FRAME.cost + 2000 * FRAME.hospital.map({"a": 0, "b": 1, "c": 2, "d": 3})
    shifted = changed(cost=cost, year=FRAME.year - 2005)
    for passes in (1, 10):
        these, others = (
            by_sgd(shifted, "cost", "hospital", features=["year", "smokes"], passes=passes, clients=c)
            for c in ("these", "population")
        )
        assert others.std_errors[0] > 3 * these.std_errors[0]
        assert others.dof == pytest.approx(1.62, abs=0.01)  # by rows: like 2.6 clients of one size
        assert "count like 2.6 equal ones" in others.notes[-1]
        assert these.heterogeneity.p_value < 1e-6


@pytest.mark.study
def test_a_client_where_a_column_is_constant_takes_part():
    """Only in hospital a is anybody in the south: no client by itself can tell all coefficients."""
    frame = changed(ward=np.where((FRAME.hospital == "a") & (FRAME.stage == 1), "south", FRAME.ward))
    found = by_sgd(frame, "cost", "hospital", features=["ward", "year"], passes=15)
    pooled = smf.ols("cost ~ ward + year", frame).fit(cov_type="HC0")
    assert np.abs((found.params - pooled.params.to_numpy()) / pooled.bse.to_numpy()).max() < 0.5
    assert found.heterogeneity is None


@pytest.mark.study
def test_clients_that_are_alike_are_not_told_apart_when_they_are_small():
    """Twelve clients of 50 rows, five parameters, random: p-values are not small. Ten splits, none below .001."""
    values = []
    for split in range(10):
        frame = changed(hospital=np.random.default_rng(split).permutation(N) % 12)
        found = by_sgd(frame, "cost", "hospital", features=["year", "smokes", "stage", "income"], passes=5, seed=split)
        values.append(found.heterogeneity.p_value)
    assert min(values) > 1e-3
    assert np.median(values) > 0.1


def test_weights_can_be_equal():
    rows, equal = (
        by_sgd(FRAME, "cost", "hospital", features=["year", "smokes"], passes=15, weights=w) for w in ("rows", "equal")
    )
    share = 1.0 / FRAME.groupby("hospital").hospital.transform("size").to_numpy()
    x = np.column_stack([np.ones(N), FRAME.year, FRAME.smokes])
    wanted = np.linalg.solve(x.T * share @ x, x.T * share @ FRAME.cost)
    assert np.abs((equal.params - wanted) / equal.std_errors).max() < 0.3
    assert np.all(equal.std_errors > rows.std_errors)


def test_the_optimisation_error_is_part_of_the_covariance():
    features = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
    rows = fg.problems.from_arrays(features, RNG.standard_normal(N), FRAME.hospital, weights="rows")
    done = run_passes(lambda i: row_batches(rows, 0, i), fg.networks.ring(4), 150, 10, 6)
    assert done.averages.shape == (6, 3)
    np.testing.assert_allclose(done.params, done.averages[3:].mean(axis=0))
    np.testing.assert_allclose(done.optimisation, np.cov(done.averages[3:].T) / 3)
    x, y = np.asarray(rows.features), np.asarray(rows.response)
    pooled = np.linalg.lstsq(x, y, rcond=None)[0]
    # The Newton step says where the pooled optimum is; the problem is quadratic, so it is right but for rounding and
    # for iterates that move during a pass.
    np.testing.assert_allclose(done.params - done.gap, pooled, atol=0.1 * np.sqrt(np.diag(done.sandwich)).min())


def test_results_depend_on_the_seed_alone():
    options = {"features": ["year", "smokes"], "passes": 3}
    first, again, other = (by_sgd(FRAME, "cost", "hospital", **options, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.params, again.params)
    assert np.any(first.params != other.params)
    shuffled = by_sgd(FRAME.sort_values("hospital", kind="stable"), "cost", "hospital", **options, seed=1)
    np.testing.assert_allclose(shuffled.params, first.params, rtol=1e-6)


MISSING = FRAME.year.astype(float).where(np.arange(N) >= 3)
SUM = changed(both=FRAME.year + 2 * FRAME.income)
COPY, NAMED = changed(copy=FRAME.year), changed(id=[f"p{i}" for i in range(N)])
YES_NO = changed(cost=np.where(FRAME.smokes, "yes", "no"))
SMALL = FRAME.hospital.where(np.arange(N) >= 4, "tiny")


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME, {"features": ["yeer"]}, r"features must name a column of the frame; got 'yeer'. Did you mean 'year'\?"),
        (FRAME, {"target": "coost"}, r"target must name a column of the frame; got 'coost'. Did you mean 'cost'\?"),
        (FRAME, {"target": FRAME.cost}, r"target must be the name of a column; got a Series. Use 'cost'\?"),
        (FRAME, {"client": "clinic"}, "client must name a column of the frame; got 'clinic'. The columns are 'year'"),
        (FRAME, {"features": "year"}, r"features must be a list of columns; got 'year'. Use \['year'\]"),
        (FRAME, {"features": ["year", "year"]}, "features must be different columns; 'year' occurs more than once"),
        (FRAME, {"features": ["cost"]}, "'cost' is the target and cannot be a covariate too"),
        (FRAME, {"features": ["hospital"]}, "'hospital' is the client and cannot be a covariate too"),
        (FRAME, {"features": [], "intercept": False}, "a model needs a covariate or an intercept; got neither"),
        (FRAME, {"client": "cost"}, "target and client must be two columns; both are 'cost'"),
        (FRAME, {"features": ["year"], "formula": "year"}, "give features or a formula, not both"),
        (FRAME, {"formula": "died ~ year"}, "must be the target 'cost'; got 'died'"),
        (FRAME, {"formula": "cost ~ yeer"}, r"got 'yeer'. Did you mean 'year'\?"),
        (FRAME, {"formula": "cost ~ np.exp(income)"}, r"got 'np.exp\(\)'. Make it a column of the frame first"),
        (FRAME, {"formula": "cost ~ income - year"}, "got '- year', which is not among the terms before it"),
        (FRAME, {"formula": "cost ~ year + "}, "where a column is missing"),
        (FRAME, {"formula": "cost ~ year + offset(income)"}, "got an offset or exposure. Use solver='scoring'"),
        (changed(year=FRAME.year.where(FRAME.index > 0, 1e9)), {}, "one of column 'year' does. Is it a typing error"),
        (changed(year=FRAME.year.astype(str)), {}, "column 'year' holds numbers as text"),
        (changed(year=MISSING), {}, r"values must not be missing; they are in 'year' \(3\). Fill them in"),
        (changed(ward=FRAME.ward.where(FRAME.index > 1)), {}, r"they are in 'ward' \(2\)"),
        (changed(hospital=FRAME.hospital.where(FRAME.index > 1)), {}, r"they are in 'hospital' \(2\)"),
        (pl.from_pandas(changed(year=MISSING)), {}, r"they are in 'year' \(3\)"),
        (changed(year=MISSING.fillna(np.inf)), {}, r"values must be finite; they are not in 'year' \(3\)"),
        (changed(year=5), {}, r"columns must vary; column 'year' is constant \(5\). Leave it out"),
        (changed(ward="north"), {}, r"column 'ward' is constant \('north'\)"),
        (changed(cost=1), {}, r"the target 'cost' is constant \(1\): there is nothing to explain"),
        (SUM, {"features": ["year", "income", "both"]}, "collinear; '.*' is made up of '.*' and '.*' and a constant"),
        (COPY, {"features": ["year", "income", "copy"]}, "'(year|copy)' is made up of '(year|copy)' and"),
        (NAMED, {"features": ["id"]}, "column 'id' has 600 levels in 600 rows. Is it an identifier"),
        (changed(day=pd.Timestamp("2020-01-01")), {"features": ["day"]}, "column 'day' must hold numbers, text"),
        (changed(hospital=SMALL), {}, r"at least 10 rows; these have fewer: 'tiny' \(4 rows\). Merge small clients"),
        (FRAME[:12].assign(hospital="a"), {"features": ["year", "income", "stage"]}, "4 parameters need at least 40"),
        (FRAME, {"target": "ward", "features": ["year"]}, "family must be given for a target of text; 'ward' is"),
        (FRAME, {"family": "logistic"}, "logistic responses must be 0 or 1; row 0 is"),
        (FRAME, {"family": "poisson"}, "poisson responses must be counts"),
        (FRAME, {"family": "one_versus_rest"}, "one_versus_rest needs classes; 'cost' has fractions"),
        (FRAME, {"family": "logits"}, "family must be one of .*; got 'logits'. Did you mean"),
        (FRAME, {"family": "logistic", "target": "vote"}, "target must name a column"),
        (YES_NO, {"family": "logistic"}, r"it has 'no' and 'yes'. Use frame\['cost'\] == 'yes' as the target"),
        (changed(cost=1 + FRAME.smokes), {"family": "logistic"}, r"it has 1 and 2. Use frame\['cost'\] == 2 as"),
        (FRAME, {"level": 95}, "level must lie strictly between 0 and 1; got 95"),
        (FRAME, {"passes": 0}, "passes must be at least 1; got 0"),
        (FRAME, {"passes": 2, "method": "bootstrap"}, "several passes need method='plugin'; got 'bootstrap'"),
        (FRAME, {"method": "hessian"}, "method must be one of"),
        (FRAME, {"weights": "size"}, "weights must be one of 'rows', 'equal'; got 'size'"),
        (FRAME, {"network": fg.networks.ring(3)}, "K = 4 clients .*; got 3 x 3"),
        (pl.from_pandas(FRAME).lazy(), {}, "got LazyFrame. Use frame.collect()"),
        ([1, 2], {}, "frame must be a pandas or polars DataFrame, or a dictionary of columns; got list"),
        (FRAME[:0], {}, "the frame must have rows"),
        ({"cost": [1.0, 2.0], "hospital": ["a"]}, {"features": []}, "columns must be of one length"),
        (pd.concat([FRAME, FRAME[["year"]]], axis=1), {}, "columns must have different names; 'year' occurs"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_fix(frame, options, message):
    asked = {"target": "cost", "client": "hospital", "features": ["year", "ward"]} | options
    if "formula" in options and "features" not in options:
        del asked["features"]
    with pytest.raises(ValueError, match=message):
        by_sgd(frame, **asked)


@pytest.mark.study
def test_separable_classes_are_refused_and_others_are_not():
    parted = changed(died=(FRAME.year > 2004).astype(int))
    with pytest.raises(ValueError, match=r"died is linearly separable: the two classes can be told apart.*by 'year'"):
        by_sgd(parted, "died", "hospital", "logistic", ["year", "income"])
    # One row on the wrong side is enough.
    parted.loc[parted.index[FRAME.year == 2015][0], "died"] = 0
    by_sgd(parted, "died", "hospital", "logistic", ["year", "income"], passes=2)


def test_a_level_in_which_all_died_is_separable():
    frame = changed(ward=np.where((FRAME.died == 1) & (FRAME.stage == 3), "south", FRAME.ward))
    with pytest.raises(ValueError, match=r"separable: .* by 'ward\[T.south\]'"):
        by_sgd(frame, "died", "hospital", "logistic", ["ward", "year"])


def test_a_class_that_can_be_told_from_the_rest_is_named():
    frame = changed(kind=np.digitize(FRAME.year, [2000, 2010]))
    with pytest.raises(ValueError, match="kind == 0 is linearly separable"):
        by_sgd(frame, "kind", "hospital", "one_versus_rest", ["year", "income"])


def test_counts_that_are_all_zero_in_a_level_are_refused():
    frame = changed(visits=np.where(FRAME.ward == "west", 0, FRAME.visits))
    with pytest.raises(ValueError, match=r"visits is linearly separable: zero counts .* by 'ward\[T.west\]'"):
        by_sgd(frame, "visits", "hospital", "poisson", ["ward", "year"])


def rare_level(marked):
    """A covariate that is 1 in a few rows only, all of them of one response; constant in most clients."""
    generator = np.random.default_rng(1)
    client, a = np.repeat(list("pqrs"), 100), generator.normal(size=400)
    binary = (generator.random(400) < 1 / (1 + np.exp(-a))).astype(int)
    counts = generator.poisson(np.exp(0.3 * a))
    y = binary if marked == 1 else counts
    rare = np.zeros(400)
    rare[np.flatnonzero((client == "q") & (y == marked))[:12]] = 1.0
    return pd.DataFrame({"y": y, "a": a, "rare": rare, "h": client})


@pytest.mark.parametrize(("family", "marked"), [("logistic", 1), ("poisson", 0)])
def test_a_rare_level_that_decides_the_response_in_one_client_is_refused(family, marked):
    with pytest.raises(ValueError, match=r"y is linearly separable: .* by 'rare'"):
        by_sgd(rare_level(marked), "y", "h", family)


def test_columns_that_are_nearly_collinear_are_refused_by_how_much():
    generator = np.random.default_rng(2)
    a = generator.normal(size=400)
    frame = pd.DataFrame({"y": a + generator.normal(size=400), "a": a, "h": np.arange(400) % 4})
    frame["c"] = a + 1e-3 * generator.normal(size=400)
    with pytest.raises(ValueError, match=r"columns must not be collinear; '[ac]' is all but 0\.1 % made up of '[ac]'"):
        by_sgd(frame, "y", "h")


@pytest.mark.study
def test_few_rows_are_enough_when_read_often_and_too_few_are_refused():
    generator = np.random.default_rng(1)
    x = generator.normal(size=(44, 3))
    y = (generator.random(44) < 1 / (1 + np.exp(-(x @ [1.0, -0.5, 0.5])))).astype(int)
    frame = pd.DataFrame(x, columns=list("abc")).assign(y=y, h=np.arange(44) % 2)
    with pytest.raises(ValueError, match="4 parameters need at least 40 rows; got 25"):
        by_sgd(frame[:25], "y", "h", "logistic")
    pooled = sm.Logit(y, sm.add_constant(x)).fit(disp=0, cov_type="HC0")
    found = by_sgd(frame, "y", "h", "logistic", passes=10)
    assert np.abs((found.params - pooled.params) / pooled.bse).max() < 0.3
    assert np.abs(found.std_errors / pooled.bse - 1.0).max() < 0.15


@pytest.mark.study
def test_one_pass_that_is_too_short_is_seen_by_its_gradient():
    """Poisson, 240 rows in one pass: the start is mostly forgotten by D_1's reckoning, but the gradient is not zero."""
    told = 0
    for seed in range(5):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=(240, 2))
        frame = pd.DataFrame(x, columns=list("ab")).assign(
            y=generator.poisson(np.exp(0.5 + x @ [0.8, -0.6])), h=np.arange(240) % 4
        )
        told += any(
            "from where the gradient vanishes" in note for note in by_sgd(frame, "y", "h", "poisson", seed=seed).notes
        )
    assert told >= 2


def test_a_huber_loss_that_no_row_reaches_is_refused():
    frame = FRAME.assign(cost=100.0 + FRAME.cost / FRAME.cost.std())
    with pytest.raises(ValueError, match=r"the Hessian must not vanish on the way; .* or a start nearer to the optimum"):
        by_sgd(frame, "cost", "hospital", "huber", ["smokes"], intercept=False, standardise=False)
