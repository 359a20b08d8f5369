"""Sums that clients keep during a pass, and all that leaves them: of gradients, their squares, and Hessians."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.preconditioned import Preconditioned

THINNED = 7  # clients add up every seventh step; intervals cover as well as with every one


def unaligned(every: int, sync_every: int) -> int:
    """The least number from `every` on that has no factor in common with `sync_every`.

    Sums must see every place in a round alike: clients are furthest apart at its end, and drift would look twice as
    large if that were all they saw.
    """
    return next(step for step in count(every) if math.gcd(step, sync_every) == 1)


@pytree
class ClientSums(Observer):
    """Sums over every `every`-th step, client by client: of g, g g', H and theta_k, at the client's own iterate.

    g is the gradient and H the second derivative of the loss at the step's data. From these sums each client knows its
    mean Hessian, its gradient covariance and its mean iterate; d x d numbers leave it, and no data.
    """

    every: int = field(metadata={"static": True})
    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty sums."""
        dim, *rest = theta.shape
        squares = jnp.zeros((dim, dim, *rest), theta.dtype)
        zero = jnp.zeros_like(theta)
        return jnp.int32(0), zero, squares, squares, zero

    def update(self, state: Any, step: Step) -> Any:
        """Add one step's terms, if it is its turn."""

        def add() -> Any:
            count, gradients, squares, hessians, places = state
            problem, data = _unwrapped(step)
            g = problem.gradient(step.before, data)
            return (
                count + 1,
                gradients + g,
                squares + g[:, None] * g[None],
                hessians + second_derivative(problem, step.before, data),
                places + step.before,
            )

        return lax.cond(step.t % self.every == 0, add, lambda: state)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`summed` steps, and `gradient_sum`, `square_sum`, `hessian_sum`, `place_sum`, clients first."""
        count, gradients, squares, hessians, places = state
        n_replicates = gradients.shape[-1]
        return {
            "summed": jnp.broadcast_to(count, (n_replicates,)),
            "gradient_sum": jnp.swapaxes(gradients, 0, 1),
            "square_sum": jnp.moveaxis(squares, 2, 0),
            "hessian_sum": jnp.moveaxis(hessians, 2, 0),
            "place_sum": jnp.swapaxes(places, 0, 1),
        }


def second_derivative(problem: Problem, theta: JaxArray, data: Any) -> JaxArray:
    """H at each client's data and iterate, (d, d, K, R)."""
    directions = jnp.eye(problem.dim, dtype=theta.dtype)

    def column(direction: JaxArray) -> JaxArray:
        return problem.curvature(theta, data, jnp.broadcast_to(direction[:, None, None], theta.shape))

    return jax.vmap(column)(directions)


def _unwrapped(step: Step) -> tuple[Problem, Any]:
    """The problem without its preconditioner, and its data: sums are of the gradients themselves."""
    if isinstance(step.problem, Preconditioned):
        return step.problem.problem, step.data[1]
    return step.problem, step.data


@dataclass(frozen=True)
class ClientStatistics:
    """Means and covariances of each client in R replicates."""

    hessians: FloatArray  # mean Hessian of each client            (R, K, d, d)
    noise_cov: FloatArray  # gradient covariance of each client    (R, K, d, d)
    places: FloatArray  # mean iterate of each client              (R, K, d)
    gradients: FloatArray  # mean gradient of each client          (R, K, d)
    count: int

    def gradients_at(self, theta: FloatArray) -> FloatArray:
        """The mean gradients of the first replicate's clients at one parameter, (K, d).

        Each client's own mean gradient, taken where the client was, is moved there with its Hessian.
        """
        return self.gradients[0] + np.einsum("kij,kj->ki", self.hessians[0], theta - self.places[0])

    def hessian(self, weights: FloatArray) -> FloatArray:
        """A = sum_k w_k H_k, (R, d, d)."""
        return np.einsum("k,rkij->rij", weights, self.hessians)

    def noise(self, weights: FloatArray) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k), (R, d, d)."""
        return np.einsum("k,rkij->rij", weights**2, self.noise_cov)


def client_statistics(sums: dict[str, FloatArray]) -> ClientStatistics:
    """Means and covariances from the sums of `ClientSums`."""
    n_summed = int(sums["summed"][0])
    gradients, squares, hessians, places = (
        np.asarray(sums[name], dtype=np.float64) / n_summed
        for name in ("gradient_sum", "square_sum", "hessian_sum", "place_sum")
    )
    noise = (squares - gradients[..., :, None] * gradients[..., None, :]) * (n_summed / max(n_summed - 1, 1))
    return ClientStatistics((hessians + np.swapaxes(hessians, -1, -2)) / 2, noise, places, gradients, n_summed)
