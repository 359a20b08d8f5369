"""The grammar of formulas: closed, bounded, and with words for what is outside it."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import Expression, Levels, Pooled, Spline
from fedgauss.inference.tables import Frame

NAMES = ["y", "a", "b", "c", "age", "bmi (kg/m2)", "in come", "2nd", "log", "offset"]
FRAME = Frame({name: [] for name in NAMES})


def read(formula, columns=FRAME, target="y"):
    return parse(formula, columns, target, [name for name in columns.names if name != target])


def shown(formula, columns=FRAME):
    return [":".join(factor.name for factor in term) for term in read(formula, columns).terms]


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("y ~ a + b", ["a", "b"]),
        ("a + a + b", ["a", "b"]),
        ("a*b", ["a", "b", "a:b"]),
        ("b:a + a:b", ["b:a"]),
        ("a*b*c", ["a", "b", "a:b", "c", "a:c", "b:c", "a:b:c"]),
        ("(a + b):c", ["a:c", "b:c"]),
        ("(a + b)**2 + c", ["a", "b", "a:b", "c"]),
        ("a*b - a", ["b", "a:b"]),
        ("a:a", ["a"]),
        ("a**2 + I(a**2) + I( a ** 3 )", ["I(a ** 2)", "I(a ** 3)"]),
        ("log(a)**2", ["I(log(a) ** 2)"]),
        ("I(a - 1)**2", ["I((a - 1) ** 2)"]),
        ("np.log(a+1):C(b)", ["np.log(a + 1):C(b)"]),
        ("I((a-50)/10)", ["I((a - 50) / 10)"]),
        ("C(c,Treatment('x'))", ["C(c, Treatment('x'))"]),
        ("C( c , Treatment(reference = 2))", ["C(c, Treatment(reference=2))"]),
        ("scale(log(a)) + center(b) + standardize(c)", ["scale(log(a))", "center(b)", "standardize(c)"]),
        ("ns(age,df=4)", ["ns(age, df=4)"]),
        ("ns(a,knots=[30,50],bounds=[-20, 80])", ["ns(a, knots=[30, 50], bounds=[-20, 80])"]),
        ("Q('bmi (kg/m2)') + bmi (kg/m2) + in come + C(Q('2nd'))", ["bmi (kg/m2)", "in come", "C(Q('2nd'))"]),
        ("2nd + log + offset + log(age)", ["2nd", "log", "offset", "log(age)"]),
        ("C(a) + .", ["C(a)", "b", "c", "age", "bmi (kg/m2)", "in come", "2nd", "log", "offset"]),
        (". - a - (b + c) - Q('2nd') - in come - offset - log", ["age", "bmi (kg/m2)"]),
        (".", [name for name in NAMES if name != "y"]),
        ("1", []),
    ],
)  # fmt: skip
def test_terms_are_those_that_a_formula_says(formula, terms):
    assert shown(formula) == terms


@pytest.mark.parametrize(
    ("formula", "intercept"),
    [
        ("a", True),
        ("a - 1", False),
        ("a + 0", False),
        ("0 + a", False),
        ("-1 + a", False),
        ("a - 1 + 1", True),
        ("+ a", True),
    ],
)
def test_the_intercept_can_be_left_out(formula, intercept):
    assert read(formula).intercept is intercept


def test_factors_hold_what_was_said():
    read_ = read("y ~ I(2*(a - 1)) + C(c, Treatment(False)) + scale(b) + ns(age, knots=(1, 2)) + offset(log(a))")
    assert [factor for (factor,) in read_.terms] == [
        Expression("a", (("-", 1.0), ("*", 2.0)), "I(2 * (a - 1))"),
        Levels("c", False, "C(c, Treatment(False))"),
        Pooled(Expression("b", (), "b"), True, "scale(b)"),
        Spline(Expression("age", (), "age"), 3, (1.0, 2.0), None, "ns(age, knots=(1, 2))"),
    ]
    assert read_.offsets == (Expression("a", (("log", 0.0),), "log(a)"),)
    assert read_.columns == ["a", "c", "b", "age"]
    assert read_.as_levels == {"c"}


def test_a_column_named_like_a_term_is_that_column():
    columns = Frame({"y": [], "a": [], "b": [], "a:b": [], "log(a)": []})
    assert shown("a:b + log(a)", columns) == ["a:b", "log(a)"]
    assert [len(term) for term in read("a:b", columns).terms] == [1]
    assert [len(term) for term in read("a : b", columns).terms] == [2]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ a + ", "where a column is missing"),
        ("a b", "a sign such as '\\+' is missing before 'b'"),
        ("(a", "brackets and quotes in a formula must be closed"),
        ("a)", "brackets and quotes in a formula must be closed"),
        ("Q('a", "brackets and quotes in a formula must be closed"),
        ("z ~ a", "must be the target 'y'; got 'z'"),
        ("log(y) ~ a", r"must be the target 'y'; got 'log\(y\)'. A target that is transformed has to be a column"),
        ("y ~ a ~ b", "'~' occurs more than once"),
        ("aage", r"got 'aage'. Did you mean 'age'\?"),
        ("C(aage)", r"C\(\) in the formula must name a column of the frame; got 'aage'"),
        ("exp(a)", r"got 'exp\(\)'. Make it a column of the frame first"),
        ("os.system('x')", r"got 'os.system\(\)'. Make it a column"),
        ("__import__('os')", "Make it a column"),
        ("a.__class__", "must name a column"),
        ("a[0]", "is missing before '\\['"),
        ("a % b", "may not have '%' outside quotes"),
        ("a / b", "is missing before '/'"),
        ("2*a", "'2' is a number, which may stand inside I"),
        ("1:a", "1 is for the intercept and stands alone"),
        ("(1 + a):b", "'1' is a number"),
        ("a - b", "got '- b', which is not among the terms before it"),
        ("I(a*b)", "inside brackets there is one column: a:b is the product of two"),
        ("I(1/a)", "a number may not be divided by a column"),
        ("I(a*0)", r"'\* 0' leaves nothing of a column"),
        ("I(3)", "'I\\(3\\)' has no column"),
        ("log(3)", "under log\\(\\) there is a column"),
        ("log(a - 5.2)", r"under log\(\) there is a column, or a column \+ 1 or \+ 0.5; 'a - 5.2' is something else"),
        ("log(a + 7)", "'a \\+ 7' is something else"),
        ("sqrt(I(a**2))", "under sqrt"),
        ("I(a**9)", "powers are whole numbers from 2 to 5"),
        ("I(a**0.5)", "powers are whole numbers from 2 to 5"),
        ("I((a**3)**3)", "powers are whole numbers from 2 to 5"),
        ("I(a**1e999)", "numbers are at most"),
        ("I(a / 1e-20)", "numbers are at least"),
        ("C(a)**2", "'\\*\\* 2' is for a column or a sum of terms"),
        ("C(a) + a:b", "a column is a number or has levels, not both; 'a'"),
        ("C(a) + offset(a)", "a column is a number or has levels, not both; 'a'"),
        ("C(a, Sum)", "after the comma in C"),
        ("C(a, Treatment(b))", "Treatment\\(\\) has one level"),
        ("C(log(a))", "got 'log'|stands where '\\)' should be"),
        ("ns(a)", "ns\\(\\) needs df= or knots=, one of them"),
        ("ns(a, df=3, knots=[1])", "ns\\(\\) needs df= or knots=, one of them"),
        ("ns(a, df=2.5)", "df= is a whole number from 1"),
        ("ns(a, df=99)", "at most 15 columns"),
        ("ns(a, knots=[2, 1])", "knots rise and lie between the bounds"),
        ("ns(a, knots=[2], bounds=[3, 4])", "knots rise and lie between the bounds"),
        ("ns(a, degree=3)", "'degree' is none of these"),
        ("scale(C(a))", "got 'C\\(\\)'. Make it a column"),
        ("a:offset(b)", "got 'offset\\(\\)'"),
        ("a - offset(b)", "an offset cannot be taken away"),
        ("a:b:c:age:log", "at most 4 factors interact"),
        ("(" * 30 + "a" + ")" * 30, "brackets may be 10 deep"),
        ("I(" * 30 + "a" + ")" * 30, "brackets may be 10 deep"),
        ("+".join(["a"] * 20_000), "at most 20,000 characters"),
        ("", "stands where a column is missing"),
        (3, "formula must be text"),
    ],
)
def test_anything_else_is_refused_in_words(formula, message):
    with pytest.raises(ValueError, match=message):
        read(formula)


def test_the_number_of_terms_is_bounded_before_they_are_made():
    columns = Frame({"y": []} | {f"x{i}": [] for i in range(300)})
    for formula in (".*.", "(.)**4", ".:.:.:."):
        began = time.process_time()
        with pytest.raises(ValueError, match="at most 500 terms; here there would be"):
            read(formula, columns)
        assert time.process_time() - began < 0.5


SIGNS = "+-*:()[],=~.'\"0123456789 \x00\né"
CALLS = ["C(", "Q('a')", "I(", "log(", "np.log(", "scale(", "ns(", "Treatment('x')", "offset(", "exp(", "lambda"]
PIECES = [*NAMES, *SIGNS, *CALLS, "**", "df=4", "knots=[1, 2]", "1e5", "__class__"]


@settings(max_examples=1000, deadline=500, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_pieces_of_formulas_parse_or_are_refused(formula):
    try:
        found = read(formula)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - it need not be raised
    else:
        assert set(found.columns) < set(NAMES)


@settings(max_examples=1000, deadline=500, derandomize=True)
@given(st.text(max_size=200))
def test_any_text_parses_or_is_refused(formula):
    try:
        read(formula)
    except ValueError as error:
        assert str(error)  # noqa: PT017


def test_a_formula_as_long_as_can_be_is_read_quickly():
    rng = np.random.default_rng(0)
    columns = Frame({f"odd name {i}": [] for i in range(2_000)} | {"y": [], "a": []})
    for formula in (
        "((((" * 4_000,
        "a+" * 9_999,
        "a:" * 9_999,
        "I(" * 9_000,
        "".join(rng.choice(list("ab+*:(). "), 20_000)),
    ):
        began = time.process_time()
        with pytest.raises(ValueError):  # noqa: PT011 - whichever comes first
            read(formula, columns)
        assert time.process_time() - began < 2.0
