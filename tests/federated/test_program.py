"""The program of a run without sites: what it makes of words and totals that no honest sites send."""

import numpy as np
import pytest

from fedgauss.federated.plan import Heard, Plan
from fedgauss.federated.privacy import Privacy
from fedgauss.federated.program import _widest, empty_columns, run_program
from fedgauss.federated.refusal import Blamed
from fedgauss.inference.model import Model
from fedgauss.inference.sgd import SGD

NUMBERS = [["cost", None], ["age", None]]
WORDS = {"a": {"levels": NUMBERS, "tags": {"b": "one"}}, "b": {"levels": NUMBERS, "tags": {"a": "two"}}}


def plan_of(model="cost ~ age", masked=True, privacy=None, sgd=None):
    return Plan(Model(model, family="gaussian"), ("a", "b"), masked, "me", "1", privacy, sgd)


def after(*heard, **options):
    """The question after these answers."""
    steps = run_program(plan_of(**options))
    question = next(steps)
    for one in heard:
        question = steps.send(one)
    return question


def described(**change):
    """What two sites say of their columns, of which the first says something else."""
    return Heard(None, {"a": WORDS["a"] | change, "b": dict(WORDS["b"])}, [])


def counted(rows=20.0, dropped=0.0):
    return Heard({"rows": np.array(rows), "dropped": np.array(dropped)}, {}, [])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"levels": None}, "columns must be told as pairs"), ({"tags": None}, "'tags' of its table must be there"),
        ({"tags": ["one"]}, "'tags' of its table must be there"),
    ],
)  # fmt: skip
def test_a_description_that_is_none_has_a_name(change, words):
    with pytest.raises(Blamed, match=f"site 'a' sent a description that is none: {words}"):
        after(described(**change))


@pytest.mark.parametrize("ranges", [5, {"age": (2, 1)}, {"age": 1}, [1], {"age": ("a", "b")}])
def test_ranges_that_are_none_have_a_name(ranges):
    with pytest.raises(Blamed, match="site 'a' sent a description that is none"):
        after(described(ranges=ranges), privacy=Privacy(1.0))
    assert after(described(ranges=ranges)).kind == "count"  # nobody reads them
    assert after(described(ranges={"age": [1, 2]}), privacy=Privacy(1.0)).kind == "count"


def test_one_table_under_two_names_has_the_same_tag_twice():
    with pytest.raises(Blamed, match="sites 'a' and 'b' have the same table, which would count twice"):
        after(described(tags={"b": "two"}))
    assert after(described(tags={})).kind == "count"
    words = {"a": WORDS["a"] | {"tags": {}}, "b": WORDS["b"] | {"tags": {}}}
    assert after(Heard(None, words, [])).kind == "count"  # nothing is no tag


@pytest.mark.parametrize("rows", [19.5, -1.0, 1e9 + 1])
def test_rows_are_counted_in_whole_numbers(rows):
    for change in ({"rows": rows}, {"dropped": rows}):
        with pytest.raises(Blamed, match="rows are counted in whole numbers; the total of all sites is none"):
            after(described(), counted(**change))
    assert after(described(), counted(1e9)).kind == "cells"


def test_questions_of_a_formula_without_means_and_with_them():
    assert after(described(), counted()).shapes == {"both": (2, 2), "valued": (2,)}
    assert after(described(), counted(), masked=True).kind == "cells"
    asked = after(described(), counted(), model="cost ~ scale(age)")
    assert (asked.kind, asked.shapes) == ("means", {"needed": (1,)})
    told = Heard({"needed": np.array([50.0])}, {}, [])
    asked = after(described(), counted(), told, model="cost ~ scale(age)")
    assert (asked.kind, asked.content["means"]) == ("spread", 2.5)
    for squares, words in ((0.0, r"'age' is constant \(2.5\)"), (-1e-9, "is constant")):
        constant = Heard({"needed": np.array([squares])}, {}, [])
        with pytest.raises(ValueError, match=f"columns must vary; .*{words}"):
            after(described(), counted(), told, constant, model="cost ~ scale(age)")


def located(squares, response):
    """Sums of two covariates' columns, and squares about their means."""
    cells = Heard({"both": np.full((2, 2), 20.0), "valued": np.full(2, 20.0)}, {}, [])
    sums = Heard({"sums": np.array([50.0]), "response": np.array(30.0), "marks": np.zeros(1)}, {}, [])
    about = Heard({"squares": np.array([squares]), "response": np.array(response)}, {}, [])
    return described(), counted(), cells, sums, about


def test_means_and_scales_are_those_of_all_rows():
    asked = after(*located(80.0, 5.0)[:-1])
    assert (asked.kind, asked.content["means"], asked.content["response"]) == ("squares", 2.5, 1.5)
    asked = after(*located(80.0, 5.0))
    assert asked.kind == "ask"
    assert (asked.content["columns"].mean, asked.content["columns"].scale) == (2.5, 2.0)
    assert after(*located(0.2, 0.5)).content["columns"].scale == pytest.approx(0.1)
    for squares in (0.0, -1e-9):  # of rounding
        with pytest.raises(ValueError, match="'age' is constant"):
            after(*located(squares, 5.0))


def test_a_pass_of_sgd_is_in_the_units_of_columns_and_target():
    told = located(80.0, 5.0)
    asked = after(described(), counted(1000.0), *told[2:], sgd=SGD(sync_every=20))
    units = asked.content["content"]["course"].units
    np.testing.assert_allclose([*units.response], [[0.03], [np.sqrt(5.0 / 1000.0)]])
    np.testing.assert_allclose([*units.columns], [[0.05], [np.sqrt(80.0 / 1000.0)]])


@pytest.mark.parametrize("response", [0.0, -1.0])
def test_a_target_that_is_constant_is_refused(response):
    with pytest.raises(ValueError, match=r"the target 'cost' is constant \(1.5\): there is nothing to explain"):
        after(*located(80.0, response))


def test_the_widest_range_of_all_policies_counts():
    policies = [{"age": (20, 80), "dose": (0, 1)}, {"age": (30, 90), "bmi": (9, 10)}, {}, {"bmi": (1, 8)}]
    assert _widest(policies) == {"age": (20, 90), "dose": (0, 1), "bmi": (1, 10)}
    assert _widest([]) == {}


def test_columns_without_rows():
    model = Model("cost ~ age", exposure="years", family="poisson")
    found = empty_columns(model, {"cost": None, "age": None, "ward": ["a", "b"], "years": [1]})
    assert {name: (column.name, column.levels) for name, column in found.items()} == {
        "cost": ("cost", None), "age": ("age", None), "ward": ("ward", ("a", "b")), "years": ("years", (1,)),
    }  # fmt: skip
    assert empty_columns(model, {"cost": None, "age": None})["years"].levels is None
    assert all(len(column.values) == 0 for column in found.values())
    assert len(empty_columns(model, {})["years"].values) == 0
