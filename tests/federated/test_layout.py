"""An answer is one row of numbers and back; of symmetric matrices half travels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_parts import FIXED

from fedgauss.federated.fixed_point import pack, size, unpack

SHAPES = st.dictionaries(
    st.text(max_size=3), st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=4
)  # fmt: skip


def square(shape):
    return len(shape) == 2 and shape[0] == shape[1]


@FIXED
@given(SHAPES, st.integers(0, 2**32))
def test_what_is_packed_comes_back(shapes, seed):
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    arrays = {name: one + one.T if square(one.shape) else one for name, one in arrays.items()}
    row = pack(arrays, shapes)
    lengths = [n * (n + 1) // 2 if square((n, *rest)) else n * int(np.prod(rest, dtype=int)) for n, *rest in
               [(shape or (1,)) for shape in shapes.values()]]  # fmt: skip
    assert row.shape == (size(shapes),) == (sum(lengths),)
    found = unpack(row, shapes)
    assert list(found) == list(shapes)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_the_order_is_that_of_the_shapes():
    shapes = {"b": (2,), "m": (3, 3), "flat": (1, 2), "a": ()}
    m = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    arrays = {"a": np.array(9.0), "m": m, "flat": np.array([[7.0, 8.0]]), "b": np.array([-1.0, 0.0])}
    row = pack(arrays, shapes)
    np.testing.assert_array_equal(row, [-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    np.testing.assert_array_equal(unpack(row, shapes)["m"], m)
    assert pack({}, {}).shape == (0,)
    assert unpack(np.empty(0), {}) == {}


@pytest.mark.parametrize(
    "arrays", [{}, {"x": np.zeros(3)}, {"x": np.zeros((2, 1))}, {"y": np.zeros(2)}, {"x": np.zeros(2), "y": 0.0}]
)
def test_an_answer_to_something_else_is_none(arrays):
    with pytest.raises(ValueError, match="an answer must have the arrays"):
        pack(arrays, {"x": (2,)})


def test_whole_numbers_are_packed_as_floats():
    assert pack({"x": [1, 2]}, {"x": (2,)}).dtype == float
