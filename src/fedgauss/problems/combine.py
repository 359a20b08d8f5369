"""Problems made of problems: one that changes at a step, and one that runs beside its Lindeberg copy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedgauss import _checks
from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.base import Problem, pytree


@pytree
class ChangedProblem(Problem):
    """`before` up to step `start` - 1, `after` from step `start` on."""

    before: Problem
    after: Problem
    start: JaxArray

    @property
    def weights(self) -> FloatArray:  # type: ignore[override]
        """Those of `before`, and the same for `after`."""
        return self.before.weights

    @property
    def dim(self) -> int:
        """d."""
        return self.before.dim

    def sample(self, noise: Noise, t: JaxArray) -> Any:
        """Whether the change has happened, and the data of the problem in force."""
        changed = t >= self.start
        data = lax.cond(changed, lambda: self.after.sample(noise, t), lambda: self.before.sample(noise, t))
        return changed, data

    def gradient(self, theta: JaxArray, data: Any) -> JaxArray:
        """That of the problem in force."""
        changed, xi = data
        return lax.cond(changed, lambda: self.after.gradient(theta, xi), lambda: self.before.gradient(theta, xi))

    def moments(self, theta: FloatArray) -> Any:
        """Those of the problem before the change: what the theory describes is the honest run."""
        return self.before.moments(theta)

    def max_steps(self) -> int | None:
        """The data of either problem may run out."""
        limits = [m for m in (self.before.max_steps(), self.after.max_steps()) if m is not None]
        return min(limits, default=None)


def change_at(before: Problem, after: Problem, start: int) -> ChangedProblem:
    """A problem that turns into another from step `start` on: an attack, a drift, a repair.

    Both must have the same clients, weights and dimension, and draw data of the same shapes.
    """
    start = _checks.whole("start", start, fix="Steps count from 1.")
    if (before.n_clients, before.dim) != (after.n_clients, after.dim):
        raise ValueError(
            "both problems must have the same clients and dimension; got "
            f"{before.n_clients} x {before.dim} before and {after.n_clients} x {after.dim} after."
        )
    if abs(jnp.asarray(before.weights) - jnp.asarray(after.weights)).max() > 1e-6:
        raise ValueError("both problems must have the same weights. Pass weights=before.weights to the second?")
    shapes = [_sample_shape(problem) for problem in (before, after)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"both problems must draw data of the same shapes; got {shapes[0]} and {shapes[1]}.")
    return ChangedProblem(before, after, start)


@pytree
class CoupledProblem(Problem):
    """The problem and its Lindeberg copy, stacked in 2d dimensions: same data but for one step (Section B.1.2).

    The first d coordinates follow xi_t; the last d follow xi_t too, except at step `resampled`, where an
    independent xi' takes its place.
    """

    problem: Problem
    resampled: JaxArray

    @property
    def weights(self) -> FloatArray:  # type: ignore[override]
        """w_k."""
        return self.problem.weights

    @property
    def dim(self) -> int:
        """2d."""
        return 2 * self.problem.dim

    def sample(self, noise: Noise, t: JaxArray) -> tuple[Any, Any]:
        """The data of the original and of the copy."""
        data = self.problem.sample(noise, t)
        fresh = lambda: self.problem.sample(noise.stream("lindeberg"), t)  # noqa: E731
        return data, lax.cond(t == self.resampled, fresh, lambda: data)

    def gradient(self, theta: JaxArray, data: tuple[Any, Any]) -> JaxArray:
        """Each half at its own iterate."""
        halves = jnp.split(theta, 2)
        return jnp.concatenate([self.problem.gradient(half, xi) for half, xi in zip(halves, data, strict=True)])

    def max_steps(self) -> int | None:
        """That of the problem."""
        return self.problem.max_steps()


def coupled(problem: Problem, resampled: int) -> CoupledProblem:
    """The problem beside its Lindeberg copy, in which the data of step `resampled` alone are drawn afresh."""
    return CoupledProblem(problem, _checks.whole("resampled", resampled, fix="Steps count from 1."))


def _sample_shape(problem: Problem) -> Any:
    """Shapes and types of one step's data for one replicate."""

    def draw() -> Any:
        key = (jnp.uint32(0), jnp.uint32(0))
        noise = Noise(key, jnp.uint32(0), problem.n_clients, 1)
        return problem.sample(noise.at_step(jnp.uint32(1)), jnp.int32(1))

    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), jax.eval_shape(draw))
