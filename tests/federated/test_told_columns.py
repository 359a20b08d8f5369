"""The functions of numbers that a site adds up."""

import numpy as np

from fedgauss.federated.told_columns import functions_of
from fedgauss.inference.formula.parser import parse
from fedgauss.inference.model import Model
from fedgauss.inference.tables import Frame

AGE, DOSE = frozenset({"age"}), frozenset({"dose"})
TABLE = Frame({name: np.arange(1.0, 9.0) for name in ("age", "dose", "cost", "days", "beds")})
COLUMNS = [("", frozenset()), ("age", AGE), ("age", AGE), ("age:dose", AGE | DOSE)]


def functions(terms="age", outcomes=("cost",), **options):
    model = Model(f"cost ~ {terms}", **options)
    return functions_of(model, parse(f"cost ~ {terms}", TABLE, "cost", []), COLUMNS, outcomes)


def test_they_are_those_of_columns_and_of_an_outcome_of_numbers():
    assert functions() == {"age": AGE, "age:dose": AGE | DOSE, "cost": frozenset({"cost"})}
    assert functions(outcomes=()) == {"age": AGE, "age:dose": AGE | DOSE}


def test_what_stands_beside_columns_is_added_up_with_them():
    told = functions("age + offset(log(dose))", outcomes=(), offset="days", exposure="beds", trials="cost")
    assert told == {
        "age": AGE, "age:dose": AGE | DOSE, "offset(log(dose))": DOSE, "days": frozenset({"days"}),
        "beds": frozenset({"beds"}), "cost": frozenset({"cost"}),
    }  # fmt: skip


def test_weights_make_a_second_one_of_each():
    told = functions(outcomes=(), row_weights="days")
    assert told == {
        "age": AGE, "age:dose": AGE | DOSE, "days": frozenset({"days"}), "days:age": AGE | {"days"},
        "days:age:dose": AGE | DOSE | {"days"}, "days:days": frozenset({"days"}),
    }  # fmt: skip
