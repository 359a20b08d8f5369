"""The numbers of an answer: arrays in one row, and each number as an integer modulo 2^256.

Arrays come by name in a fixed order, and of symmetric matrices half travels. To integers masks can be added, and taken
off again without a rounding error.

x is round(x 2^128) modulo 2^256, in four 64-bit words, the lowest first. One word would not do. The sums of one reply
differ by many orders of magnitude: in raw units a sum of squares may be 1e24 (incomes) or 1e-12 (metres of a cell), a
score is near 0 where its parts are 1e5, and a common scale for all of them would itself tell something about a site.
With 128 bits on each side of the point no scale is needed: a sum of K numbers is exact to K 2^-129, 1.5e-39 K, and is
rounded to a float once. A number of at most 2^96 from each of at most 1,000 sites leaves the sum below 2^106, far from
2^127, where it would wrap round.

Words are carried into the next. Were each word added up by itself, the coordinator would see the sum of the lower
words beside that of the upper ones, which is more than the total.
"""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray, IntArray

Shapes = Mapping[str, tuple[int, ...]]
Words = npt.NDArray[np.uint64]

WORDS = 4  # to a number
LARGEST = 2.0**96
_FRACTION = 128  # bits after the point
_BYTES = 8 * WORDS


def size(shapes: Shapes) -> int:
    """How many numbers there are."""
    return sum(len(_layout(shape)[0]) for shape in shapes.values())


def pack(arrays: Mapping[str, FloatArray], shapes: Shapes) -> FloatArray:
    """One row of all numbers; of a square matrix, which is symmetric, the upper triangle."""
    if arrays.keys() != shapes.keys() or any(np.shape(arrays[name]) != shape for name, shape in shapes.items()):
        raise ValueError(f"an answer must have the arrays {shapes}; it has others.")
    rows = [np.take(arrays[name], _layout(shape)[0]) for name, shape in shapes.items()]
    return np.concatenate([np.empty(0), *rows])


def unpack(row: FloatArray, shapes: Shapes) -> dict[str, FloatArray]:
    """The arrays that `pack` made a row of."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        numbers, places = _layout(shape)
        arrays[name] = row[start : start + len(numbers)].take(places).reshape(shape)
        start += len(numbers)
    return arrays


@lru_cache
def _layout(shape: tuple[int, ...]) -> tuple[IntArray, IntArray]:
    """Which numbers of an array travel, and where among them each of its numbers is."""
    numbers = places = np.arange(math.prod(shape))
    if len(shape) == 2 and shape[0] == shape[1]:
        rows, columns = np.triu_indices(shape[0])
        numbers, places = rows * shape[0] + columns, np.empty(shape, dtype=int)
        places[rows, columns] = places[columns, rows] = np.arange(len(numbers))
    return numbers, places


def to_words(values: FloatArray) -> Words:
    """round(x 2^128) modulo 2^256 for each number, in a last axis of four words; ties go to the even integer."""
    if not (np.abs(values) <= LARGEST).all():  # nan is not
        raise OverflowError(f"numbers must be at most 2^96 ({LARGEST:.1e}) in size to be masked.")
    whole = np.rint(np.ldexp(values, _FRACTION)).ravel().tolist()
    return _words(b"".join(int(value).to_bytes(_BYTES, "little", signed=True) for value in whole), np.shape(values))


def from_words(words: Words) -> FloatArray:
    """The floats nearest to these numbers."""
    text = _text(words)
    parts = (text[i : i + _BYTES] for i in range(0, len(text), _BYTES))
    floats = [float(int.from_bytes(part, "little", signed=True)) for part in parts]  # Python rounds correctly
    return np.ldexp(np.array(floats, dtype=float), -_FRACTION).reshape(words.shape[:-1])


def add(*terms: Words) -> Words:
    """The sum modulo 2^256.

    All numbers are added at once, as long integers. The top bit of each is put aside before and added without its
    carry afterwards, so that nothing is carried into the next number.
    """
    tops, lows = _tops(terms[0].size // WORDS)
    total, *more = (int.from_bytes(_text(term), "little") for term in terms)
    for number in more:
        total = ((total & lows) + (number & lows)) ^ ((total ^ number) & tops)
    return _words(total.to_bytes(8 * terms[0].size, "little"), terms[0].shape[:-1])


def subtract(left: Words, right: Words) -> Words:
    """The difference modulo 2^256. A top bit that is put aside is lent before."""
    tops, lows = _tops(left.size // WORDS)
    ours, theirs = int.from_bytes(_text(left), "little"), int.from_bytes(_text(right), "little")
    total = ((ours | tops) - (theirs & lows)) ^ (~(ours ^ theirs) & tops)
    return _words(total.to_bytes(8 * left.size, "little"), left.shape[:-1])


@lru_cache
def _tops(count: int) -> tuple[int, int]:
    """The top bit of each of so many numbers, and all others."""
    tops = int.from_bytes((bytes(_BYTES - 1) + b"\x80") * count, "little")
    return tops, tops ^ ((1 << (8 * _BYTES * count)) - 1)


def _text(words: Words) -> bytes:
    return words.astype("<u8", copy=False).tobytes()


def _words(text: bytes, shape: tuple[int, ...]) -> Words:
    return np.frombuffer(text, "<u8").astype(np.uint64).reshape(*shape, WORDS)
