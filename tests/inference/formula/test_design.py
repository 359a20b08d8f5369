"""Named columns: those of patsy, and the same bits whether rows are pooled or at sites."""

from itertools import pairwise

import numpy as np
import pandas as pd
import patsy
import pytest

from fedgauss.inference.formula.design import Design, summaries
from fedgauss.inference.formula.parser import parse
from fedgauss.inference.formula.terms import Summary
from fedgauss.inference.tables import Frame, FrameColumn

RNG = np.random.default_rng(5)
N = 90
FRAME = pd.DataFrame(
    {
        "a": RNG.gamma(2.0, size=N),
        "b": RNG.gamma(3.0, size=N),
        "c": RNG.choice(["x", "y", "z"], N),
        "d": pd.Categorical(RNG.choice(["v", "u"], N), categories=["v", "w", "u"]).remove_unused_categories(),
        "e": RNG.integers(1, 5, N),
        "f": RNG.random(N) < 0.5,
        "y": RNG.normal(size=N),
    }
)
log, sqrt = np.log, np.sqrt  # patsy looks them up here


def design_of(formula, frame=FRAME, total=N):
    table = Frame(frame)
    read = parse(formula, table, "y", [name for name in table.names if name != "y"])
    rows = table.read(read.columns or ["a"])
    rows = {name: column.as_levels() if name in read.as_levels else column for name, column in rows.items()}
    return Design(read, {name: column.levels for name, column in rows.items()}, total), rows


def columns_of(formula, frame=FRAME):
    design, rows = design_of(formula, frame)
    return design.columns(rows, design.agreed(rows))


def check_against_patsy(formula):
    design, rows = design_of(formula)
    wanted = patsy.dmatrix(formula, FRAME)
    ones = ["Intercept"] if design.formula.intercept else []
    assert [*ones, *design.names] == wanted.design_info.column_names
    found = design.columns(rows, design.agreed(rows))
    np.testing.assert_allclose(found, np.asarray(wanted)[:, len(ones) :], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "formula",
    [
        "a + b + c", "a*b", "c*a", "c:a", "a + c:a - 1", "c*d", "c:d", "c + c:d", "d + c:d", "c:d - 1", "c*d - 1",
        "a:c:d", "c:d + a:c", "C(e, Treatment(2))*c", "np.log(a)*c + I(a**2)", "scale(a) + center(b):c",
        "C(e) + f + a:f", "(a + c + d)**2", "(a + c)*d - a", "np.sqrt(a + 1)", "I(2*a - 1)", "I(3 - a)",
        "C(c,Treatment('y')):d + d", "c*d*f - c:d:f", "C( e , Treatment( reference = 3 ))", "0 + c:d + f",
        "standardize(a)", "c:d:f", "a:c + b:d + f*C(e)", "log(a):C(e)", "scale(np.log(a + 0.5))", "b + c + a + d",
        "np.log10(a) + np.log2(a) + np.log1p(a)", "C(f, Treatment(True))", "C(c, Treatment)", "I((a - 1)**3 / 2)",
    ],
)  # fmt: skip
def test_names_and_columns_are_those_of_patsy(formula):
    check_against_patsy(formula)


def test_formulas_drawn_at_random_are_read_as_patsy_reads_them():
    """Terms of up to three factors, with and without their margins and the intercept; fixed draws, so no chance."""
    rng = np.random.default_rng(11)
    factors = ["a", "b", "np.log(a)", "I(b ** 2)", "c", "d", "f", "C(e)", "C(e, Treatment(3))", "scale(b)"]
    for _ in range(150):
        terms = [
            rng.choice([":", "*"]).join(rng.choice(factors, rng.integers(1, 4), replace=False))
            for _ in range(rng.integers(1, 5))
        ]
        check_against_patsy(" + ".join(terms) + rng.choice(["", "", " - 1"]))


def test_columns_of_features_keep_their_order():
    read = parse("a + c + b", Frame(FRAME), "y", [])._replace(regrouped=False)
    rows = Frame(FRAME).read(read.columns)
    design = Design(read, {name: column.levels for name, column in rows.items()}, N)
    assert design.names == ("a", "c[T.y]", "c[T.z]", "b")


def test_sites_and_pooled_rows_make_the_same_columns_to_the_last_bit():
    formula = "scale(a):c + ns(b, df=4)*f + center(log(a)) + ns(a, knots=[1], bounds=[0.1, 4])"
    design, pooled = design_of(formula)
    assert design.needs() == ("a", "b", "log(a)")
    ends = [0, 20, 55, N]
    sites = [
        {name: FrameColumn(name, column.values[i:j], column.levels) for name, column in pooled.items()}
        for i, j in pairwise(ends)
    ]
    agreed = design.agreed(pooled)
    # The same in the words of a conversation: sums, then squares about the means.
    values = [np.array(list(design.needed(rows).values())) for rows in sites]
    means = sum(each.sum(axis=1) for each in values) / N
    squares = sum(((each - means[:, None]) ** 2).sum(axis=1) for each in values)
    told = summaries(design.needs(), N, means, squares)
    np.testing.assert_allclose(list(told.values()), list(agreed.values()), rtol=1e-13)
    np.testing.assert_allclose(agreed["a"], Summary(FRAME.a.mean(), FRAME.a.std(ddof=0)), rtol=1e-14)
    here = np.concatenate([design.columns(rows, agreed) for rows in sites])
    np.testing.assert_array_equal(here, design.columns(pooled, agreed))


