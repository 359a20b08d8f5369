"""The angle to a typical other client."""

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients.features.base import Angle, Beside, Moves, angle


class Typical(Angle):
    """atanh median_l cos(u_k, u_l)."""

    name = "direction"

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        runs, clients = np.ogrid[: len(beside.others), : beside.others.shape[1]]
        low, high = (beside.others - 1) // 2, beside.others // 2
        return angle(0.5 * (beside.ordered[runs, clients, low] + beside.ordered[runs, clients, high]))
