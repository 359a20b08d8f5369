"""The one recursion: Theta_t = (Theta_{t-1} - eta_t G_t) C_t, with G_t = K (w_1 grad f_1, ..., w_K grad f_K)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedgauss._lanes import client_mean
from fedgauss._random import Key, Noise
from fedgauss._types import JaxArray
from fedgauss.engine.mixing import Mixing
from fedgauss.engine.observers import Observer, Step
from fedgauss.engine.projections import Projection
from fedgauss.engine.starts import ResolvedStart
from fedgauss.problems.base import Problem


class Algorithm(NamedTuple):
    """Everything that stays fixed during a run. All of it is traced, so a sweep compiles once."""

    problem: Problem
    mixing: Mixing
    projection: Projection
    observers: tuple[Observer, ...]
    eta: JaxArray  # eta_t, (N,) or (N, K), padded beyond n
    sync: JaxArray  # whether clients mix after step t, (N,)
    key: Key


class Carry(NamedTuple):
    """Everything that a step changes."""

    theta: JaxArray  # (d, K, R)
    states: tuple[Any, ...]  # one for each observer


def take_step(algorithm: Algorithm, noise: Noise, t: JaxArray, carry: Carry) -> Carry:
    """Step t of every client and replicate, seen by every observer."""
    problem, theta = algorithm.problem, carry.theta
    data = problem.sample(noise.at_step(t), t)
    scale = algorithm.eta[t - 1] * problem.n_clients * jnp.asarray(problem.weights)
    moved = theta - scale[:, None] * problem.gradient(theta, data)
    mixed = lax.cond(algorithm.sync[t - 1], algorithm.mixing.mix, lambda same: same, moved)
    after = algorithm.projection.project(mixed)
    step = Step(t, problem, theta, data, after, client_mean(after))
    states = tuple(o.update(s, step) for o, s in zip(algorithm.observers, carry.states, strict=True))
    return Carry(after, states)


@partial(jax.jit, static_argnames=("n_replicates", "n_steps"))
def begin(
    algorithm: Algorithm, start: ResolvedStart, key: Key, first: JaxArray, n_replicates: int, n_steps: int
) -> Carry:
    """Theta_0 and the observers' first states for replicates first, ..., first + n_replicates - 1."""
    problem = algorithm.problem
    theta = start.theta(Noise(key, first, problem.n_clients, n_replicates), problem.dim)
    return Carry(theta, tuple(o.init(theta, n_steps) for o in algorithm.observers))


@jax.jit
def advance(
    algorithm: Algorithm, carry: Carry, first: JaxArray, done: JaxArray, until: JaxArray
) -> tuple[Carry, JaxArray]:
    """Steps done + 1 to `until`, for replicates from `first` on; also whether every client is still finite.

    The bounds are arguments: one compilation serves every length of run.
    """
    _, n_clients, n_replicates = carry.theta.shape
    noise = Noise(algorithm.key, first, n_clients, n_replicates)
    carry = lax.fori_loop(done + 1, until + 1, lambda t, c: take_step(algorithm, noise, t, c), carry)
    return carry, jnp.isfinite(carry.theta).all(axis=(0, 1))


@jax.jit
def read(observers: tuple[Observer, ...], states: tuple[Any, ...]) -> dict[str, JaxArray]:
    """The observers' results, with the replicate axis moved to the front."""
    values: dict[str, JaxArray] = {}
    for observer, state in zip(observers, states, strict=True):
        values |= observer.value(state)
    return {name: jnp.moveaxis(value, -1, 0) for name, value in values.items()}
