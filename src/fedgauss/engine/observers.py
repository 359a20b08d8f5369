"""Folds over the path: what a run remembers. Each is carried along in the loop, so memory does not grow with n.

Observers that keep a table over time are in `table_observers`, and the contract of all of them is in `loop`; all can be
imported from here.
"""

from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp

from fedgauss import _checks
from fedgauss._lanes import Sum, add_up, client_mean
from fedgauss._lazy import lazy
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.engine.table_observers import At, CusumPath, Path, Uploads, at, path, uploads
from fedgauss.problems.base import pytree

__all__ = [
    "At",
    "Average",
    "CusumPath",
    "Disagreement",
    "Last",
    "Norm",
    "Observer",
    "Path",
    "Step",
    "Sum",
    "SupPartialSum",
    "Uploads",
    "at",
    "path",
    "sup_partial_sum",
    "uploads",
]

Norm = Literal["euclidean", "max"]


@pytree
class Average(Observer):
    """Ybar_n = n^-1 sum_t Y_t, (d,)."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """No term yet."""
        return jnp.int32(0), Sum.zero(theta[:, 0])

    def update(self, state: Any, step: Step) -> Any:
        """Add Y_t."""
        count, total = state
        return count + 1, total.add(step.mean)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`average`."""
        count, total = state
        return {"average": total.result / count}


@pytree
class Last(Observer):
    """Y_n, (d,)."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Y_0."""
        return client_mean(theta)

    def update(self, state: Any, step: Step) -> Any:
        """Y_t."""
        return step.mean

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`last`."""
        return {"last": state}


@pytree
class SupPartialSum(Observer):
    """U_n = max_{t <= n} |sum_{s <= t} (Y_s - center)|."""

    keeps_time = False

    center: FloatArray  # (d,)
    norm: Norm = field(metadata={"static": True})

    def check(self, dim: int, n_steps: int) -> None:
        """The centre is a point of the parameter space."""
        _checks.real_array("center", self.center, shape=(dim,))

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """No term yet."""
        return Sum.zero(theta[:, 0]), jnp.zeros_like(theta[0, 0])

    def update(self, state: Any, step: Step) -> Any:
        """Add Y_t - center and compare."""
        total, largest = state
        total = total.add(step.mean - jnp.asarray(self.center)[:, None])
        return total, jnp.maximum(largest, _length(total.result, self.norm))

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`sup_partial_sum`."""
        return {"sup_partial_sum": state[1]}


@pytree
class Disagreement(Observer):
    """|Theta_n (I - J)|_F, how far clients are from their mean, after the last step."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """The disagreement of Theta_0."""
        return _spread(theta, client_mean(theta))

    def update(self, state: Any, step: Step) -> Any:
        """The disagreement of Theta_t."""
        return _spread(step.theta, step.mean)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`disagreement`."""
        return {"disagreement": state}


def sup_partial_sum(center: ArrayLike, norm: Norm = "euclidean") -> SupPartialSum:
    """Record U_n = max_{t <= n} |sum_{s <= t} (Y_s - center)|, as `runs.sup_partial_sum`.

    Parameters
    ----------
    center : array of shape (d,)
        The point that iterates are compared with, usually the optimum.
    norm : "euclidean" or "max"
        The norm of the partial sums.

    Returns
    -------
    SupPartialSum
        An observer for `simulate(..., observe=[...])`.
    """
    _checks.one_of("norm", norm, ["euclidean", "max"])
    return SupPartialSum(_checks.real_array("center", center, shape=(None,)), norm)


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(__name__, {}, __all__, renamed={"Cusum": "CusumPath"})


def _length(vector: JaxArray, norm: Norm) -> JaxArray:
    return jnp.abs(vector).max(axis=0) if norm == "max" else jnp.sqrt(add_up(vector**2))


def _spread(theta: JaxArray, mean: JaxArray) -> JaxArray:
    return jnp.sqrt(add_up(add_up((theta - mean[:, None]) ** 2)))
