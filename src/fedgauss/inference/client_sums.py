"""What a client adds up in a pass: gradients, their squares and Hessians at a reference near the optimum.

These sums are all that leaves a client.

The mean of g(theta_t) along the path is no gradient at the mean of the path: where the Hessian changes over the scatter
of theta_t, as with rare outcomes, SGD makes the one vanish and not the other. So sums are taken at a reference r_t that
hardly scatters, a mean of the parameters with which rounds began so far. It is known before the data of step t are, so
that every row is still read once. Clients mix their references as they mix parameters, so that all soon have one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._lanes import add_up, times
from fedgauss._random import Key, Noise
from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.engine.mixing import Mixing
from fedgauss.engine.observers import Periodic
from fedgauss.inference.client_steps import Preconditioned
from fedgauss.problems.base import Problem, pytree

THINNED = 7  # clients add up every seventh step; intervals cover as well as with every one


def unaligned(every: int, sync_every: int) -> int:
    """The least number from `every` on that has no factor in common with `sync_every`.

    Sums must see every place in a round alike: clients are furthest apart at its end, and drift would look twice as
    large if that were all they saw.
    """
    return next(step for step in count(every) if math.gcd(step, sync_every) == 1)


@pytree
class HessianSums(Periodic):
    """Sums over every `every`-th step, client by client, of H at the client's own iterate."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """An empty sum."""
        return jnp.int32(0), _squares(theta)

    def fill(self, state: Any, step: Step) -> Any:
        """Add one step's Hessian."""
        problem, data = plain_step(step)
        return state[0] + 1, state[1] + second_derivative(problem, step.before, data)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`summed` steps and `hessian_sum`, clients first."""
        steps, hessians = state
        return {
            "summed": jnp.broadcast_to(steps, hessians.shape[-1:]),
            "hessian_sum": jnp.moveaxis(hessians, 2, 0),
        }


def mean_hessian(sums: dict[str, FloatArray], weights: FloatArray) -> FloatArray:
    """sum_k w_k H_k from the sums of `HessianSums`, (R, d, d)."""
    hessians = np.asarray(sums["hessian_sum"], dtype=float) / int(sums["summed"][0])
    return np.einsum("k,rkij->rij", weights, (hessians + np.swapaxes(hessians, -1, -2)) / 2)


@pytree
class ClientSums(Periodic):
    """Sums over every `every`-th step, client by client: of g, g g' and H at the reference r_t; and of r_t and theta_k.

    g is the gradient and H the second derivative of the loss at the step's data. Also the sum of the bends

        g(theta_k) - g(r_t) - H(r_t) (theta_k - r_t),

    by which the gradient where the client was differs from that of a straight line.

    r_t is at first where the client's round began, if the problem says it, or else where the client is. When a round
    begins, every `sync_every` steps, references are mixed if there is a `mixing`, and move towards the parameters
    (`next_reference`). Or r_t is the `reference` that is given.
    """

    keeps_time = False

    sync_every: int = field(default=0, metadata={"static": True})  # 0: r_t stays where it is
    mixing: Mixing | None = None
    reference: FloatArray | None = None  # (d,)

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Empty sums, and the first reference."""
        squares, zero, r = _squares(theta), jnp.zeros_like(theta), theta
        if self.reference is not None:
            r = jnp.broadcast_to(jnp.asarray(self.reference, theta.dtype)[:, None, None], theta.shape)
        return (jnp.int32(0), zero, squares, squares, zero, zero, zero), jnp.int32(0), r

    def update(self, state: Any, step: Step) -> Any:
        """Move the reference if a round begins, and add one step's terms."""
        sums, rounds, r = state
        first = getattr(step.problem, "round_start", None)
        if first is not None:
            r = jnp.where(rounds == 0, first, r)
        if self.sync_every:
            begins = (step.t - 1) % self.sync_every == 0
            rounds = rounds + begins
            r = lax.cond(begins, lambda: next_reference(self._mixed(r, step), step.before, rounds), lambda: r)
        state = sums, rounds, r
        return lax.cond(step.t % self.every == 0, lambda: self.fill(state, step)[0], lambda: sums), rounds, r

    def _mixed(self, references: JaxArray, step: Step) -> JaxArray:
        """References after they were mixed, as parameters were at the end of the round before."""
        return references if self.mixing is None else self.mixing.mix(references, step.t - 1, step.noise)

    def fill(self, state: Any, step: Step) -> Any:
        """Add one step's terms."""
        sums, rounds, r = state
        problem, data = plain_step(step)
        g, hessian = problem.gradient(r, data), second_derivative(problem, r, data)
        bend = problem.gradient(step.before, data) - g - times(hessian, step.before - r)
        terms = (1, g, g[:, None] * g[None], hessian, r, step.before, bend)
        return tuple(total + term for total, term in zip(sums, terms, strict=True)), rounds, r

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`summed` steps, and the sums by name, clients first."""
        (steps, gradients, squares, hessians, references, places, bends), _, _ = state
        return {
            "summed": jnp.broadcast_to(steps, gradients.shape[-1:]),
            "gradient_sum": jnp.swapaxes(gradients, 0, 1),
            "square_sum": jnp.moveaxis(squares, 2, 0),
            "hessian_sum": jnp.moveaxis(hessians, 2, 0),
            "reference_sum": jnp.swapaxes(references, 0, 1),
            "place_sum": jnp.swapaxes(places, 0, 1),
            "bend_sum": jnp.swapaxes(bends, 0, 1),
        }


@pytree
class RoundStart(Observer):
    """Where each client's present round began: `round_start` (K, d)."""

    keeps_time = False

    sync_every: int = field(metadata={"static": True})

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """At the start."""
        return theta

    def update(self, state: Any, step: Step) -> Any:
        """A mixing begins a round."""
        return jnp.where(step.t % self.sync_every == 0, step.theta, state)

    def value(self, state: Any) -> dict[str, JaxArray]:
        """Clients first."""
        return {"round_start": jnp.swapaxes(state, 0, 1)}


