"""What stands beside covariates and response: offsets, weights, clusters, trials, events, sites, dropped rows."""

import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.formula.api as smf

from fedgauss.inference.model import Model
from fedgauss.inference.model_data import (
    check_plain,
    model_data,
    read_model_data,
    response_of,
    right_hand_side,
)
from fedgauss.inference.tables import Frame, FrameColumn

RNG = np.random.default_rng(2)
N = 120
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 10, N),
        "ward": RNG.choice(["north", "south"], N),
        "days": RNG.integers(1, 40, N),
        "shift": RNG.normal(size=N),
        "weight": RNG.integers(0, 3, N),
        "doctor": RNG.integers(100, 107, N),
        "tried": RNG.integers(3, 9, N),
        "dead": RNG.random(N) < 0.4,
        "h": RNG.choice(["b", "a", "c"], N),
    }
)
FRAME["cost"] = 3 + 0.1 * FRAME.age + RNG.normal(size=N)
FRAME["healed"] = RNG.binomial(FRAME.tried, 0.4)
ORDER = np.argsort(FRAME.h, kind="stable")
SORTED = FRAME.iloc[ORDER].reset_index(drop=True)


def read(frame=FRAME, target="cost", family="linear", features=("age", "ward"), formula=None, **more):
    features = None if formula else list(features)
    return read_model_data(frame, "h", Model(target, family=family, features=features, formula=formula, **more))


def test_a_plain_model_has_nothing_beside_it():
    data = read()
    assert data.offset is data.row_weights is data.cluster is data.beside is None
    np.testing.assert_array_equal(data.dropped, [0, 0, 0])
    assert data.names == ("age", "ward[T.south]")
    check_plain(data)


def test_rows_of_every_column_are_those_of_their_client():
    data = read(offset="shift", exposure="days", row_weights="weight", cluster="doctor", formula="age + offset(tried)")
    rows = SORTED[SORTED.weight > 0]
    np.testing.assert_allclose(data.offset, rows["shift"] + np.log(rows.days) + rows.tried)
    np.testing.assert_array_equal(data.row_weights, rows.weight)
    assert data.cluster_labels == tuple(str(d) for d in range(100, 107))
    np.testing.assert_array_equal(data.cluster, rows.doctor - 100)
    np.testing.assert_array_equal(data.covariates[:, 0], rows.age)
    np.testing.assert_array_equal(data.dropped, (SORTED.weight == 0).groupby(SORTED.h).sum())
    with pytest.raises(ValueError, match=r"got an offset or exposure, row weights and clusters. Use solver='scoring'"):
        check_plain(data)


def test_columns_with_another_role_are_no_covariates():
    small = FRAME[["cost", "h", "age", "shift", "weight"]]
    for formula in (None, "cost ~ ."):
        spec = Model("cost", family="linear", formula=formula, offset="shift", row_weights="weight")
        assert read_model_data(small, "h", spec).names == ("age",)


def test_a_column_of_weights_may_be_levels_too():
    data = read(formula="C(weight)", exposure="days", row_weights="weight")
    assert data.names == ("C(weight)[T.2]",)  # of those that are there
    np.testing.assert_array_equal(data.row_weights, SORTED.weight[SORTED.weight > 0])


def test_clients_may_be_the_clusters():
    data = read(cluster="h")
    np.testing.assert_array_equal(data.cluster, data.owner)
    assert data.cluster_labels == data.clients


def test_trials_and_events_stand_beside_the_response():
    counts = read(target="healed", family="binomial", trials="tried")
    np.testing.assert_array_equal(counts.response, SORTED.healed)
    np.testing.assert_array_equal(counts.beside, SORTED.tried)
    times = read(target="days", family="poisson", event="dead")
    np.testing.assert_array_equal(times.beside, SORTED.dead.astype(float))


@pytest.mark.parametrize("formula", [None, "cost ~ age + ward", "cost ~ age + ward - 1", "cost ~ age - 1"])
def test_effects_of_sites_are_those_of_a_column_of_sites(formula):
    data = read(formula=formula, site_effects=True)
    pooled = (formula or "cost ~ age + ward") + " + site"
    wanted = smf.ols(pooled, SORTED.rename(columns={"h": "site"})).exog_names
    assert set(data.names) == set(wanted) - {"Intercept"}
    for name in ("b", "c"):
        label = f"site[T.{name}]" if f"site[T.{name}]" in data.names else f"site[{name}]"
        np.testing.assert_array_equal(data.covariates[:, data.names.index(label)], SORTED.h == name)


def test_sites_make_the_columns_of_the_pooled_frame():
    """Each with its own rows, the levels of all, the list of sites and what was agreed; to the last bit."""
    spec = Model("cost ~ scale(age)*ward + ns(age, df=3)", family="linear", site_effects=True)
    pooled = read_model_data(FRAME, "h", spec)
    for k, site in enumerate(pooled.clients):
        table = Frame(SORTED[SORTED.h == site])
        formula = pooled.design.formula._replace(terms=pooled.design.formula.terms[:-1])
        columns = table.read(spec.columns(formula))
        response = response_of(columns["cost"], "linear")
        own = model_data(
            spec, formula, columns, response, (site,), (int(pooled.counts[k]),), N, sites=pooled.clients, here=k,
            agreed=pooled.agreed,
        )  # fmt: skip
        assert own.names == pooled.names
        first = pooled.firsts[k]
        np.testing.assert_array_equal(own.covariates, pooled.covariates[first : first + pooled.counts[k]])


