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
    return sum(_length(shape) for shape in shapes.values())


def pack(arrays: Mapping[str, FloatArray], shapes: Shapes) -> FloatArray:
    """One row of all numbers; of a square matrix, which is symmetric, the upper triangle."""
    if arrays.keys() != shapes.keys() or any(np.shape(arrays[name]) != shape for name, shape in shapes.items()):
        raise ValueError(f"an answer must have the arrays {shapes}; it has others.")
    parts = [np.asarray(arrays[name], dtype=float) for name in shapes]
    rows = [part[_upper(len(part))] if _square(part.shape) else part.ravel() for part in parts]
    return np.concatenate([np.empty(0), *rows])


def unpack(row: FloatArray, shapes: Shapes) -> dict[str, FloatArray]:
    """The arrays that `pack` made a row of."""
    arrays, start = {}, 0
    for name, shape in shapes.items():
        part = row[start : start + _length(shape)]
        start += len(part)
        if _square(shape):
            matrix = np.empty(shape)
            matrix[_upper(shape[0])] = matrix.T[_upper(shape[0])] = part
            part = matrix
        arrays[name] = part.reshape(shape)
    return arrays


def _square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[0] == shape[1]


@lru_cache
def _upper(dim: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(dim)


def _length(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[0] + 1) // 2 if _square(shape) else math.prod(shape)


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


def add(left: Words, right: Words) -> Words:
    """The sum modulo 2^256.

    All numbers are added at once, as two long integers. The top bit of each is put aside before and added without its
    carry afterwards, so that nothing is carried into the next number.
    """
    ours, theirs = int.from_bytes(_text(left), "little"), int.from_bytes(_text(right), "little")
    tops = _tops(left.size // WORDS)
    our_tops, their_tops = ours & tops, theirs & tops
    total = ((ours ^ our_tops) + (theirs ^ their_tops)) ^ our_tops ^ their_tops
    return _words(total.to_bytes(8 * left.size, "little"), left.shape[:-1])


def negate(words: Words) -> Words:
    """Minus each number, modulo 2^256: all bits the other way round, and one more."""
    one = np.zeros_like(words)
    one[..., 0] = 1
    return add(~words, one)


@lru_cache
def _tops(count: int) -> int:
    """The top bit of each of so many numbers."""
    return int.from_bytes((bytes(_BYTES - 1) + b"\x80") * count, "little")


def _text(words: Words) -> bytes:
    return words.astype("<u8", copy=False).tobytes()


def _words(text: bytes, shape: tuple[int, ...]) -> Words:
    return np.frombuffer(text, "<u8").astype(np.uint64).reshape(*shape, WORDS)
