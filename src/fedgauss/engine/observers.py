"""Folds over the path: what a run remembers. Each is carried along in the loop, so memory does not grow with n.

Those that keep a table over time come last: their memory grows with n, or with the number of steps asked for. The
contract of all of them is in `loop`.
"""

import abc
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss import _checks
from fedgauss._lanes import Sum, add_up, client_mean
from fedgauss._types import ArrayLike, FloatArray, Int32Array, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.problems.base import claims, pytree

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
    mean_only = True

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


class Latest(Observer):
    """What can be read off Theta_t alone, after the latest step."""

    keeps_time = False

    @abc.abstractmethod
    def seen(self, theta: JaxArray, mean: JaxArray) -> dict[str, JaxArray]:
        """Results by name, from Theta_t (d, K, R) and its mean Y_t (d, R)."""

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """At the start."""
        return self.seen(theta, client_mean(theta))

    def update(self, state: Any, step: Step) -> Any:
        """After one more step."""
        return self.seen(step.theta, step.mean)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """What was seen last."""
        return state


@pytree
class Last(Latest):
    """Y_n, (d,)."""

    mean_only = True

    def seen(self, theta: JaxArray, mean: JaxArray) -> dict[str, JaxArray]:
        """`last`."""
        return {"last": mean}


@pytree
class SupPartialSum(Observer):
    """U_n = max_{t <= n} |sum_{s <= t} (Y_s - center)|."""

    keeps_time = False
    mean_only = True

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
        sums = total.result
        size = jnp.abs(sums).max(axis=0) if self.norm == "max" else jnp.sqrt(add_up(sums**2))
        return total, jnp.maximum(largest, size)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`sup_partial_sum`."""
        return {"sup_partial_sum": state[1]}


@pytree
class Disagreement(Latest):
    """|Theta_n (I - J)|_F, how far clients are from their mean, after the last step."""

    def seen(self, theta: JaxArray, mean: JaxArray) -> dict[str, JaxArray]:
        """`disagreement`."""
        return {"disagreement": jnp.sqrt(add_up(add_up((theta - mean[:, None]) ** 2)))}


@pytree
class CusumPath(Observer):
    """R_t = max_{s <= t} |S_s - (s/t) S_t| for every t, S_t = sum_{s <= t} Y_s, and the s that attains it.

    R_t looks back at every earlier sum, so this observer alone keeps n d numbers per replicate and costs n^2 d.
    """

    mean_only = True

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
class At(Observer):
    """Another observer's values as they stood after each of the listed steps, along a new first axis."""

    observer: Observer
    steps: Int32Array  # increasing
    rows: Int32Array  # the index of the step in each row of the result
    suffix: str = field(metadata={"static": True})

    @property
    def keeps_time(self) -> bool:  # type: ignore[override]
        """As for the other observer."""
        return self.observer.keeps_time

    @property
    def mean_only(self) -> bool:  # type: ignore[override]
        """As for the other observer."""
        return claims(self.observer, "mean_only")

    def check(self, dim: int, n_steps: int) -> None:
        """Every listed step happens."""
        if self.steps[-1] > n_steps:
            raise ValueError(f"steps must not exceed n_steps = {n_steps}; got {self.steps[-1]}. Run longer?")
        self.observer.check(dim, n_steps)

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """An empty table with a row for each listed step."""
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
class Periodic(Observer):
    """An observer that takes account of every m-th step alone, such as by a row of a table."""

    every: int = field(metadata={"static": True})

    def check(self, dim: int, n_steps: int) -> None:
        """At least one step is kept."""
        if self.every > n_steps:
            raise ValueError(f"every must not exceed n_steps = {n_steps}, or nothing is kept; got {self.every}.")

    def update(self, state: Any, step: Step) -> Any:
        """Only at every m-th step."""
        return lax.cond(step.t % self.every == 0, lambda: self.fill(state, step), lambda: state)

    @abc.abstractmethod
    def fill(self, state: Any, step: Step) -> Any:
        """The state after such a step."""


@pytree
class Path(Periodic):
    """Y_t after every m-th step: (n // m, d)."""

    mean_only = True

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """An empty table."""
        dim, _, n_replicates = theta.shape
        return jnp.zeros((n_steps // self.every, dim, n_replicates), theta.dtype)

    def fill(self, state: Any, step: Step) -> Any:
        """One more row."""
        return lax.dynamic_update_index_in_dim(state, step.mean, step.t // self.every - 1, 0)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`path`."""
        return {"path": state}


@pytree
class Uploads(Periodic):
    """What each client sent at every m-th step, before mixing, and where it had begun: (n // m, K, d) each.

        began_j = Theta_{(j-1)m},    sent_j = Theta_{jm-1} - eta_{jm} G_{jm},    j = 1, ..., n // m

    With m = tau, began_{j+1} = Phi(sent_j C): a client's upload, mixed and projected, is where the next block begins.
    """

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """The first block begins at Theta_0; the tables are empty."""
        table = jnp.zeros((n_steps // self.every, *theta.shape), theta.dtype)
        return theta, table, table

    def fill(self, state: Any, step: Step) -> Any:
        """One more row of both tables."""
        start, began, sent = state
        row = step.t // self.every - 1
        began = lax.dynamic_update_index_in_dim(began, start, row, 0)
        return step.theta, began, lax.dynamic_update_index_in_dim(sent, step.moved, row, 0)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`began` and `sent`, a client's parameters together."""
        _, began, sent = state
        return {"began": jnp.swapaxes(began, 1, 2), "sent": jnp.swapaxes(sent, 1, 2)}


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


def at(steps: Sequence[int], observer: Observer, suffix: str = "_at") -> At:
    """Record the values of another observer after each listed step.

    Step sizes do not depend on n, so one run to the largest n gives every smaller n as well.

    Parameters
    ----------
    steps : sequence of int
        The steps, in the order in which results are wanted.
    observer : Observer
        What to record, such as `observers.Average()`.
    suffix : str
        Added to the names of the results.

    Returns
    -------
    At
        An observer for `simulate(..., observe=[...])`. Its results have one row for each listed step.

    Examples
    --------
    >>> import fedgauss as fg
    >>> averages = fg.observers.at([100, 200, 500], fg.observers.Average())  # runs.average_at: (R, 3, d)
    """
    if not isinstance(observer, Observer):
        raise ValueError(f"observer must be one of fedgauss.observers, such as observers.Average(); got {observer!r}.")
    listed, rows = np.unique([_checks.step_number("steps", step) for step in steps], return_inverse=True)
    if not listed.size:
        raise ValueError("steps must list at least one step; got none. Use range(100, 501, 100)?")
    return At(observer, listed.astype(np.int32), rows.astype(np.int32), suffix)


def path(every: int = 1) -> Path:
    """Record Y_t at every `every`-th step, as `runs.path` of shape (R, n // every, d).

    Parameters
    ----------
    every : int
        1 keeps every step.

    Returns
    -------
    Path
        An observer for `simulate(..., observe=[...])`.
    """
    return Path(_checks.whole("every", every))


def uploads(every: int) -> Uploads:
    """Record what each client sent at its synchronisations, and where it began the block before them.

    The results are `runs.sent` and `runs.began`, of shape (R, J, K, d) each, for blocks j = 1, ..., J = n // tau. Block
    j ends after step j tau. Memory grows as 2 J K d numbers per replicate.

    Parameters
    ----------
    every : int
        tau, the `sync_every` of the run, which must have `sync_phase` 0.

    Returns
    -------
    Uploads
        An observer for `simulate(..., observe=[...])`.
    """
    return Uploads(_checks.whole("every", every, fix="Use the sync_every of the run."))
