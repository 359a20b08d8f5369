"""How evenly a move is spread over the parameters."""

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import LEAST_SIZE, Beside, Feature, Moves, Sent

_EVENEST = 1e12  # the square root of more parameters than any model has


class Evenness(Feature):
    """log (|u_k|_1 / |u_k|_2): large where a move is spread evenly, small where a few parameters have it all."""

    name = "evenness"
    field = "evenness"  # |u_k|_1 / |u_k|_2; 1 for no move at all
    rule = "evenness must be finite and not negative; one is not."

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return np.asarray(np.log(np.maximum(moves.fields[self.field], LEAST_SIZE)))

    def measured(self, sent: Sent) -> FloatArray:
        """What travels, (P,)."""
        return np.divide(sent.total, sent.length, out=np.ones_like(sent.total), where=sent.length > 0)

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these can be right, (P,)."""
        return np.asarray((numbers >= 0.0) & (numbers <= _EVENEST))
