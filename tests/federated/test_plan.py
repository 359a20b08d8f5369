"""A plan says what a run is, and is read from plain fields that anybody may have sent."""

import copy

import numpy as np
import pytest
from protocol_parts import plan_of, through_the_wire

from fedgauss.federated.plan import Plan
from fedgauss.federated.refusal import Refused
from fedgauss.federated.wire import digest
from fedgauss.inference.model import Model

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
        ({"model": PLAN.to_wire()["model"] | {"ridge": 10**400}}, "must be a model as fedgauss sends it"),
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
        ({"more": 1}, "a plan must have model, sites, masked, asker, nonce, privacy; this one has other fields"),
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
