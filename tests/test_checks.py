"""What passes for a number, and what does not."""

from decimal import Decimal

import numpy as np
import pytest

from fedgauss import _checks


@pytest.mark.parametrize(
    "value",
    [None, "1", b"1", [1.0, None], ["1", "2"], np.array(["1", 2.0], dtype=object), 1j, np.array([1 + 2j])],
    ids=str,
)
def test_none_text_and_complex_numbers_are_no_real_numbers(value):
    with pytest.raises(ValueError, match=r"x must be an array of real numbers; got .*Use 1"):
        _checks.real_array("x", value, fix="Use 1?")


def test_one_number_is_asked_for_as_one():
    with pytest.raises(ValueError, match=r"x must be a real number; got '0.3'"):
        _checks.real("x", "0.3")


def test_what_is_shown_of_a_long_value_is_short():
    with pytest.raises(ValueError, match="real numbers") as caught:
        _checks.real_array("x", [None] * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [[1, 2], (True, 2.0), np.float32([1, 2]), [Decimal(1), 2]], ids=str)
def test_numbers_of_any_kind_are_taken(value):
    np.testing.assert_array_equal(_checks.real_array("x", value), [1.0, 2.0])


def test_true_is_no_count():
    with pytest.raises(ValueError, match="n must be a whole number; got True"):
        _checks.whole("n", True)
    assert _checks.whole("n", np.int64(3)) == 3
