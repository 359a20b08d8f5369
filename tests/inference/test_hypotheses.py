"""Combinations in words: what they say, what is refused, and that nothing in them is run."""

import numpy as np
import pytest

from fedgauss.inference.estimate import Estimate
from fedgauss.inference.hypotheses import read_combinations, read_hypotheses

NAMES = ("const", "age", "dose", "ward[T.north]", "age:dose", "log(age)", "ns(x, 3)[1]", "a-b", "2", "two words")
ESTIMATE = Estimate(
    [0.3, 0.5, 0.2], np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 0.5], [0.0, 0.5, 2.0]]) / 50, 0.9, "plugin",
    ("const", "age", "dose"),
)  # fmt: skip


def row(**weights):
    named = {"north": "ward[T.north]", "product": "age:dose", "spline": "ns(x, 3)[1]", "words": "two words"}
    vector = np.zeros(len(NAMES))
    for name, weight in weights.items():
        vector[NAMES.index(named.get(name, name))] = weight
    return vector


@pytest.mark.parametrize(
    ("text", "rows", "values"),
    [
        ("age - dose", [row(age=1, dose=-1)], [0]),
        ("-age+2*dose", [row(age=-1, dose=2)], [0]),
        ("age/4 + dose*.5", [row(age=0.25, dose=0.5)], [0]),
        ("age = dose", [row(age=1, dose=-1)], [0]),
        ("2e-1*ward[T.north] = age:dose - 1", [row(north=0.2, product=-1)], [-1]),
        ("age = dose = 3", [row(age=1, dose=-1), row(dose=1)], [0, 3]),
        ("age, dose = 1", [row(age=1), row(dose=1)], [0, 1]),
        ("ns(x, 3)[1] - two words", [row(spline=1, words=-1)], [0]),
        ("a-b", [row(**{"a-b": 1})], [0]),
        ("`2` - 2*`age`", [row(**{"2": 1}, age=-2)], [0]),
        (["age", "dose=1"], [row(age=1), row(dose=1)], [0, 1]),
        ({"age": 1, "dose": -1}, [row(age=1, dose=-1)], [0]),
        ([{"age": 2}, "dose"], [row(age=2), row(dose=1)], [0, 0]),
        (np.eye(10)[:2], np.eye(10)[:2], [0, 0]),
        ([0] * 9 + [1], [np.eye(10)[9]], [0]),
    ],
)
def test_what_texts_say(text, rows, values):
    read = read_hypotheses(text, NAMES)
    np.testing.assert_array_equal(read.matrix, rows)
    np.testing.assert_array_equal(read.value, values)
    assert len(read.labels) == len(rows)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "ends too early"),
        ("age -", "ends too early"),
        ("aeg - dose", "no parameter is named 'aeg'. Did you mean 'age'?"),
        ("age2", "no parameter is named 'age2'"),
        ("age dose", "has 'dose' where an operator or the end must stand"),
        ("age*dose", "has 'dose' where a number"),
        ("2*3", "a parameter's name after"),
        ("age/0", "cannot be divided by 0"),
        ("1e999*age", "must be finite"),
        ("age ** 2", "has '\\*' where"),
        ("age; dose", "age;"),
        ("`age", "no parameter is named 'age'"),
        ("__import__('os').system('true')", "no parameter is named"),
        ("age" * 5000, "at most 10,000 characters"),
        ("+" * 9000, "where a number or a parameter's name must stand"),
        ({"aeg": 1}, "Did you mean 'age'"),
        ({"age": "1"}, "the weight of 'age' must be a real number"),
        (["age", 3], "all text or weights by name"),
        ("age = dose", "no equation"),
        ("age - 1", "no constant term"),
    ],
)
def test_what_is_refused(text, rule):
    with pytest.raises(ValueError, match=rule):
        read_combinations(text, NAMES)


def test_random_texts_are_read_or_refused_with_a_sentence():
    """2,000 texts of what the grammar is made of: nothing but a ValueError, and never an empty reading."""
    rng = np.random.default_rng(5)
    pieces = [*NAMES, "+", "-", "*", "/", "=", ",", " ", "3", "1e3", "`", "(", "'", "\n", "é", "[", "."]
    kept = 0
    for _ in range(2000):
        text = "".join(rng.choice(pieces, rng.integers(1, 8)))
        try:
            read = read_hypotheses(text, NAMES)
        except ValueError:
            continue
        kept += 1
        assert read.matrix.shape == (len(read.value), len(NAMES))
        assert np.isfinite(read.matrix).all()
    assert 20 < kept < 1900


def test_contrasts_and_tests_by_name_are_those_by_matrix():
    by_name, by_matrix = ESTIMATE.contrast("age - 2*dose"), ESTIMATE.contrast([0, 1, -2])
    np.testing.assert_array_equal(by_name.params, by_matrix.params)
    np.testing.assert_array_equal(by_name.conf_int(), by_matrix.conf_int())
    assert by_name.params["age - 2*dose"] == pytest.approx(0.1)
    assert by_matrix.names == ("contrast 1",)
    assert ESTIMATE.contrast({"age": 10, "dose": -1}).names == ("10*age - dose",)
    assert ESTIMATE.contrast(["age", "dose - age"]).names == ("age", "dose - age")
    assert ESTIMATE.wald("age = dose") == ESTIMATE.wald([0, 1, -1])
    assert ESTIMATE.wald(["age", "dose"]) == ESTIMATE.wald([[0, 1, 0], [0, 0, 1]])
    assert ESTIMATE.wald("age = 1, dose = 2") == ESTIMATE.wald([[0, 1, 0], [0, 0, 1]], [1, 2])
    assert ESTIMATE.wald({"age": 1}, 0.5).statistic == pytest.approx(0.0)
    gap = 0.3
    assert ESTIMATE.wald("age = dose").statistic == pytest.approx(gap**2 / ((3 + 2 - 2 * 0.5) / 50))
    with pytest.raises(ValueError, match="its own right-hand side"):
        ESTIMATE.wald("age = 1", 2.0)
    with pytest.raises(ValueError, match="row of zeros"):
        ESTIMATE.wald("age = age")
