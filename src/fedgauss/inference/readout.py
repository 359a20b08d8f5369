"""How a parameter is reported: on another scale, with an intercept at the true origin, by any affine map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray


class Readout(NamedTuple):
    """matrix @ theta + offset."""

    matrix: FloatArray  # (d, d)
    offset: FloatArray  # (d,)

    def of(self, theta: FloatArray) -> FloatArray:
        """The reported parameter."""
        return self.matrix @ theta + self.offset

    def cov(self, cov: FloatArray) -> FloatArray:
        """Its covariance."""
        return self.matrix @ cov @ self.matrix.T


def as_it_is(dim: int) -> Readout:
    """theta itself."""
    return Readout(np.eye(dim), np.zeros(dim))
