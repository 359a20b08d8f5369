"""A plan says what a run is, and is read from plain fields that anybody may have sent."""

import copy
import math
import random

import numpy as np
import pytest
from protocol_parts import plan_of, through_the_wire

from fedgauss import families
from fedgauss.federated.plan import Heard, Plan, total_of
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.refusal import Refused
from fedgauss.federated.wire import decode, digest, encode
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD

DIED, RANGES = Model("died ~ age + dose + ward", family="binomial"), {"age": (20, 90), "dose": (-3, 3)}
PLAN = plan_of(model=Model("died ~ age", family="binomial", merged={"stage": {"IV": "III"}}))


def test_a_plan_comes_back_as_it_was():
    found = Plan.from_wire(through_the_wire(PLAN.to_wire()))
    assert found == PLAN
    assert (found.run, found.about, found.statement) == (PLAN.run, PLAN.about, PLAN.statement)
    assert PLAN.run == digest({"what": "fedgauss plan 1", **PLAN.to_wire()})
    assert PLAN.statement == f"fedgauss plan {PLAN.run}".encode()


@pytest.mark.parametrize(
    ("change", "is_about_the_same"),
    [
        ({"nonce": "2"}, True), ({"asker": "another"}, True), ({"masked": False}, False),
        ({"sites": ["a", "b"]}, False), ({"model": Model("died ~ age").wire()}, False),
    ],
)  # fmt: skip
def test_every_field_makes_another_run(change, is_about_the_same):
    other = Plan.from_wire(PLAN.to_wire() | change)
    assert other.run != PLAN.run
    assert other.statement != PLAN.statement
    assert (other.about == PLAN.about) == is_about_the_same


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"masked": 1}, "'masked' of a plan must be bool; got int"),
        ({"model": "y ~ x"}, "'model' of a plan must be dict"),
        ({"sites": ("a", "b")}, "'sites' of a plan must be list"),
        ({"asker": None}, "'asker' of a plan must be str"),
        ({"nonce": 1}, "'nonce' of a plan must be str"),
        ({"model": {}}, "target of a model must be there"),
        ({"model": PLAN.to_wire()["model"] | {"ridge": -1}}, "ridge must be"),
        ({"model": PLAN.to_wire()["model"] | {"ridge": 10**400}}, "must be as fedgauss sends them"),
        ({"model": PLAN.to_wire()["model"] | {"merged": None}}, "merged must be levels by column"),
        ({"sites": []}, "1 to 1,000 sites"),
        ({"sites": [f"{i:04}" for i in range(1001)]}, "1 to 1,000 sites"),
        ({"sites": ["a", 1]}, "by short names"),
        ({"sites": [""]}, "by short names"),
        ({"sites": ["a\x1b"]}, "by short names"),
        ({"sites": ["a" * 201]}, "by short names"),
        ({"sites": [["a"]]}, "by short names"),
        ({"sites": ["b", "a"]}, "sorted by name, each there once"),
        ({"sites": ["a", "a"]}, "sorted by name, each there once"),
        ({"asker": ""}, "'asker' of a plan must be short text"),
        ({"asker": "a\nb"}, "'asker' of a plan must be short text"),
        ({"nonce": ""}, "'nonce' of a plan must be short text"),
        ({"nonce": "1" * 201}, "'nonce' of a plan must be short"),
        ({"more": 1}, "a plan must have model, sites, masked, asker, nonce, privacy, sgd; this one has other fields"),
    ],
)
def test_what_is_no_plan_is_refused(change, why):
    with pytest.raises(Refused, match=why) as refused:
        Plan.from_wire(PLAN.to_wire() | change)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("fields", [None, [], "plan", {}, {"model": {}}])
def test_other_things_are_no_plans(fields):
    with pytest.raises(Refused, match="this one has other fields"):
        Plan.from_wire(fields)


def test_plans_at_the_limits_are_read():
    names = [f"{i:04}" for i in range(1000)]
    assert Plan.from_wire(PLAN.to_wire() | {"sites": names, "asker": "a" * 200}).sites == tuple(names)
    assert Plan.from_wire(PLAN.to_wire() | {"sites": ["a" * 200]}).sites == ("a" * 200,)


