"""Targets: which family where none was given."""

import numpy as np
import pytest

from fedgauss.families import Poisson
from fedgauss.inference.model_data import family_of, response_of
from fedgauss.inference.tables import FrameColumn, coded


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (FrameColumn("died", np.array([0.0, 1, 1])), "has 0 and 1. Use family='binomial' for odds, or family='gau"),
        (FrameColumn("died", np.array([1.0, 2, 1])), r"1 and 2. Use family='binomial' and frame\['died'\] == 2 as"),
        (coded("died", [True, False]), "'died' is true or false. Use family='binomial'"),
        (coded("died", ["no", "yes"]), r"has 'no' and 'yes'. Use family='binomial' and frame\['died'\] == 'yes'"),
        (coded("died", ["1.5", "2"]), r"'died' holds numbers as text .*frame\['died'\].astype\(float\)"),
        (coded("died", ["a", "b", "c"]), "for a target of text; 'died' is. Use family='(multinomial|one_versus_rest)'"),
    ],
)  # fmt: skip
def test_a_target_that_could_be_two_things_is_asked_about(column, message):
    with pytest.raises(ValueError, match=message):
        family_of(column, None)
    assert family_of(column, "linear") == "linear"


def test_other_numbers_are_gaussian():
    column = FrameColumn("cost", np.array([1.0, 2.5, 3.0]))
    assert family_of(column, None) == "gaussian"
    assert response_of(column, None)[2].name == "linear"
    assert family_of(column, Poisson()) == Poisson()


def test_trials_without_a_family_are_binomial():
    successes, trials = FrameColumn("k", np.array([1.0, 0, 3])), FrameColumn("n", np.array([4.0, 1, 3]))
    assert response_of(successes, None, trials)[2].name in ("logistic", "binomial")
