"""The contract between a problem and the engine."""

from __future__ import annotations

import abc
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

from fedgauss._lanes import add_up
from fedgauss._linearization import Moments
from fedgauss._random import Noise
from fedgauss._types import FloatArray, JaxArray

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """A frozen dataclass that JAX can trace through: array fields are arguments, never compiled-in constants.

    Fields marked `field(metadata={"static": True})` are part of the program instead: they must be hashable. So is the
    class itself: to `jax.tree_util.register_dataclass` two classes with the same fields are equal, and now and then a
    call with one would run the program that was compiled for the other.
    """
    frozen = dataclass(frozen=True, eq=False, repr=False)(cls)
    static = [each.name for each in fields(frozen) if each.metadata.get("static")]  # type: ignore[arg-type]
    traced = [each.name for each in fields(frozen) if each.name not in static]  # type: ignore[arg-type]
    keys = [jax.tree_util.GetAttrKey(name) for name in traced]

    def flatten(part: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(part, name) for name in traced], (frozen, *(getattr(part, name) for name in static))

    def flatten_with_keys(part: Any) -> tuple[list[Any], tuple[Any, ...]]:
        values, fixed = flatten(part)
        return list(zip(keys, values, strict=True)), fixed

    def unflatten(fixed: tuple[Any, ...], values: Iterable[Any]) -> T:
        return frozen(**dict(zip(traced, values, strict=True)), **dict(zip(static, fixed[1:], strict=True)))

    jax.tree_util.register_pytree_with_keys(frozen, flatten_with_keys, unflatten, flatten)
    return frozen


def claims(part: Any, name: str) -> bool:
    """Whether the class of a part says `name` of itself: what one inherits, it may have made untrue."""
    return name in vars(type(part)) and bool(getattr(part, name))


class Problem(abc.ABC):
    """What K clients minimise: sum_k w_k F_k(theta), F_k(theta) = E f_k(theta, xi^k).

    Inside the engine the replicate axis comes last: `theta` is (d, K, R), and entry [:, k, r] is client k's
    parameter in replicate r. Data are drawn apart from the gradient, so that several chains can share them.

    A class says `serves_some` of itself if it can be asked for some clients alone, those of `noise.clients`: it reads
    its tables by `noise.per_client`, and what `gradient` knows of clients is in the data. Then those who are absent
    from a round cost nothing.
    """

    weights: FloatArray
    serves_some: bool = False
    plain_steps: bool = True  # whether a step follows the gradient itself, so that eta must suit the Hessian

    @property
    def n_clients(self) -> int:
        """K."""
        return int(np.shape(self.weights)[0])

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """d."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.n_clients} clients, {self.dim} dimensions>"

    @abc.abstractmethod
    def sample(self, noise: Noise, t: JaxArray) -> Any:
        """Draw xi_t^k for every client and replicate."""

    @abc.abstractmethod
    def gradient(self, theta: JaxArray, data: Any) -> JaxArray:
        """The noisy gradients of f_k at (theta_k, xi^k), (d, K, R)."""

    def shared(self, data: Any, n_replicates: int) -> Any:
        """Data of one replicate, for `gradient` at the parameters of several: as they are, where they broadcast."""
        return data

    def curvature(self, theta: JaxArray, data: Any, direction: JaxArray) -> JaxArray:
        """The second derivative of f_k(., xi) at theta_k times `direction` (d, K, R), for the data of a step."""
        return jax.jvp(lambda at: self.gradient(at, data), (theta,), (direction,))[1]

    def hessian_factors(self, theta: JaxArray, data: Any) -> tuple[JaxArray, JaxArray] | None:
        """u and v (m, d, K, R) with second derivative sum_m u_m v_m', where few do; None where nobody knows of any."""
        return None

    def steepness(self, theta: JaxArray, data: Any, direction: JaxArray) -> JaxArray:
        """direction' (second derivative) direction, (K, R): how soon a step in that direction goes too far."""
        return add_up(direction * self.curvature(theta, data, direction))

    def mean_gradient(self, theta: JaxArray) -> JaxArray:
        """The gradients of F_k at theta_k, (d, K, R), where a closed form exists."""
        raise NotImplementedError(
            f"{type(self).__name__} has no closed-form mean gradient, which the error terms D_2 to D_4 need. "
            "Use problems.linear, logistic, poisson or huber with Gaussian noise."
        )

    def moments(self, theta: FloatArray) -> Moments | None:
        """Exact moments at `theta` (d,), or None where only sampling can tell."""
        return None

    def risk(self, theta: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Exact gradients (K, d) and Hessians (K, d, d) of the client risks: `moments` without the noise."""
        moments = self.moments(theta)
        return None if moments is None else (moments.gradient, moments.hessian)

    def replicates(self, first: int, count: int) -> Problem:
        """The problem of replicates first, ..., first + count - 1: this one, unless replicates differ in it."""
        return self

    def guess(self) -> FloatArray:
        """Where to begin looking for the optimum."""
        return np.zeros(self.dim)

    def reference(self) -> Problem:
        """The problem that the theory describes: this one, unless it changes on the way."""
        return self

    def max_steps(self) -> int | None:
        """How many steps the data last, or None when they never run out."""
        return None


@pytree
class WrappedProblem(Problem):
    """The contract of a problem made from another: clients, steps and theory are those of `problem` by default."""

    problem: Problem

    @property
    def weights(self) -> FloatArray:  # type: ignore[override]
        """w_k."""
        return self.problem.weights

    @property
    def dim(self) -> int:
        """d."""
        return self.problem.dim

    def reference(self) -> Problem:
        """That of the wrapped problem."""
        return self.problem.reference()

    def max_steps(self) -> int | None:
        """That of the wrapped problem."""
        return self.problem.max_steps()


def checked_problem(problem: Any) -> Problem:
    """`problem`, if it is one."""
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be made by fedgauss.problems; got {type(problem).__name__}.")
    return problem
