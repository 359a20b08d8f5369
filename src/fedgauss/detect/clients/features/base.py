"""What a feature of a client is, and the round that it is taken from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.sketch import Single

Bounds = npt.NDArray[np.int8]

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
    """The moves of P clients where they are known in full."""

    moves: Sequence[FloatArray]  # u_k  (d,) each
    short: Single  # their sketches, as long as they are, or the moves themselves where these are short  (P, L)
    past: Single  # averages of the units of earlier sketches; zeros without one  (P, L)
    length: FloatArray  # |u_k|  (P,)
    total: FloatArray  # |u_k|_1  (P,)
    weights: FloatArray  # that the strategy gives them; NaN where it says none  (P,)
    journey: Single  # the sum of the mean sketches of earlier rounds  (L,); empty where it is not kept
    course: Single  # the average one of the last rounds


class Beside(NamedTuple):
    """P clients beside those that count, as lengths and angles; what several features are taken from."""

    size: FloatArray  # |u_k|  (R, P)
    ordered: FloatArray  # cosines to the others that count, ascending, then infinities  (R, P, P)
    others: npt.NDArray[np.int64]  # how many these are  (R, P)


class Known(IntEnum):
    """What a value says of the number that it stands for."""

    EXACTLY = 0
    AT_LEAST = 1  # the number is not below it
    AT_MOST = 2  # nor above it
    UNKNOWN = 3
    BEYOND = 4  # exactly, and above what bounds the others' numbers: compared with what was sent, bounded or not


class Feature(ABC):
    """One number of a client in a round, compared with those of the others and of its own past.

    A feature with a `field` takes from each move what products of moves do not tell: `measured` makes it where the move
    is, it travels in logs and saved monitors under that name, and `values` reads it wherever the round is judged.

    Its law is Gaussian, with two additions. A client's mean may wander by `tolerance`, a deviation that no averaging
    makes smaller: so a feature without noise has a law, too. And values may be bounds, which `known` tells: a change is
    then judged by the least surprising number within them.
    """

    name: ClassVar[str]  # in tables
    field: ClassVar[str] = ""  # of the number that travels; none where products are enough
    rule: ClassVar[str] = ""  # what such a number must be, in words
    optional: ClassVar[bool] = False  # whether a round may come without the field
    centred: ClassVar[bool] = True  # whether values are taken less the clients' median, which moves as they all do
    # One and a half per cent of a length is no reason to alarm. Honest runs without gradient noise move by that: of 10,
    # 5 alarm without it and none with it. Twice as much costs flips under signs, whose angles have little noise, three
    # in ten. Measured on benchmarks/watch_settings.py, stage 1; benchmarks/watch_calibration.py does it for others.
    tolerance: ClassVar[float] = 0.015
    share: ClassVar[float] = 0.0  # of alpha, of a feature that is judged alone; 0: jointly with others

    @abstractmethod
    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """Of every client, not yet compared with the others, (R, P); NaN where it is not known."""

    def known(self, moves: Moves, beside: Beside, kept: BoolArray) -> Bounds:
        """What the values say, with those that count in `kept`, (R, P)."""
        return np.zeros(moves.who.shape, dtype=np.int8)

    def tolerated(self, centre: FloatArray) -> FloatArray:
        """The tolerance where the clients' median is `centre`, (R,)."""
        return np.full(centre.shape, self.tolerance)

    def measured(self, sent: Sent) -> FloatArray:
        """The numbers that travel, (P,); NaN where there is none."""
        raise NotImplementedError

    def scaled(self, numbers: FloatArray, scales: FloatArray, before: FloatArray) -> FloatArray:
        """What would travel in place of these, had moves been so many times as long; below 0, opposite; (R, P) each.

        `before` is the number of rounds in which they already were.
        """
        return numbers

    def said(self, change: float) -> str:
        """What it means that a client's value moved by so much, in words."""
        return f"its {self.name} {'rose' if change > 0 else 'fell'} by {abs(change):.2g}"

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these numbers can be right, for clients with moves of these lengths, (P,) each."""
        return np.asarray(np.isfinite(numbers))


class Angle(Feature):
    """A feature that is atanh of a cosine.

    Its tolerance is of the angle itself, in parts of a move's length: at an angle a it is 1 / sin(a) times as much in
    atanh, since d atanh(cos a) = da / sin(a). Moves that are nearly alike have angles that are small, and vary by much
    in atanh where they turn by little.
    """

    def tolerated(self, centre: FloatArray) -> FloatArray:
        """The tolerance where the clients' median is `centre`, (R,)."""
        return np.asarray(self.tolerance * np.cosh(np.nan_to_num(centre)))


def angle(cosine: FloatArray) -> FloatArray:
    """atanh, in which noise is about the same at every cosine; of at most .999."""
    return np.asarray(np.arctanh(np.clip(cosine, -_NEARLY_ONE, _NEARLY_ONE)))
