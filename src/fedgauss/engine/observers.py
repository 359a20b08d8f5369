"""Folds over the path: what a run remembers. Each is carried along in the loop, so memory does not grow with n.

An observer has three parts: `init` makes its state from Theta_0, `update` takes one step into account, and
`value` reads named results off the state. Replicates are the last axis of everything.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from fedgauss import _checks
from fedgauss._lanes import add_up, client_mean
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import Problem, pytree

Norm = Literal["euclidean", "max"]


class Step(NamedTuple):
    """What happened at step t: Theta_{t-1}, the data drawn, Theta_t, and Y_t, the mean of Theta_t over clients."""

    t: JaxArray
    problem: Problem
    before: JaxArray  # (d, K, R)
    data: Any
    theta: JaxArray  # (d, K, R)
    mean: JaxArray  # (d, R)


class Observer(abc.ABC):
    """The contract of a fold.

    `keeps_time` says whether the state has a place for each step. Where it has none, runs of other lengths share the
    program that makes it, and `init` is told that n_steps is 0.
    """

    keeps_time: bool = True

    @abc.abstractmethod
    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """The state before the first step."""

    @abc.abstractmethod
    def update(self, state: Any, step: Step) -> Any:
        """The state after one more step."""

    @abc.abstractmethod
    def value(self, state: Any) -> dict[str, JaxArray]:
        """Results by name, replicates last."""

    def check(self, dim: int, n_steps: int) -> None:  # noqa: B027 - most observers suit every run
        """Raise if this observer does not fit a run of n_steps in dim dimensions."""


class Sum(NamedTuple):
    """A running sum with Neumaier's compensation, so that a million float32 terms lose nothing that matters."""

    total: JaxArray
    lost: JaxArray

    @classmethod
    def zero(cls, like: JaxArray) -> Sum:
        """The empty sum."""
        return cls(jnp.zeros_like(like), jnp.zeros_like(like))

    def add(self, term: JaxArray) -> Sum:
        """The sum with one more term."""
        total = self.total + term
        larger = jnp.abs(self.total) >= jnp.abs(term)
        lost = jnp.where(larger, (self.total - total) + term, (term - total) + self.total)
        return Sum(total, self.lost + lost)

    @property
    def result(self) -> JaxArray:
        """The compensated sum."""
        return self.total + self.lost


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
class Cusum(Observer):
    """R_t = max_{s <= t} |S_s - (s/t) S_t| for every t, S_t = sum_{s <= t} Y_s, and the s that attains it.

    R_t looks back at every earlier sum, so this observer alone keeps n d numbers a replicate and costs n^2 d.
    """

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty tables of sums, of R_t and of its argmax. Sums are of Y_t - Y_0: R_t does not change, rounding does."""
        dim, _, n_replicates = theta.shape
        start = client_mean(theta)
        sums = jnp.zeros((n_steps, dim, n_replicates), theta.dtype)
        largest = jnp.zeros((n_steps, n_replicates), theta.dtype)
        return start, Sum.zero(start), sums, largest, jnp.zeros(largest.shape, jnp.int32)

    def update(self, state: Any, step: Step) -> Any:
        """Compare S_t with every S_s."""
        start, total, sums, largest, where = state
        total = total.add(step.mean - start)
        sums = lax.dynamic_update_index_in_dim(sums, total.result, step.t - 1, 0)
        s = lax.broadcasted_iota(jnp.int32, (sums.shape[0], 1), 0) + 1
        share = s.astype(sums.dtype)[:, :, None] / step.t.astype(sums.dtype)
        gaps = add_up((sums - share * total.result) ** 2, axis=1)
        gaps = jnp.where(s <= step.t, gaps, -1.0)
        largest = lax.dynamic_update_index_in_dim(largest, jnp.sqrt(gaps.max(axis=0)), step.t - 1, 0)
        argmax = gaps.argmax(axis=0).astype(jnp.int32) + 1
        return start, total, sums, largest, lax.dynamic_update_index_in_dim(where, argmax, step.t - 1, 0)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`cusum` (n,) and `cusum_argmax` (n,)."""
        *_, largest, where = state
        return {"cusum": largest, "cusum_argmax": where}


