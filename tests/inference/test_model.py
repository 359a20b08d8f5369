"""`Model`: one declaration, from which calls, messages between sites, saved fits and options are made."""

import inspect
import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedgauss as fg
from fedgauss.inference.fit_result import Fit
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import OTHER, rare_levels
from fedgauss.inference.tables import FrameColumn

RNG = np.random.default_rng(28)
N = 600
FRAME = pd.DataFrame(
    {
        "h": RNG.choice(["a", "b", "c"], N),
        "age": RNG.normal(50.0, 10.0, N),
        "stage": RNG.choice(["I", "II", "III", "IV", "V", "VI"], N, p=[0.4, 0.3, 0.28, 0.01, 0.005, 0.005]),
        "sex": RNG.choice(["f", "m"], N),
        "years": RNG.uniform(1.0, 3.0, N),
        "months": np.ceil(RNG.exponential(20.0, N)),
        "died": RNG.binomial(1, 0.6, N),
    }
)
FRAME["visits"] = RNG.poisson(FRAME.years * np.exp(0.02 * (FRAME.age - 50)))
MODELS = [
    Model("visits"),
    Model("visits ~ age", family="poisson", exposure="years"),
    Model(target="visits", features=["age"], family=fg.families.Huber(), ridge=1, pool_rare=5),
    Model("Q('a b') ~ x", merged={"stage": {"IV": "III"}}, missing="drop", errors="cluster", cluster="h"),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_that_is_sent_is_the_same(model):
    assert Model.from_wire(json.loads(json.dumps(model.wire(), allow_nan=False))) == model


def test_the_target_is_that_of_the_formula():
    assert [model.target for model in MODELS] == ["visits", "visits", "visits", "a b"]
    assert MODELS[1].roles == {"exposure": "years"}


WRONG = [None, True, 0, -1, 1.5, np.inf, np.nan, 10**30, "", "x" * 20_000, "a~b", [], ["age", 3], {}, {"a": 3}, [[]]]


@pytest.mark.parametrize("name", [part.name for part in fields(Model)])
def test_a_stranger_sends_a_model_or_is_refused(name):
    """Every value is refused with the name of the field, or gives a model that is sent as it came."""
    wire = MODELS[2].wire()
    for value in WRONG:
        sent, said = wire | {name: value}, None
        try:
            assert Model.from_wire(sent).wire() == sent
        except ValueError as error:
            said = str(error)
        assert said is None or (len(said) < 250 and any(word in said for word in (name, "target", "features")))
    with pytest.raises(ValueError, match=f"{name} of a model must be there"):
        Model.from_wire({key: value for key, value in wire.items() if key != name})


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (3, "must be an object with the fields target, features"),
        (Model("y").wire() | {"\x1b[31mpasses": 3}, "is no option of a model"),
        (Model("y").wire() | {"family": {"name": "nobody's", "settings": {}}}, "family must be a name"),
        (Model("y").wire() | {"family": {"name": "huber", "settings": {"k": 3}}}, "family must be a name"),
        (Model("y").wire() | {"target": "y ~ x"}, "target of a model must be as it is sent"),
        (Model("y").wire() | {"features": {"age": 1}}, "features of a model must be as it is sent"),
    ],
)
def test_other_fields_and_other_spellings_are_refused(sent, message):
    with pytest.raises(ValueError, match=message) as raised:
        Model.from_wire(sent)
    assert str(raised.value).isprintable()


def test_fit_has_few_parameters():
    own = inspect.signature(fg.fit).parameters
    assert len(own) <= 12
    assert not any(part.kind is part.VAR_KEYWORD for part in own.values())


