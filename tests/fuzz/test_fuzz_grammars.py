"""Formulas, and combinations of parameters in words."""

import numpy as np

from fedgauss.inference.formula.parser import parse
from fedgauss.inference.hypotheses import read_combinations, read_hypotheses
from fedgauss.inference.tables import Frame
from fuzz.damaged import fuzzed, refused_or, text_mutants

COLUMNS = ["y", "a", "b", "age", "bmi (kg/m2)", "in come", "2nd", "log"]
FRAME = Frame({name: [] for name in COLUMNS})
FORMULAS = [
    "y ~ a*b + (a + b)**2 - a",
    "y ~ ns(age, knots=[30, 50], bounds=[-20, 80]) + scale(log(a)) + C(b, Treatment(reference='x')) - 1",
    "Q('bmi (kg/m2)') + bmi (kg/m2):in come + offset(log(age + 1)) + I((a - 50)/10)**3 + .",
]
NAMES = ["const", "age", "dose", "ward[T.north]", "log(age)", "age:dose", "2", "a b"]
HYPOTHESES = [
    "age - 2*dose",
    "age = dose, 2*dose = 1",
    "ward[T.north]/3 + `2` - 1e-3*log(age) = `a b` = 0",
    "-age:dose",
]


@fuzzed(text_mutants(*FORMULAS), many=5000)
def test_a_formula_is_parsed_or_refused(folder, text):
    refused_or(parse, text, FRAME, "y", COLUMNS[1:])


@fuzzed(text_mutants(*HYPOTHESES), many=5000)
def test_a_hypothesis_is_read_or_refused(folder, text):
    read = refused_or(read_hypotheses, text, NAMES)
    if read is not None:
        assert read.matrix.shape == (len(read.labels), len(NAMES))
        assert np.all(np.isfinite(read.matrix))
        assert np.all(np.isfinite(read.value))
    refused_or(read_combinations, text, NAMES)
