"""The paper's Phi: a set that every client's parameter is projected onto after each step (Appendix A.2)."""

from __future__ import annotations

import abc

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._lanes import add_up
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import pytree


class Projection(abc.ABC):
    """The nearest point of a closed convex set."""

    @abc.abstractmethod
    def project(self, theta: JaxArray) -> JaxArray:
        """Each client's nearest point, for theta (d, K, R)."""

    def check(self, dim: int) -> None:
        """Raise if the set does not lie in dim dimensions."""
        for array in vars(self).values():
            if np.ndim(array) == 1 and len(array) not in (1, dim):
                raise ValueError(f"a projection's bounds must be numbers or have {dim} entries; got {len(array)}.")


@pytree
class Everywhere(Projection):
    """All of R^d: no projection."""

    def project(self, theta: JaxArray) -> JaxArray:
        """Theta itself."""
        return theta


@pytree
class Ball(Projection):
    """{theta : |theta - center| <= radius}."""

    center: FloatArray  # (d,) or (1,)
    radius: float

    def project(self, theta: JaxArray) -> JaxArray:
        """Shrink towards the centre."""
        center = jnp.asarray(self.center)[:, None, None]
        offset = theta - center
        length = jnp.sqrt(add_up(offset**2))
        return center + offset * jnp.minimum(1.0, self.radius / jnp.maximum(length, 1e-30))


@pytree
class Box(Projection):
    """{theta : low <= theta <= high} in every coordinate."""

    low: FloatArray  # (d,) or (1,)
    high: FloatArray

    def project(self, theta: JaxArray) -> JaxArray:
        """Clip each coordinate."""
        low, high = (jnp.asarray(side)[:, None, None] for side in (self.low, self.high))
        return jnp.clip(theta, low, high)


def ball(radius: float, center: ArrayLike = 0.0) -> Ball:
    """Project onto the ball of this radius around `center`."""
    return Ball(np.atleast_1d(_checks.real_array("center", center)), _checks.real("radius", radius, above=0.0))


def box(low: ArrayLike, high: ArrayLike) -> Box:
    """Project onto a box; `low` and `high` are numbers or one bound a coordinate."""
    lower = np.atleast_1d(_checks.real_array("low", low))
    upper = np.atleast_1d(_checks.real_array("high", high))
    if np.any(lower > upper):
        raise ValueError(f"low must not exceed high; got low = {lower} and high = {upper}. Swap them?")
    return Box(lower, upper)
