"""Vectors by name: arrays to NumPy, and found by name by a reader."""

import copy
import pickle

import numpy as np
import pytest

from fedgauss.inference.coefficient_table import Named

PARAMS = Named([-1.5, 0.25, 3.0], ["const", "age", "ward[T.north]"])


def test_entries_are_found_by_name_and_by_number():
    assert PARAMS["age"] == PARAMS[1] == 0.25
    np.testing.assert_array_equal(PARAMS[["ward[T.north]", "const"]], [3.0, -1.5])
    np.testing.assert_array_equal(PARAMS[1:], [0.25, 3.0])
    np.testing.assert_array_equal(PARAMS[PARAMS > 0], [0.25, 3.0])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Age", "Did you mean 'age'"),
        ("ward[north]", "Did you mean 'ward[T.north]'"),
        ("zzz", "There are 'const', 'age'"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(name, hint):
    with pytest.raises(KeyError) as raised:
        PARAMS[name]
    assert hint in str(raised.value)


def test_names_follow_functions_of_entries_and_nothing_else():
    assert np.exp(PARAMS)["age"] == np.exp(0.25)
    assert (PARAMS / np.array([1.0, 2.0, 3.0]))["ward[T.north]"] == 1.0
    assert (2.0 * PARAMS - PARAMS)["age"] == 0.25
    for plain in (np.eye(3) @ PARAMS, PARAMS[:2], PARAMS > 0, PARAMS + np.ones((2, 3))):
        assert type(plain) is np.ndarray
    other = Named([1.0, 2.0, 3.0], ["a", "b", "c"])
    assert type(PARAMS + other) is np.ndarray  # whose names would it have?
    assert type(PARAMS.sum()) is np.float64
    assert PARAMS @ PARAMS == 1.5**2 + 0.25**2 + 9.0
    with pytest.raises(KeyError, match="no names any more"):
        np.sort(PARAMS)["age"]  # in another order


def test_copies_of_a_result_keep_names_and_printing_shows_them():
    for again in (copy.deepcopy(PARAMS), pickle.loads(pickle.dumps(PARAMS))):
        assert again["age"] == 0.25
    assert repr(PARAMS).splitlines()[1].split() == ["age", "0.25"]
    assert str(PARAMS) == str(np.asarray(PARAMS))
    changed = PARAMS.copy()
    changed += 1.0
    assert PARAMS[0] == -1.5
    assert changed[0] == -0.5
    assert repr(changed).startswith("array(")


def test_values_are_copied_and_as_many_as_names():
    values = np.zeros(2)
    vector = Named(values, ["a", "b"])
    values[0] = 1.0
    assert vector["a"] == 0.0
    with pytest.raises(ValueError, match="names must be as many as values; got 3"):
        Named(values, ["a", "b", "c"])
