"""Columns that are not what they seem."""

import numpy as np
import pandas as pd
import pytest

from fedgauss.inference.formula.terms import is_wild, reads_as_numbers
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import read_model_data
from fedgauss.inference.tables import coded

RNG = np.random.default_rng(1)
N = 400
AGE = RNG.normal(50, 10, N).round(1)


def but(values, **changes):
    """Values but for some of them: but(x, _0=5) has a 5 in the first place."""
    changed = np.array(values, dtype=float)
    for place, value in changes.items():
        changed[int(place[1:])] = value
    return changed


@pytest.mark.parametrize(
    ("values", "wild"),
    [
        (AGE, False),
        (but(AGE, _3=1e6), True),
        (but(AGE, _3=1e6, _9=1e6), True),  # two: neither outweighs the other, both lie far away
        (but(AGE, _3=-999), False),  # 1 % of 400 rows' squares short of it: no outlier test
        (but(AGE, _3=999_999), True),
        (but(np.zeros(N), _0=1), False),
        (but(np.zeros(N), _0=1, _1=1, _2=2), False),
        (but(np.zeros(N), _0=1, _1=50), True),
        (np.full(N, 7.0), False),
        (np.exp(RNG.normal(10, 1.5, N)), False),  # incomes
        (RNG.standard_t(3, N), False),
        (RNG.poisson(0.05, N).astype(float), False),
        (np.array([1.0, 2.0]), False),
        (but(RNG.integers(0, 2, N), _0=5e8), True),
    ],
)
def test_one_value_that_outweighs_all_others_is_wild(values, wild):
    assert is_wild(values) is wild


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (AGE.astype(str), True),
        ([*map(str, AGE[:200].astype(int)), *["n/a"] * 5], True),
        (["1", "2", "3", "2"], False),  # codes
        (["0.5", "1.0", "2.0"], True),
        (["0,5", "1,0", "2,0"], True),
        (["a,5", "b,0", "2,0"], False),
        (["low", "high", "1"], False),
        (["nan", "inf", "x"], False),
        ([True, False], False),
        ([1.5, 2.5], False),  # categories of numbers: somebody meant it
    ],
)
def test_text_that_is_numbers_is_told_from_codes(values, numbers):
    assert reads_as_numbers(coded("age", list(values))) is numbers


FRAME = pd.DataFrame({"y": RNG.normal(size=N), "age": AGE, "h": ["a", "b"] * (N // 2)})
TEXT, WILD = FRAME.assign(age=AGE.astype(str)), FRAME.assign(age=but(AGE, _3=1e6))


@pytest.mark.parametrize(
    ("frame", "formula", "message"),
    [
        (TEXT, "age", "column 'age' holds numbers as text, and would become an indicator for each of its values"),
        (TEXT, "log(age)", "column 'age' holds numbers as text"),
        (TEXT, "C(age)", "column 'age' has 2.. levels in 400 rows"),
        (WILD, "age", "no single value may outweigh all others; one of column 'age' does. Is it a typing error"),
        (WILD, "scale(age)", "one of column 'age' does"),
        (WILD, "I(age**2)", "one of column 'age' does"),
        (WILD, "ns(age, df=3)", "one of column 'age' does"),
        (FRAME.assign(age=but(AGE, _3=1e300)), "log(age)", r"one of log\(age\) does.*If they are right, leave"),
        (WILD, "log(age)", None),
        (FRAME.assign(age=np.exp(AGE)), "log(age)", None),
        (FRAME, "I(age**5)", None),
        (FRAME.assign(stage=np.resize(["1", "2", "3"], N)), "stage", None),
    ],
)
def test_messages_name_the_column_and_quote_no_value(frame, formula, message):
    spec = Model("y", family="linear", formula=formula)
    if message is None:
        read_model_data(frame, "h", spec)
        return
    with pytest.raises(ValueError, match=message) as raised:
        read_model_data(frame, "h", spec)
    assert "1000000" not in str(raised.value)
    assert not any(str(age) in str(raised.value) for age in AGE)
