"""How far a client moved."""

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients.features.base import Beside, Feature, Moves


class Length(Feature):
    """log |u_k|."""

    name = "length"

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        return np.asarray(np.log(beside.size))