def test_a_coordinator_names_parameters_without_rows():
    spec = Model("cost ~ scale(age) + ward + offset(days)", family="linear", site_effects=True)
    levels = {"cost": None, "age": None, "ward": ("north", "south"), "days": None}
    columns = {name: FrameColumn(name, np.empty(0), some) for name, some in levels.items()}
    formula = right_hand_side(Frame(columns), spec)
    data = model_data(spec, formula, columns, response_of(columns["cost"], "linear"), ("a", "b"), (60, 60), N)
    assert data.all_names == ("Intercept", "ward[T.south]", "site[T.b]", "scale(age)")
    with pytest.raises(ValueError, match="got an offset or exposure"):
        check_plain(data)


@pytest.mark.parametrize("kind", [lambda frame: frame, pl.from_pandas, lambda frame: frame.to_dict("list")])
def test_rows_with_missing_values_are_dropped_and_counted(kind):
    frame = FRAME.assign(age=FRAME.age.where(RNG.random(N) < 0.9), ward=FRAME.ward.where(RNG.random(N) < 0.9))
    frame["shift"] = frame["shift"].where(frame.index > 1)  # not used: not asked about
    kept = frame.dropna(subset=["age", "ward"])
    data = read(kind(frame), missing="drop")
    np.testing.assert_array_equal(data.counts, kept.h.value_counts().sort_index())
    np.testing.assert_array_equal(data.dropped, frame.h.value_counts().sort_index() - data.counts)
    np.testing.assert_array_equal(data.covariates[:, 0], kept.sort_values("h", kind="stable").age)
    with pytest.raises(ValueError, match=r"values must not be missing; they are in 'age' .* and 'ward'"):
        read(kind(frame))


GONE = FRAME.assign(age=FRAME.age.where(FRAME.h != "b"))


@pytest.mark.parametrize(
    ("frame", "options", "message"),
    [
        (FRAME, {"offset": "shfit"}, r"offset must name a column of the frame; got 'shfit'. Did you mean 'shift'\?"),
        (FRAME, {"offset": "ward"}, "offset must be a column of numbers; 'ward' holds text"),
        (FRAME, {"exposure": "shift"}, "exposure must be above 0; column 'shift' has other values"),
        (FRAME, {"row_weights": "shift"}, "row weights must be at least 0, and some above; those in 'shift' are not"),
        (FRAME.assign(weight=0), {"row_weights": "weight"}, "row weights must be at least 0, and some above"),
        (FRAME.assign(weight=np.inf), {"row_weights": "weight"}, r"values must be finite; they are not in 'weight'"),
        (FRAME, {"offset": "cost"}, "'cost' is the target and cannot be the column of offset too"),
        (FRAME, {"offset": "h"}, "'h' is the client and cannot be the column of offset too"),
        (FRAME, {"missing": "ignore"}, "missing must be one of 'refuse', 'drop'; got 'ignore'"),
        (FRAME.assign(age=np.nan), {"missing": "drop"}, "every row has a missing value in 'cost', 'age' and 'ward'"),
        (GONE, {"missing": "drop"}, "clients must have rows that are complete and of a weight above 0; 'b' has none"),
        (FRAME.assign(h=FRAME.h.where(FRAME.index > 3)), {"missing": "drop"}, "they are in 'h' "),
        (FRAME[FRAME.h == "a"], {"site_effects": True}, "effects of sites need at least two sites"),
        (FRAME.assign(site=FRAME.h), {"features": ["site"], "site_effects": True}, "columns must have different names"),
        (FRAME, {"trials": "tried", "event": "dead"}, "give trials, .* or event, for times; not both"),
        (FRAME, {"target": "tried", "trials": "healed"}, "successes must be whole numbers from 0 to the trials"),
        (FRAME, {"target": "days", "family": "poisson", "event": "tried"}, "event must be a column of 1"),
        (FRAME, {"target": "shift", "family": "poisson", "event": "dead"}, "times must not be negative"),
        (FRAME, {"target": "healed", "trials": "ward"}, "trials must be a column of numbers; 'ward'"),
        (FRAME, {"formula": "ns(days, knots=[50], bounds=[45, 60])"}, "rows must lie between two knots of a spline"),
        (FRAME, {"formula": "age + offset(ward)"}, "ward needs numbers"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_fix(frame, options, message):
    with pytest.raises(ValueError, match=message):
        read(frame, **options)


def test_models_are_read_without_jax():
    program = "import sys, fedgauss.inference.model_data; print('jax' in sys.modules, 'patsy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"], done.stderr
