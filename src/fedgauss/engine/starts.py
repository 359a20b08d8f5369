"""Theta_0: where the clients begin."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._random import Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.linearize import optimum


@dataclass(frozen=True)
class NearOptimum:
    """theta*_K plus N(0, sd^2 I), drawn anew for each replicate, and for each client unless `shared`."""

    sd: float
    shared: bool = False


Start: TypeAlias = Literal["zeros", "optimum"] | NearOptimum | ArrayLike


def near_optimum(sd: float, shared: bool = False) -> NearOptimum:
    """Start at the optimum plus Gaussian noise, theta*_K + N(0, sd^2 I).

    Parameters
    ----------
    sd : float
        The standard deviation of each coordinate.
    shared : bool
        Whether all clients of a replicate start at the same point.

    Returns
    -------
    NearOptimum
        For `simulate(..., start=...)`.
    """
    return NearOptimum(_checks.real("sd", sd, above=0.0), shared)


@pytree
class ResolvedStart:
    """A start with its shapes settled: fixed values (d, K, R), where K and R may be 1, plus noise of size `sd`.

    Starts of several settings are stacked along a new first axis.
    """

    fixed: FloatArray
    sd: float | None = None
    shared: bool = field(default=False, metadata={"static": True})

    def replicates(self, first: int, count: int) -> ResolvedStart:
        """The part for replicates first, first + 1, ...

        The last chunk may reach past the end: it repeats the last replicate there, to be dropped later.
        """
        if self.fixed.shape[-1] == 1:
            return self
        index = np.minimum(np.arange(first, first + count), self.fixed.shape[-1] - 1)
        return replace(self, fixed=self.fixed[..., index])

    def theta(self, noise: Noise, dim: int) -> JaxArray:
        """Theta_0, (d, K, R)."""
        shape = (dim, noise.n_clients, noise.n_replicates)
        theta = jnp.broadcast_to(jnp.asarray(self.fixed, jnp.float32), shape)
        if self.sd is None:
            return theta
        draws = noise.normal(dim)
        return theta + self.sd * (draws[:, :1] if self.shared else draws)


def resolve_start(start: Start, problem: Problem, replicates: int) -> ResolvedStart:
    """Check a start against the problem: "zeros", "optimum", near_optimum(sd), (d,), (K, d) or (R, K, d)."""
    dim, n_clients = problem.dim, problem.n_clients
    if isinstance(start, NearOptimum):
        return ResolvedStart(optimum(problem)[:, None, None], start.sd, start.shared)
    if isinstance(start, str):
        choice = _checks.one_of("start", start, ["zeros", "optimum"])
        point = np.zeros(dim) if choice == "zeros" else optimum(problem)
        return ResolvedStart(point[:, None, None])
    array = _checks.real_array("start", start)
    shapes = [(dim,), (n_clients, dim), (replicates, n_clients, dim)]
    if array.shape not in shapes:
        raise ValueError(
            f"start must be 'zeros', 'optimum', near_optimum(sd) or an array of shape {shapes[0]}, {shapes[1]} "
            f"or {shapes[2]}; got shape {array.shape}."
        )
    if array.ndim == 1:
        return ResolvedStart(array[:, None, None])
    if array.ndim == 2:
        return ResolvedStart(array.T[:, :, None])
    return ResolvedStart(np.moveaxis(array, 0, -1).swapaxes(0, 1))
