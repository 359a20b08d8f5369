"""Numbers that fits tell of rows that share a level, beside the values of these rows."""

import math
from itertools import combinations

import numpy as np
import pytest

from fedgauss.families import family
from fedgauss.families.rows import Ask
from fedgauss.federated.shares import Share, rows_needed, shares_of

ROWS = np.arange(100, 140, dtype=np.uint64)
RNG = np.random.default_rng(0)
AGE, DOSE = RNG.normal(size=(2, 40))
RARE = (np.arange(40) < 6).astype(float)
ZERO = np.zeros(2)


def shares(outputs=1, response=None, rows=ROWS, **columns):
    """Shares of columns that are levels or functions of themselves; they are the table, too."""
    functions = {name: ("" if np.isin(own, (0, 1)).all() else name, own) for name, own in columns.items()}
    told = {} if response is None else {"died": ("", response)}
    return shares_of(functions, told, np.column_stack([*columns.values()]), rows, outputs)


def of(name, **columns):
    return next(share for share in shares(**columns).values() if share.name == name)


def test_rows_that_share_a_level_are_those_without_the_commonest_value():
    rare = of("rare", age=AGE, rare=RARE)
    assert rare == Share("rare", ("",), 6, 1, 1, 0)  # age varies there, the level does not
    assert of("rare", age=AGE, dose=DOSE, rare=1 - RARE) == Share("rare", ("",), 6, 2, 2, 0)
    assert of("rare", rare=3.0 * RARE - 1.0).rows == 6
    other = (np.arange(40) % 2).astype(float)
    assert of("rare", age=AGE, rare=RARE, other=other) == Share("rare", ("",), 6, 2, 2, 1)


def test_columns_of_the_same_rows_are_one_share():
    columns = {"age": AGE, "rare": RARE, "age:rare": AGE * RARE}
    found = shares_of(
        {"age": ("age", AGE), "rare": ("", RARE), "age:rare": ("age", AGE * RARE)}, {},
        np.column_stack([AGE, RARE]), ROWS, 1,
    )  # fmt: skip
    assert [share.functions for share in found.values()] == [("", "age"), ("", "age")]
    assert [(share.rows, share.values, share.columns) for share in found.values()] == [(40, 2, len(columns)), (6, 1, 2)]


def test_rows_that_share_an_outcome_are_a_share_of_which_paths_tell_nothing():
    found = shares(age=AGE, response=RARE)
    assert [(share.name, share.outputs) for share in found.values()] == [("1", 1), ("died", 0)]
    (died,) = (share for share in found.values() if share.name == "died")
    assert died.rows == 6
    for ask in (Ask("score", ZERO), Ask("final", ZERO, parts=("observed", "squares.rows"))):
        assert died.numbers(ask, 0.5, family("logistic")) == 0
    both = shares(age=AGE, rare=RARE, response=RARE)
    assert [(share.name, share.functions, share.outputs) for share in both.values()][1:] == [("rare", ("", ""), 1)]


def test_a_level_that_no_row_has_is_none():
    assert [share.name for share in shares(age=AGE, rare=0.0 * RARE).values()] == ["1"]
    nothing = shares_of({}, {"died": ("", RARE)}, np.zeros((40, 0)), ROWS, 1)
    assert list(nothing.values()) == [Share("1", ("",), 40, 0, 0, 0), Share("died", ("",), 6, 0, 0, 0, 0)]


def test_a_share_is_known_by_its_rows_in_any_order():
    order = RNG.permutation(40)
    one = shares(age=AGE, rare=RARE)
    assert one == shares(age=AGE[order], rare=RARE[order], rows=ROWS[order])
    assert set(one) != set(shares(age=AGE, rare=RARE[::-1]))


def test_a_column_without_a_commonest_value_is_one_of_all_rows():
    half = (np.arange(40) < 20).astype(float)
    assert of("1", half=half, age=AGE).rows == 40
    assert of("1", half=half, age=AGE).functions == ("", "", "age")


@pytest.mark.parametrize(("rows", "most"), [(6, 20), (9, 20), (10, 20), (11, 21), (100, 222)])
def test_paths_tell_what_sums_leave_of_three_quarters_of_the_values_or_what_one_fit_does(rows, most):
    assert Share("rare", ("",), rows, 3, 3, 0).most == most
    assert Share("rare", ("", "age"), 1, 3, 3, 0, outputs=3).most == 2 * (3 * 12 + 2 * 4)


def test_functions_of_few_columns_do_not_make_one_fit_tell_more():
    """36 functions of three columns: what a fit of the columns tells is allowed, and no more."""
    assert Share("rare", ("",), 16, 3, 36, 0).most == 12 + 2 * 4
    assert Share("rare", ("",), 16, 3, 38, 2).most == 12 + 2 * 6  # levels are counted as they are


F = {"age": frozenset({"age"}), "dose": frozenset({"dose"}), "bmi": frozenset({"bmi"})}
CURVES = {f"f{j}": frozenset(of) for j, of in enumerate([["age"]] * 3 + [["dose"]] * 3 + [["bmi"]] * 3)}
PRODUCTS = {f"g{j}": frozenset(of) for j, of in enumerate([["age", "dose"], ["age", "bmi"], ["dose", "bmi"]] * 9)}


@pytest.mark.parametrize(
    ("functions", "of_level", "rows"),
    [
        (F, ("",), 2),  # one sum of each column
        ({**F, "age**2": F["age"]}, ("",), 3),  # two sums of one column
        (CURVES, ("",), 4),
        (CURVES | PRODUCTS, ("",), 16),  # 36 sums of three
        (CURVES | PRODUCTS | {f"x{j}": frozenset([f"x{j}"]) for j in range(20)}, ("",), 16),  # whatever else there is
        (F, ("", "age"), 3),  # sums of age, and of its square
        (F, ("", "age", "dose", "bmi"), 4),  # 3 sums, and 6 of products, of three columns
        ({}, ("",), 0),
    ],
)  # fmt: skip
def test_a_level_needs_a_third_more_rows_than_there_are_sums_for_each_column(functions, of_level, rows):
    assert rows_needed(functions, of_level) == rows


def test_the_columns_of_which_most_is_told_are_found():
    """By trying all sets of columns."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        functions = {
            f"f{j}": frozenset(rng.choice(list("abcd"), size=rng.integers(1, 3), replace=False).tolist())
            for j in range(rng.integers(1, 14))
        }
        sets = [frozenset(some) for size in range(1, 5) for some in combinations("abcd", size)]
        most = max(sum(of <= some for of in functions.values()) / len(some) for some in sets)
        assert rows_needed(functions) == math.ceil(most / 0.75)


def test_numbers_of_each_answer():
    share, logistic, linear = Share("rare", ("", "age"), 6, 3, 3, 0, outputs=2), family("logistic"), family("linear")
    assert share.numbers(Ask("score", ZERO), 0.5, logistic) == 4
    assert share.numbers(Ask("sums", ZERO), 1.0, logistic) == 4
    for step in (0.0, None):  # sums of columns alone, and nothing
        assert share.numbers(Ask("score", ZERO), step, logistic) == 0
    end = Ask("final", ZERO, parts=("observed", "squares.rows"))
    assert share.numbers(end, 0.0, logistic) == 16
    assert share.numbers(end, 0.0, linear) == 8  # the matrix is one of columns
    assert share.numbers(Ask("own", ZERO), 0.0, logistic) == 0
