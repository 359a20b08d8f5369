"""The joint confidence set of several parameters."""

from dataclasses import dataclass

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray


@dataclass(frozen=True)
class Ellipsoid:
    """A joint confidence set: {theta: (theta - centre)' shape^-1 (theta - centre) <= radius2}.

    ``theta in ellipsoid`` says whether a parameter lies in it.
    """

    centre: FloatArray
    shape: FloatArray
    radius2: float

    def __contains__(self, theta: ArrayLike) -> bool:
        gap = _checks.real_array("theta", theta, shape=self.centre.shape) - self.centre
        return bool(gap @ np.linalg.solve(self.shape, gap) <= self.radius2)