def test_strange_parts_are_refused_and_never_crash():
    strange = [
        None,
        True,
        0,
        -1,
        1e308,
        10**400,
        "",
        "\x1b",
        "\ud800",
        [],
        {},
        [[]],
        [1],
        np.zeros(2),
        {"x": {}},
        {"": 1},
    ]
    fields = PLAN.to_wire()
    places = [(name,) for name in fields] + [("model", name) for name in fields["model"]]
    taken = 0
    for *way, last in places:
        for value in strange:
            changed = copy.deepcopy(fields)
            place = changed[way[0]] if way else changed
            place[last] = value
            try:
                Plan.from_wire(changed)
            except Refused:
                continue
            taken += 1
    assert taken < 0.3 * len(places) * len(strange)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"family": "gamma"}, "must be of family gaussian, binomial or poisson, by name"),
        ({"family": None}, "must be of family gaussian, binomial or poisson, by name"),
        ({"family": families.family("logistic")}, "must be of family gaussian, binomial or poisson, by name"),
        ({"row_weights": "cost"}, "cannot have row_weights yet"),
        ({"offset": "cost"}, "cannot have offset yet"),
        ({"exposure": "cost"}, "cannot have exposure yet"),
        ({"trials": "cost"}, "cannot have trials yet"),
        ({"cluster": "ward"}, "cannot have cluster yet"),
        ({"ridge": 1.0}, "cannot have ridge yet"),
        ({"site_effects": True}, "cannot have site_effects yet"),
        ({"missing": "drop"}, "cannot have missing yet"),
        ({"pool_rare": 5}, "cannot have pool_rare yet"),
        ({"link": "probit"}, "cannot have link yet"),
        ({"intercept": False}, "cannot have intercept yet"),
        ({"errors": "HC1"}, "errors of a private fit must be those of the model; got 'HC1'"),
    ],
)
def test_what_cannot_be_private_is_refused_in_the_plan(changes, words):
    model = Model("died", **{"features": ["age"], "family": "binomial"} | changes)
    with pytest.raises(Refused, match=words.replace("(", r"\(")):
        Plan(model, ("a", "b"), True, "asker", "1", Privacy(1.0))


def test_a_pass_of_sgd_is_neither_private_nor_of_every_model():
    model = Model("died ~ age", family="binomial")
    assert Plan(model, ("a", "b"), False, "asker", "1", sgd=SGD()).sgd == SGD()
    with pytest.raises(Refused, match="a private fit is by scoring"):
        Plan(model, ("a", "b"), True, "asker", "1", Privacy(1.0), SGD())
    ridged = Model("died ~ age", family="binomial", ridge=0.5)
    with pytest.raises(Refused, match=r"ridge=0\.5 belongs to solver"):
        Plan(ridged, ("a", "b"), False, "asker", "1", sgd=SGD())


def test_privacy_needs_masks():
    with pytest.raises(Refused, match=r"privacy needs masks, .* Use --masked"):
        Plan(DIED, ("a", "b"), False, "asker", "1", Privacy(1.0))


def test_privacy_is_part_of_what_a_run_is_about():
    plans = [Plan(DIED, ("a", "b"), True, "asker", "1", one) for one in (None, Privacy(1.0), Privacy(2.0))]
    assert len({plan.about for plan in plans}) == len({plan.run for plan in plans}) == 3
    plan = Plan(DIED, ("a", "b"), True, "asker", "1", Privacy(1.0, ranges=RANGES))
    assert Plan.from_wire(decode(encode(plan.to_wire()))) == plan


@pytest.mark.parametrize("seed", range(20))
def test_privacy_that_is_none_is_refused(seed):
    """Fields of a stranger, in place of those that fedgauss sends."""
    rng = random.Random(seed)
    wire = Plan(DIED, ("a", "b"), True, "asker", "1", Privacy(1.0, ranges=RANGES)).to_wire()
    wrong = rng.choice(
        [
            {"epsilon": rng.choice([True, "1", None, -1.0, math.inf, 10**400, [1]])},
            {"delta": rng.choice([0, 1, "1e-6", None, math.nan])},
            {
                "ranges": rng.choice(
                    [[], None, {"age": [1]}, {"age": [2, 1]}, {"age": "ab"}, {"age": [0, math.inf]}, {1: 2}]
                )
            },
            {"more": 1},
        ]
    )
    with pytest.raises(Refused):
        Plan.from_wire(wire | {"privacy": wire["privacy"] | wrong})


def test_totals_must_be_there():
    assert total_of(Heard({"sums": np.ones(1)}, {}, []))["sums"] == 1.0
    with pytest.raises(ValueError, match="a site could not add up its columns: numbers must be finite and below"):
        total_of(Heard(None, {}, []))