def next_reference(reference: Any, theta: Any, rounds: Any) -> Any:
    """The mean of the parameters of j `rounds`, the newest `theta`, that of round i with weight i (i + 1).

    r_j = r_{j-1} + 3 (theta_j - r_{j-1}) / (j + 2): a plain mean would lag further behind a run that is still moving.
    """
    return reference + (theta - reference) * (3.0 / (rounds + 2.0))


def _squares(theta: JaxArray) -> JaxArray:
    """Zeros for a d x d sum of each client."""
    return jnp.zeros((theta.shape[0], *theta.shape), theta.dtype)


def plain_step(step: Step) -> tuple[Problem, Any]:
    """The problem and data of a step before it was shaped: sums are of the gradients themselves."""
    if isinstance(step.problem, Preconditioned):
        return step.problem.problem, step.data[1]
    return step.problem, step.data


def second_derivative(problem: Problem, theta: JaxArray, data: Any) -> JaxArray:
    """H at each client's data and iterate, (d, d, K, R)."""
    factors = problem.hessian_factors(theta, data)
    if factors is not None:
        return add_up(factors[0][:, :, None] * factors[1][:, None])
    directions = jnp.eye(problem.dim, dtype=theta.dtype)

    def column(direction: JaxArray) -> JaxArray:
        return problem.curvature(theta, data, jnp.broadcast_to(direction[:, None, None], theta.shape))

    return jax.vmap(column)(directions)


@dataclass(frozen=True)
class ClientStatistics:
    """Means and covariances of each client in R replicates; gradients and Hessians are those at the references."""

    hessians: FloatArray  # mean Hessian of each client, (R, K, d, d)
    noise_cov: FloatArray  # gradient covariance of each client, (R, K, d, d)
    references: FloatArray  # mean reference of each client, (R, K, d)
    gradients: FloatArray  # mean gradient of each client, (R, K, d)
    places: FloatArray  # mean iterate of each client, (R, K, d)
    bends: FloatArray  # mean bend of each client, (R, K, d)
    count: int

    def gradients_at(self, theta: FloatArray) -> FloatArray:
        """The clients' mean gradients at one parameter a replicate, (R, d); (R, K, d).

        Each client's own mean gradient, taken at its references, is moved there with its Hessian.
        """
        return self.gradients + np.einsum("rkij,rkj->rki", self.hessians, theta[:, None] - self.references)

    def hessian(self, weights: FloatArray) -> FloatArray:
        """A = sum_k w_k H_k, (R, d, d)."""
        return np.einsum("k,rkij->rij", weights, self.hessians)

    def noise(self, weights: FloatArray) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k), (R, d, d)."""
        return np.einsum("k,rkij->rij", weights**2, self.noise_cov)


def client_statistics(sums: dict[str, FloatArray]) -> ClientStatistics:
    """Means and covariances from the sums of `ClientSums`."""
    n_summed = int(sums["summed"][0])
    gradients, squares, hessians, references, places, bends = (
        np.asarray(sums[f"{name}_sum"], dtype=float) / n_summed
        for name in ("gradient", "square", "hessian", "reference", "place", "bend")
    )
    noise = (squares - gradients[..., :, None] * gradients[..., None, :]) * (n_summed / max(n_summed - 1, 1))
    hessians = (hessians + np.swapaxes(hessians, -1, -2)) / 2
    return ClientStatistics(hessians, noise, references, gradients, places, bends, n_summed)


@partial(jax.jit, static_argnames="replicates")
def warm_hessians(problem: Problem, key: Key, start: JaxArray, replicates: int, rows: JaxArray) -> JaxArray:
    """Sums of second derivatives at the start over the first rows of each client, (d, d, K, R)."""
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    theta = jnp.broadcast_to(start[:, None, None], (problem.dim, problem.n_clients, replicates))
    zero = jnp.zeros((problem.dim, *theta.shape), theta.dtype)

    def add(t: JaxArray, total: JaxArray) -> JaxArray:
        return total + second_derivative(problem, theta, problem.sample(noise.at_step(t), t))

    return lax.fori_loop(1, rows + 1, add, zero)