def test_an_option_of_a_model_is_answered_with_the_line_to_type():
    with pytest.raises(TypeError) as raised:
        fg.fit(FRAME, "visits", "h", "poisson", ["age"], exposure="years", ridge=0.5, level=0.9)
    call = str(raised.value).partition(": use ")[2].removesuffix(".")
    model = "fg.Model('visits', family='poisson', features=['age'], exposure='years', ridge=0.5)"
    assert call == f"fg.fit(frame, {model}, client='h', level=0.9)"
    typed = fg.fit(FRAME, Model("visits", family="poisson", features=["age"], exposure="years", ridge=0.5), client="h")
    assert typed.facts["Ridge"] == "0.5"
    with pytest.raises(TypeError, match=r"use fg.fit\(frame, target='y ~ x', client='h', solver=fg.SGD\(passes=3\)\)"):
        fg.fit(FRAME, target="y ~ x", client="h", passes=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        fg.fit(FRAME, "visits", "h", colour="red")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": Model("visits"), "family": "poisson"}, "family must be given to the Model"),
        ({"target": "visits ~ age", "formula": "visits ~ age"}, "target must be a column where a formula is given too"),
        ({"formula": "age"}, "target must be given"),
        (
            {"target": "visits", "solver": "sgd"},
            "solver must be 'scoring' or settings of the paper's pass",
        ),
        ({"target": Model("visits", strata="sex")}, "strata must be left out for family 'linear'"),
        ({"target": Model("visits ~ age", merged={"stage": {"IV": "III"}})}, "'stage' is none of them"),
        ({"target": Model("visits", features=["age"], merged={"age": {"1": "2"}})}, "'age' holds numbers"),
    ],
)
def test_what_makes_no_sense_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        fg.fit(FRAME, client="h", **asked)


def test_a_formula_is_the_second_argument():
    named = fg.fit(FRAME, "visits", "h", "poisson", formula="visits ~ age")
    assert fg.fit(FRAME, "visits ~ age", client="h", family="poisson").summary() == named.summary()


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_strata_are_those_of_statsmodels(ties):
    family = fg.families.Cox(ties)
    fit = fg.fit(FRAME, Model("months ~ age + years", family=family, event="died", strata="sex", errors="model"), "h")
    own = FRAME.h + FRAME.sex
    other = sm.PHReg(FRAME.months, FRAME[["age", "years"]], FRAME.died, strata=own, ties=ties).fit(disp=0)
    np.testing.assert_allclose(fit.params, other.params, rtol=1e-8)
    np.testing.assert_allclose(fit.std_errors, other.bse, rtol=1e-7)
    assert fit.statistics.log_likelihood == pytest.approx(other.llf, rel=1e-9)


@pytest.mark.parametrize("errors", ["HC0", "model"])
def test_strata_of_a_site_are_sites_of_their_own(errors):
    strata = fg.fit(FRAME, Model("months ~ age", event="died", strata="sex", errors=errors), client="h")
    sites = fg.fit(FRAME.assign(own=FRAME.h + FRAME.sex), Model("months ~ age", event="died", errors=errors), "own")
    np.testing.assert_allclose(strata.params, sites.params, rtol=1e-10)
    np.testing.assert_allclose(strata.cov, sites.cov, rtol=1e-9)


def test_rare_levels_and_merged_ones_are_as_if_the_frame_had_been_changed(tmp_path):
    counts = FRAME.stage.value_counts()
    rare = rare_levels(counts.to_dict(), 10)
    assert sorted(rare) == sorted(counts[counts < 10].index)
    assert 1 < len(rare) < 5
    model = Model("visits ~ age + stage", family="poisson", pool_rare=10, merged={"stage": {"II": "I"}})
    fit = fg.fit(FRAME, model, client="h")
    changed = FRAME.assign(stage=FRAME.stage.replace({"II": "I"} | dict.fromkeys(rare, OTHER)))
    same = fg.fit(changed, "visits ~ age + stage", client="h", family="poisson")
    assert fit.names == same.names
    np.testing.assert_allclose(fit.params, same.params, rtol=1e-12)
    fit.save(tmp_path / "fit.json")
    for one in (fit, Fit.load(tmp_path / "fit.json")):  # new rows have the levels of the frame
        np.testing.assert_allclose(one.predict(FRAME), same.predict(changed), rtol=1e-12)


def test_the_target_is_never_pooled():
    frame = FRAME.assign(which=np.resize(["x", "y", *["z"] * 28], N))
    model = Model("which", family="multinomial", features=["age"], pool_rare=100)
    assert [name.partition(":")[0] for name in fg.fit(frame, model, client="h").names] == ["y", "y", "z", "z"]


def test_levels_that_become_others_keep_their_order():
    column = FrameColumn("s", np.array([0.0, 1.0, 2.0, 3.0]), ("b", "a", "d", "c"))
    assert column.relabelled({"a": OTHER, "c": "d"}).levels == ("b", "d", OTHER)
    assert column.relabelled({"a": OTHER, "c": "d"}).labels == ["b", OTHER, "d", "d"]
    assert column.relabelled({}) is column
