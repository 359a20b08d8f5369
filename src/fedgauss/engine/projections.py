"""The paper's Phi: a set that every client's parameter is projected onto after each step (Appendix A.2)."""

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

    def check(self, dim: int) -> None:  # noqa: B027 - a set of your own may suit every dimension
        """Raise if the set does not lie in dim dimensions."""


@pytree
class Ball(Projection):
    """{theta : |theta - center| <= radius}."""

    center: FloatArray  # (d,) or (1,)
    radius: float

    def check(self, dim: int) -> None:
        """The centre is a number or a point."""
        _check_length("center", self.center, dim)

    def project(self, theta: JaxArray) -> JaxArray:
        """Shrink towards the centre."""
        center = jnp.asarray(self.center)[:, None, None]
        offset = theta - center
        # Scaled by the largest coordinate, so that no square leaves the range of float32.
        largest = jnp.abs(offset).max(axis=0)
        unit = offset / jnp.where(largest > 0, largest, 1.0)
        length = jnp.sqrt(add_up(unit**2))  # at least 1 where the offset is not zero
        reach = self.radius / jnp.maximum(length, 1.0)
        return jnp.where(largest <= reach, theta, center + unit * reach)


@pytree
class Box(Projection):
    """{theta : low <= theta <= high} in every coordinate."""

    low: FloatArray  # (d,) or (1,)
    high: FloatArray

    def check(self, dim: int) -> None:
        """The bounds are numbers or points."""
        _check_length("low", self.low, dim)
        _check_length("high", self.high, dim)

    def project(self, theta: JaxArray) -> JaxArray:
        """Clip each coordinate."""
        low, high = (jnp.asarray(side)[:, None, None] for side in (self.low, self.high))
        return jnp.clip(theta, low, high)


def ball(radius: float, center: ArrayLike = 0.0) -> Ball:
    """Project onto the ball |theta - center| <= radius.

    Parameters
    ----------
    radius : float
        Positive.
    center : float or array of shape (d,)
        The centre of the ball.

    Returns
    -------
    Ball
        A projection for `simulate(..., projection=...)`.
    """
    return Ball(np.atleast_1d(_checks.real_array("center", center)), _checks.real("radius", radius, above=0.0))


def box(low: ArrayLike, high: ArrayLike) -> Box:
    """Project onto a box, low <= theta <= high.

    Parameters
    ----------
    low, high : float or array of shape (d,)
        One bound for all coordinates, or one for each.

    Returns
    -------
    Box
        A projection for `simulate(..., projection=...)`.
    """
    lower = np.atleast_1d(_checks.real_array("low", low))
    upper = np.atleast_1d(_checks.real_array("high", high))
    if lower.ndim > 1 or upper.ndim > 1 or (lower.size != upper.size and 1 not in (lower.size, upper.size)):
        raise ValueError(f"low and high must be numbers or vectors of one length; got {lower.shape} and {upper.shape}.")
    if np.any(lower > upper):
        raise ValueError(f"low must not exceed high; got low = {lower} and high = {upper}. Swap them?")
    return Box(lower, upper)


def _check_length(name: str, bound: FloatArray, dim: int) -> None:
    if np.shape(bound) not in ((1,), (dim,)):
        raise ValueError(f"{name} of a projection must be a number or have {dim} entries; got shape {np.shape(bound)}.")
