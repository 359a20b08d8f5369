"""Ordinary use: a table answers at least ten different models after a first look at all of its columns."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import ledger_models


@pytest.mark.parametrize("seed", range(5))
def test_a_table_of_a_thousand_rows_answers_ten_models_after_a_first_look(seed):
    first, answered = ledger_models.answers(1000, seed, few=3, matrices="last", most=12)
    assert first >= 11
    assert answered >= 11
