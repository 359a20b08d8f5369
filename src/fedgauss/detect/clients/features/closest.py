"""The angle to the closest other client."""

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients.features.base import Angle, Beside, Moves, angle


class Closest(Angle):
    """atanh max_l cos(u_k, u_l): copies have a neighbour that honest clients lack."""

    name = "closest direction"

    def values(self, moves: Moves, beside: Beside) -> FloatArray:
        """The equation above, (R, P)."""
        runs, clients = np.ogrid[: len(beside.others), : beside.others.shape[1]]
        return angle(beside.ordered[runs, clients, beside.others - 1])
