"""What a client claims to count for in the mean."""

import math

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.features.base import Beside, Feature, Moves, Sent

_LEAST = 1e-12  # of a weight


class Claim(Feature):
    """log of the weight that the strategy gives, such as the number of examples.

    It is judged alone: no move is unusual with it, and who claims more moves the mean further by that alone.
    """

    name = "claim"
    field = "weights"
    rule = "weights must be finite and not negative; one is not."
    optional = True
    centred = False  # clients differ by far more than claims vary: the median leaps when one client passes it
    # Half as much again is four of it and no alarm, twice as much is seven and one.
    tolerance = 0.1
    share = 0.1

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return np.asarray(np.log(np.maximum(moves.fields[self.field], _LEAST)))

    def measured(self, sent: Sent) -> FloatArray:
        """What travels, (P,)."""
        return sent.weights

    def said(self, change: float) -> str:
        """As a factor."""
        return f"it claims {math.exp(change):.2g} times the weight beside the others'"

    def allowed(self, numbers: FloatArray, size: FloatArray) -> BoolArray:
        """Which of these can be right, (P,)."""
        return np.asarray(np.isfinite(numbers) & (numbers >= 0.0))
