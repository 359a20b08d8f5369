"""What a feature of a client is, and the round that it is taken from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray

LEAST_SIZE = 1e-6  # of the median length: a client that sends nothing has a length, too
_NEARLY_ONE = 0.999  # cosines beyond it count as it


class Moves(NamedTuple):
    """A round of R runs with P clients present, as inner products of what clients changed, and a number for each."""

    who: npt.NDArray[np.int64]  # numbers of the clients present  (R, P)
    products: FloatArray  # <u_k, u_l>  (R, P, P)
    fields: Mapping[str, FloatArray]  # what features take from moves beside that, by the name of their field  (R, P)

    def of_runs(self, runs: slice | npt.NDArray[np.int64]) -> Moves:
        """Some runs alone."""
        fields = {name: values[runs] for name, values in self.fields.items()}
        return Moves(self.who[runs], self.products[runs], fields)


class Sent(NamedTuple):
    """A client's move where it is known in full."""

    move: FloatArray  # u_k  (d,)
    short: FloatArray  # its sketch, or the move itself where that is short  (L,)
    past: FloatArray  # the average of the units of earlier sketches; zeros without one  (L,)
    weight: float  # that the strategy gives it; NaN where it says none


class Beside(NamedTuple):
    """P clients beside those that count, as lengths and angles; what several features are taken from."""

    size: FloatArray  # |u_k|  (R, P)
    ordered: FloatArray  # cosines to the others that count, ascending, then infinities  (R, P, P)
    others: npt.NDArray[np.int64]  # how many these are  (R, P)


class Feature(ABC):
    """One number of a client in a round, compared with those of the others and of its own past.

    A feature with a `field` takes from each move what products of moves do not tell: `measured` makes it where the move
    is, it travels in logs and saved monitors under that name, and `values` reads it wherever the round is judged.
    """

    name: ClassVar[str]  # in tables
    field: ClassVar[str] = ""  # of the number that travels; none where products are enough
    rule: ClassVar[str] = ""  # what such a number must be, in words
    optional: ClassVar[bool] = False  # whether a round may come without the field

    @abstractmethod
    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """Of every client, not yet compared with the others, (R, P); NaN where it is not known."""

    def measured(self, sent: Sent) -> float:
        """The number that travels; NaN where there is none."""
        raise NotImplementedError

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these numbers can be right, for clients with moves of these lengths, (P,) each."""
        return np.asarray(np.isfinite(numbers))


def angle(cosine: FloatArray) -> FloatArray:
    """atanh, in which noise is about the same at every cosine; of at most .999."""
    return np.asarray(np.arctanh(np.clip(cosine, -_NEARLY_ONE, _NEARLY_ONE)))
