"""Numbers as integers modulo 2^256, so that masks can be added to them and taken off again without a rounding error.

x is round(x 2^128) modulo 2^256, in four 64-bit words, the lowest first. One word would not do. The sums of one reply
differ by many orders of magnitude: in raw units a sum of squares may be 1e24 (incomes) or 1e-12 (metres of a cell), a
score is near 0 where its parts are 1e5, and a common scale for all of them would itself tell something about a site.
With 128 bits on each side of the point no scale is needed: a sum of K numbers is exact to K 2^-129, 1.5e-39 K, and is
rounded to a float once. A number of at most 2^96 from each of at most 2^16 sites leaves the sum below 2^112, far from
2^127, where it would wrap round.

Words are carried into the next. Were each word added up by itself, the coordinator would see the sum of the lower
words beside that of the upper ones, which is more than the total.
"""

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray

Words = npt.NDArray[np.uint64]

WORDS = 4  # to a number
LARGEST = 2.0**96
MOST_SITES = 2**16
_FRACTION = 128  # bits after the point


def to_words(values: FloatArray) -> Words:
    """round(x 2^128) modulo 2^256 for each number, in a last axis of four words; ties go to the even integer."""
    if not np.all(np.abs(values) <= LARGEST):  # nan is not
        raise OverflowError(f"numbers must be at most 2^96 ({LARGEST:.1e}) in size to be masked.")
    rest, words = np.abs(values), np.empty((*values.shape, WORDS), np.uint64)
    for place in reversed(range(WORDS)):
        shift = _FRACTION - 64 * place
        # Each difference is exact: it takes the leading bits off a float.
        word = np.floor(np.ldexp(rest, shift)) if place else np.rint(np.ldexp(rest, shift))
        words[..., place], rest = word.astype(np.uint64), rest - np.ldexp(word, -shift)
    return np.where(np.less(values, 0.0)[..., None], negate(words), words)


def from_words(words: Words) -> FloatArray:
    """The floats nearest to these numbers."""
    flat = np.ascontiguousarray(words, dtype="<u8").reshape(-1, WORDS)
    size = 8 * WORDS
    text = flat.tobytes()
    parts = (text[i : i + size] for i in range(0, len(text), size))
    # Python rounds the quotient of two integers correctly.
    floats = [int.from_bytes(part, "little", signed=True) / 2**_FRACTION for part in parts]
    return np.array(floats, dtype=float).reshape(words.shape[:-1])


def add(left: Words, right: Words) -> Words:
    """The sum modulo 2^256."""
    ours, theirs = left.reshape(-1, WORDS), right.reshape(-1, WORDS)  # NumPy warns where a single number wraps round
    total, carry = np.empty_like(ours), np.zeros(len(ours), np.uint64)
    for place in range(WORDS):
        part = ours[:, place] + theirs[:, place]
        total[:, place] = part + carry
        # A sum that wrapped round is less than what it was made of.
        carry = ((part < ours[:, place]) | (total[:, place] < part)).astype(np.uint64)
    return total.reshape(left.shape)


def negate(words: Words) -> Words:
    """Minus each number, modulo 2^256: all bits the other way round, and one more."""
    one = np.zeros_like(words)
    one[..., 0] = 1
    return add(~words, one)