@pytree
class Disagreement(Observer):
    """|Theta_n (I - J)|_F, how far clients are from their mean, after the last step."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """That of Theta_0."""
        return _spread(theta, client_mean(theta))

    def update(self, state: Any, step: Step) -> Any:
        """That of Theta_t."""
        return _spread(step.theta, step.mean)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`disagreement`."""
        return {"disagreement": state}


@pytree
class At(Observer):
    """Another observer's values as they stood after each of the listed steps, along a new first axis."""

    observer: Observer
    steps: npt.NDArray[np.int32]  # increasing
    rows: npt.NDArray[np.int32]  # which of them stands in each row of the result
    suffix: str = field(metadata={"static": True})

    @property
    def keeps_time(self) -> bool:  # type: ignore[override]
        """As the other observer does."""
        return self.observer.keeps_time

    def check(self, dim: int, n_steps: int) -> None:
        """Every listed step happens."""
        if self.steps[-1] > n_steps:
            raise ValueError(f"steps must not exceed n_steps = {n_steps}; got {self.steps[-1]}. Run longer?")
        self.observer.check(dim, n_steps)

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """An empty table with one row a listed step."""
        inner = self.observer.init(theta, n_steps)
        shapes = jax.eval_shape(self.observer.value, inner)
        rows = self.steps.shape[0]
        return inner, jax.tree.map(lambda s: jnp.zeros((rows, *s.shape), s.dtype), shapes)

    def update(self, state: Any, step: Step) -> Any:
        """Fill this step's row if it is listed."""
        inner, table = state
        inner = self.observer.update(inner, step)
        listed = jnp.asarray(self.steps) == step.t

        def fill() -> Any:
            row = listed.argmax()
            value = self.observer.value(inner)
            return jax.tree.map(lambda rows, new: lax.dynamic_update_index_in_dim(rows, new, row, 0), table, value)

        return inner, lax.cond(listed.any(), fill, lambda: table)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """The inner observer's names with a suffix."""
        _, table = state
        order = jnp.asarray(self.rows)
        return {name + self.suffix: rows[order] for name, rows in table.items()}


@pytree
class Path(Observer):
    """Y_t after every m-th step: (n // m, d)."""

    every: int = field(metadata={"static": True})

    def check(self, dim: int, n_steps: int) -> None:
        """At least one step is kept."""
        if self.every > n_steps:
            raise ValueError(f"every must not exceed n_steps = {n_steps}, or nothing is kept; got {self.every}.")

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """An empty table."""
        dim, _, n_replicates = theta.shape
        return jnp.zeros((n_steps // self.every, dim, n_replicates), theta.dtype)

    def update(self, state: Any, step: Step) -> Any:
        """Fill a row at every m-th step."""

        def fill() -> JaxArray:
            return lax.dynamic_update_index_in_dim(state, step.mean, step.t // self.every - 1, 0)

        return lax.cond(step.t % self.every == 0, fill, lambda: state)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`path`."""
        return {"path": state}


def sup_partial_sum(center: ArrayLike, norm: Norm = "euclidean") -> SupPartialSum:
    """U_n around `center` (d,), in the Euclidean or the max norm."""
    _checks.one_of("norm", norm, ["euclidean", "max"])
    return SupPartialSum(_checks.real_array("center", center, shape=(None,)), norm)


def at(steps: Sequence[int], observer: Observer, suffix: str = "_at") -> At:
    """The values of `observer` after each listed step, in the order listed.

    Steps do not depend on n, so one run to the largest n gives every smaller n too.
    """
    if not isinstance(observer, Observer):
        raise ValueError(f"observer must be one of fedgauss.observers, such as observers.Average(); got {observer!r}.")
    listed, rows = np.unique([_checks.step_number("steps", step) for step in steps], return_inverse=True)
    if not listed.size:
        raise ValueError("steps must list at least one step; got none. Use range(100, 501, 100)?")
    return At(observer, listed.astype(np.int32), rows.astype(np.int32), suffix)


def path(every: int = 1) -> Path:
    """Y_t after every `every` steps."""
    return Path(_checks.whole("every", every))


def _length(vector: JaxArray, norm: Norm) -> JaxArray:
    return jnp.abs(vector).max(axis=0) if norm == "max" else jnp.sqrt(add_up(vector**2))


def _spread(theta: JaxArray, mean: JaxArray) -> JaxArray:
    return jnp.sqrt(add_up(add_up((theta - mean[:, None]) ** 2)))