def test_without_rows_there_are_names_and_no_columns():
    """As a coordinator has it: levels, and nothing agreed yet."""
    design, rows = design_of("scale(a)*c + ns(b, df=3)")
    empty = {name: FrameColumn(name, np.empty(0), column.levels) for name, column in rows.items()}
    assert design.columns(empty, {}).shape == (0, len(design.names)) == (0, 8)
    with pytest.raises(ValueError, match="must be agreed on; those of 'a' are not"):
        design.columns(rows, {})


def test_other_rows_get_the_same_columns():
    design, rows = design_of("scale(a)*c + C(e) + f")
    agreed = design.agreed(rows)
    some = FRAME[(FRAME.c != "x") & (FRAME.e > 2)]
    wanted = design.columns(rows, agreed)[some.index]
    np.testing.assert_array_equal(design.columns(design.read(some), agreed), wanted)
    with pytest.raises(ValueError, match="levels must be among those of the fit; 'q' of 'c' is not"):
        design.read(some.assign(c="q"))
    with pytest.raises(ValueError, match="it lacks 'e'"):
        design.read(some.drop(columns="e"))


def test_offsets_are_added_up():
    design, rows = design_of("a + offset(log(b)) + offset(a)")
    np.testing.assert_allclose(design.offset(rows), np.log(FRAME.b) + FRAME.a)
    assert design.names == ("a",)
    assert design_of("a")[0].offset(rows) is None


def test_empty_stretches_between_knots_can_be_looked_at():
    design, rows = design_of("a + c + a:c + ns(b, knots=[1, 2], bounds=[0.5, 6])")
    counts = np.histogram(FRAME.b, [0.5, 1, 2, 6])[0]
    assert list(design.fewest_between_knots(rows, {}).values()) == [counts.min()]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("log(c)", r"log\(c\) needs numbers; column 'c' holds text"),
        ("I(f**2)", r"needs numbers; column 'f'"),
        ("scale(c)", "needs numbers"),
        ("log(y0)", r"log\(y0\) needs values above 0; column 'y0' has others. Use log\(y0 \+ 1\) where 0 occurs"),
        ("sqrt(low)", r"sqrt\(low\) needs values from 0; column 'low' has others"),
        ("log1p(low)", r"log1p\(low\) needs values above -1"),
        ("I(large**5)", r"I\(large \*\* 5\) must be finite"),
        ("C(c, Treatment('q'))", "Treatment\\(\\) must name a level of 'c'; got 'q'. The levels are 'x', 'y' and 'z'"),
        ("C(f, Treatment(1))", "Treatment\\(\\) must name a level of 'f'"),
        ("scale(same)", "columns must vary; column 'same' is constant"),
        ("ns(same, df=3)", "columns must vary; column 'same' is constant"),
        ("ns(a, knots=[900])", "knots must rise and lie between the bounds; those of .* are .*Give both, as in"),
        ("one", r"column 'one' is constant \('k'\)"),
        ("id", "column 'id' has 90 levels in 90 rows"),
        ("C(e0):C(e1):C(e2):C(e3)", "at most 2,000 columns; this one makes"),
    ],
)
def test_what_cannot_be_a_column_is_refused(formula, message):
    frame = FRAME.assign(
        y0=FRAME.e - 1, low=-FRAME.a - 1, large=FRAME.a * 1e100, same=4.0, one="k", id=[f"p{i}" for i in range(N)]
    ).assign(**{f"e{i}": RNG.integers(0, 15, N) for i in range(4)})
    with pytest.raises(ValueError, match=message):
        columns_of(formula, frame)


def test_errors_quote_no_value():
    with pytest.raises(ValueError, match="needs values above 0") as raised:
        columns_of("log(secret)", FRAME.assign(secret=FRAME.a - 5.4321))
    assert not any(f"{value:.3f}" in str(raised.value) for value in FRAME.a - 5.4321)


def test_functions_of_numbers_are_told_from_levels():
    levels = {"age": None, "dose": None, "smokes": None, "ward": ("east", "north", "west")}
    frame = Frame({"age": [1.0], "dose": [1.0], "smokes": [1.0], "ward": ["east"], "y": [1.0]})
    formula = parse("y ~ age + scale(age) + ward + age:ward + age:dose + ns(dose, df=2) + smokes:dose", frame, "y", [])
    design = Design(formula, levels, 100)
    age, dose = frozenset({"age"}), frozenset({"dose"})
    agreed = {"age": Summary(50.0, 10.0), "dose": Summary(3.0, 1.0)}
    found = dict(zip(design.names, design.functions(agreed), strict=True))
    assert found["age"] == found["scale(age)"] == found["age:ward[T.north]"] == ("age", age)
    assert found["ward[T.west]"] == ("", frozenset())
    assert found["age:dose"] == ("age:dose", age | dose)
    spline, of = found["ns(dose, df=2)[1]"]
    assert (spline.startswith("ns(dose, df=2)[1] at "), of) == (True, dose)
    elsewhere = design.functions(agreed | {"dose": Summary(9.0, 1.0)})  # other knots are other functions
    assert [one[0] for one in elsewhere if one[0] == spline] == []
    assert sum(one in elsewhere for one in found.values()) == len(found) - 2
    assert found["smokes:dose"] == ("smokes:dose", dose | {"smokes"})
    assert dict(zip(design.names, design.functions(agreed, ["smokes"]), strict=True))["smokes:dose"] == ("dose", dose)
