"""Levels of several sites: what one names, the order of all together, and what becomes of a column."""

import numpy as np
import pytest

from fedgauss.federated.levels import indicators, named_alone, read_levels, recode
from fedgauss.federated.program import agree, check_levels, is_poolable
from fedgauss.federated.refusal import Refused
from fedgauss.inference.model import Model
from fedgauss.inference.tables import FrameColumn, coded

WARD = coded("ward", ["east", "west", "east", "north", "east", "west", "west"])
AGE = FrameColumn("age", np.array([1.0, 2.0]))


def named(*levels, kind="text"):
    return {"kind": kind, "named": list(levels)}


def joined(*lists, kind="text"):
    return agree({f"site {i}": [["c", named(*levels, kind=kind)]] for i, levels in enumerate(lists)})["c"]


def test_a_site_names_levels_of_enough_rows():
    assert read_levels(WARD, 3) == named("east", "west")
    assert read_levels(WARD, 1) == named("east", "north", "west")
    assert read_levels(WARD, 4) == named()
    assert read_levels(AGE, 3) is None
    assert read_levels(coded("x", [True, False, True]), 2) == named(True, kind="true and false")
    numbers = FrameColumn("x", np.array([0.0, 0.0, 1.0]), (np.int64(2), np.int64(5)))
    assert read_levels(numbers, 2) == named(2, kind="categories of numbers")
    assert type(read_levels(numbers, 2)["named"][0]) is int


@pytest.mark.parametrize("levels", [("a", 1), (b"a",), (None,), (1, True)])
def test_levels_of_several_kinds_cannot_be_compared(levels):
    with pytest.raises(
        Refused, match=r"categories must all be text, numbers or true and false .* those of 'x' are not"
    ):
        read_levels(FrameColumn("x", np.zeros(3), levels), 1)


def test_what_a_site_can_have_said_of_its_columns():
    check_levels([["age", None], ["ward", named("a", "b")], ["n", named(1, 2.5, kind="categories of numbers")]])
    check_levels([["ward", named(*map(str, range(10_000)))], ["empty", named()]])


@pytest.mark.parametrize("told", [None, {}, [["age"]], [["age", None, None]], [("age", None)], ["ab"]])
def test_pairs_that_are_none_are_refused(told):
    with pytest.raises(ValueError, match="columns must be told as pairs of a name and its levels"):
        check_levels(told)


@pytest.mark.parametrize(
    "levels",
    [
        named("a", "a"), named("a", 1), named("a", kind="words"), named(1, kind="true and false"),
        named(True, kind="categories of numbers"), {"kind": "text"}, named() | {"more": 1}, [],
        {"kind": "text", "named": ("a",)}, {"kind": "text", "named": "ab"}, named(*map(str, range(10_001))),
    ],
)  # fmt: skip
def test_levels_that_no_site_can_have_are_refused(levels):
    with pytest.raises(ValueError, match=r"each there once; those of 'ward' are not\."):
        check_levels([["age", None], ["ward", levels]])


def test_names_of_columns_are_text():
    with pytest.raises(ValueError, match=r"those of '1' are not\."):
        check_levels([[1, None]])


def test_the_order_is_that_of_every_site_or_sorted():
    assert joined(["low", "mid"], ["mid", "high"]) == ["low", "mid", "high"]
    assert joined(["low", "high"], ["mid", "high"]) == ["high", "low", "mid"]  # which of two is first nobody says
    assert joined(["low", "high"], ["high", "low"]) == ["high", "low"]
    assert joined(["b", "a"]) == ["b", "a"]
    assert joined([], []) == []


def test_numbers_are_whole_where_all_are():
    for levels, kind in (([1, 2.0], int), ([1.5, 2], float)):
        found = joined(levels, kind="categories of numbers")
        assert found == levels
        assert {type(level) for level in found} == {kind}


def test_sites_have_the_same_columns_of_the_same_kind():
    assert agree({"a": [["age", None], ["ward", named("x")]], "b": [["ward", named("y")], ["age", None]]}) == {
        "age": None, "ward": ["x", "y"],
    }  # fmt: skip
    with pytest.raises(ValueError, match="same columns; 'b' and 'a' differ in 'age' and 'dose'"):
        agree({"a": [["age", None], ["cost", None]], "b": [["dose", None], ["cost", None]]})
    with pytest.raises(ValueError, match=r"'c' must be of one kind; it holds numbers at 'a' and 'd', text at 'b'\."):
        agree({"a": [["c", None]], "b": [["c", named("x")]], "d": [["c", None]]})


def test_rare_levels_of_text_are_pooled_and_no_others():
    model = Model("died ~ ward", pool_rare=5)
    assert is_poolable(model, "ward", ["a"]) is True
    others = [(Model("died ~ ward"), ["a"]), (model, None), (model, []), (model, [1])]
    assert [is_poolable(one, "ward", levels) for one, levels in others] == [False] * 4
    assert is_poolable(model, "died", ["a"]) is False


def test_a_column_takes_the_levels_of_all_sites():
    found = recode(WARD, ["west", "east", "other"], {"north": "east"})
    assert found.levels == ("west", "east", "other")
    assert found.labels == ["east", "west", "east", "east", "east", "west", "west"]
    assert recode(WARD, ["east", "other"], {}).labels == ["east", "other", "east", "other", "east", "other", "other"]
    assert recode(AGE, None, {}) is AGE
    with pytest.raises(Refused, match=r"levels of 'ward' must have enough rows .*\(pool_rare=5\)"):
        recode(WARD, ["east", "west"], {})
    for column, levels in ((AGE, ["a"]), (WARD, None)):
        with pytest.raises(Refused, match=f"the column '{column.name}' must be of one kind everywhere"):
            recode(column, levels, {})


def test_rows_with_a_level_that_nobody_names():
    found, there = named_alone(WARD, ["west", "east"])
    assert found.levels == ("west", "east")
    assert found.labels == ["east", "west", "east", "west", "east", "west", "west"]
    assert there.tolist() == [True, True, True, False, True, True, True]
    for column, levels in ((AGE, None), (AGE, ["a"]), (WARD, None)):
        same, there = named_alone(column, levels)
        assert same is column
        assert there.tolist() == [True] * len(column.values)
    with pytest.raises(Refused, match="no level of 'ward' has enough rows at any site to be named"):
        named_alone(WARD, [])


def test_which_rows_have_each_level():
    found = indicators(WARD, ["east", "south"])
    assert {name: own.tolist() for name, own in found.items()} == {
        "ward == 'east'": [1, 0, 1, 0, 1, 0, 0], "ward == 'south'": [0] * 7, "another ward": [0, 1, 0, 1, 0, 1, 1],
    }  # fmt: skip
