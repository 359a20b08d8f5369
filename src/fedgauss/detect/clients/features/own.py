"""The angle to the client's own past."""

import math

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import Beside, Feature, Moves, Sent, angle

_ROUNDING = 1e-3  # of float32 sums of thousands
_TINY = 1e-37  # where float32 products vanish


class Own(Feature):
    """atanh cos(u_k, e_k), with e_k the unit vector of the client's average direction."""

    name = "own direction"
    field = "along_own"  # <u_k, e_k>
    rule = "along_own must be parts of the clients' moves; one is longer than the move."

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return angle(moves.fields[self.field] / beside.size)

    def measured(self, sent: Sent) -> float:
        """What travels."""
        length = float(np.linalg.norm(sent.past))
        return float(np.einsum("j,j->", sent.short, sent.past)) / length if length > 0 else math.nan

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these can be right, (P,)."""
        return np.asarray(np.isnan(numbers) | (np.abs(numbers) <= (1 + _ROUNDING) * size + math.sqrt(_TINY)))
