"""Numbers modulo 2^256 are those of Python's integers, and floats come back as they were."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_parts import FIXED

from fedgauss.federated.fixed_point import LARGEST, add, from_words, subtract, to_words

RNG = np.random.default_rng(5)
NUMBERS = st.integers(0, 2**256 - 1) | st.integers(0, 3) | st.integers(2**256 - 3, 2**256 - 1) | st.just(2**255)


def integer(words):
    return sum(int(word) << 64 * place for place, word in enumerate(words))


def words_of(numbers):
    held = [[number >> 64 * place & (2**64 - 1) for place in range(4)] for number in numbers]
    return np.array(held, np.uint64).reshape(len(numbers), 4)


@FIXED
@given(st.lists(st.floats(-LARGEST, LARGEST), max_size=8))
def test_words_are_the_nearest_integers(values):
    for value, words in zip(values, to_words(np.array(values)), strict=True):
        top, bottom = abs(value).as_integer_ratio()
        whole, rest = divmod(top << 128, bottom)
        nearest = whole + (2 * rest > bottom or (2 * rest == bottom and whole % 2))
        assert integer(words) == (nearest if value > 0 else -nearest) % 2**256


@pytest.mark.parametrize("exponent", [-64, -20, 0, 40, 64, 90])
def test_no_bit_is_lost(exponent):
    values = RNG.normal(size=50) * 2.0**exponent
    np.testing.assert_array_equal(from_words(to_words(values)), values)


def test_ties_go_to_the_even_integer():
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5]) * 2.0**-128
    assert [integer(words) for words in to_words(halves)] == [0, 2, 2, 0, 2**256 - 2, 2**256 - 2]


@FIXED
@given(st.lists(NUMBERS, max_size=6))
def test_floats_are_the_nearest(numbers):
    signed = [number - 2**256 if number >> 255 else number for number in numbers]
    np.testing.assert_array_equal(from_words(words_of(numbers)), [number / 2**128 for number in signed])


@FIXED
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6))
def test_sums_and_signs_are_those_of_integers(pairs):
    left, right = words_of([a for a, _ in pairs]), words_of([b for _, b in pairs])
    assert [integer(words) for words in add(left, right)] == [(a + b) % 2**256 for a, b in pairs]
    assert [integer(words) for words in add(left, right, left)] == [(2 * a + b) % 2**256 for a, b in pairs]
    assert [integer(words) for words in subtract(left, right)] == [(a - b) % 2**256 for a, b in pairs]


def test_nothing_is_carried_into_the_next_number():
    most = words_of([2**256 - 1, 0, 2**256 - 1, 0])
    np.testing.assert_array_equal(add(most, most), words_of([2**256 - 2, 0, 2**256 - 2, 0]))
    np.testing.assert_array_equal(add(most, words_of([1, 0, 1, 0])), words_of([0, 0, 0, 0]))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_shapes_are_kept(shape):
    values = RNG.normal(size=shape)
    words = to_words(values)
    assert words.shape == (*shape, 4)
    assert words.dtype == np.uint64
    assert words.flags.writeable
    for same in (add(words, words), subtract(words, words)):
        assert same.shape == words.shape
    assert from_words(words).shape == shape
    np.testing.assert_array_equal(from_words(add(words, words)), 2 * values)
    np.testing.assert_array_equal(from_words(subtract(words, add(words, words))), -values)


def test_words_that_do_not_lie_side_by_side_are_read_as_they_are():
    words = RNG.integers(0, 2**64, (6, 8), dtype=np.uint64)[::2, ::2]
    np.testing.assert_array_equal(from_words(words), from_words(words.copy()))
    np.testing.assert_array_equal(add(words, words), add(words.copy(), words.copy()))


@pytest.mark.parametrize("value", [np.nextafter(LARGEST, np.inf), -np.nextafter(LARGEST, np.inf), np.inf, np.nan])
def test_what_could_wrap_round_is_refused(value):
    with pytest.raises(OverflowError, match=r"at most 2\^96"):
        to_words(np.array([0.0, value]))


def test_totals_of_the_largest_numbers_of_the_most_sites_do_not_wrap_round():
    assert LARGEST == 2.0**96  # as the docstring and the error say
    largest = np.array([LARGEST, -LARGEST])
    one = to_words(largest)
    np.testing.assert_array_equal(from_words(one), largest)
    assert integer(one[0]) * 1_000 < 2**255
    total = one
    for _ in range(999):
        total = add(total, one)
    np.testing.assert_array_equal(from_words(total), 1000 * largest)


def test_totals_are_exact_sums_rounded_once():
    """Parts of 1e24, 1e5 and 1e-15 that nearly cancel: no float is rounded on the way."""
    parts = np.concatenate([RNG.normal(size=20) * 10.0**size for size in (24, 5, -15)])
    parts = np.concatenate([parts, -parts[:40]])
    total = to_words(parts[:1])
    for part in parts[1:]:
        total = add(total, to_words(np.array([part])))
    assert from_words(total)[0] == math.fsum(parts)
