"""The one recursion: Theta_t = (Theta_{t-1} - eta_t G_t) C_t, with G_t = K (w_1 grad f_1, ..., w_K grad f_K).

It runs several settings at once over the same random numbers: S algorithms of one shape, stacked along a new first
axis. Integers (the key, tables of neighbours, steps to observe at) are shared and have no such axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._lanes import client_mean
from fedgauss._random import Key, Noise
from fedgauss._types import JaxArray
from fedgauss.engine.mixing import Mixing
from fedgauss.engine.observers import Observer, Step
from fedgauss.engine.projections import Projection
from fedgauss.engine.starts import ResolvedStart
from fedgauss.problems.base import Problem

T = TypeVar("T")


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


def take_step(algorithm: Algorithm, noise: Noise, anyone: JaxArray, t: JaxArray, carry: Carry) -> Carry:
    """Step t of every client and replicate, seen by every observer.

    `anyone` (N,) says whether any setting mixes after step t: other settings discard the mixed result.
    """
    problem, theta = algorithm.problem, carry.theta
    data = problem.sample(noise.at_step(t), t)
    scale = algorithm.eta[t - 1] * problem.n_clients * jnp.asarray(problem.weights)
    moved = theta - scale[:, None] * problem.gradient(theta, data)

    def mix(same: JaxArray) -> JaxArray:
        return jnp.where(algorithm.sync[t - 1], algorithm.mixing.mix(same, t), same)

    after = algorithm.projection.project(lax.cond(anyone[t - 1], mix, lambda same: same, moved))
    step = Step(t, problem, theta, data, moved, after, client_mean(after))
    states = tuple(o.update(s, step) for o, s in zip(algorithm.observers, carry.states, strict=True))
    return Carry(after, states)


@partial(jax.jit, static_argnames=("n_replicates", "n_steps"))
def begin(
    algorithm: Algorithm, start: ResolvedStart, key: Key, first: JaxArray, n_replicates: int, n_steps: int
) -> Carry:
    """Theta_0 and the observers' first states for replicates first, ..., first + n_replicates - 1."""

    def one(algorithm: Algorithm, start: ResolvedStart) -> Carry:
        problem = algorithm.problem
        theta = start.theta(Noise(key, first, problem.n_clients, n_replicates), problem.dim)
        carry = Carry(theta, tuple(o.init(theta, n_steps) for o in algorithm.observers))
        _values(algorithm.observers, carry.states)  # rejects duplicate names before a long run
        return carry

    return jax.vmap(one, in_axes=(_axes(algorithm), 0))(algorithm, start)


@jax.jit
def advance(
    algorithm: Algorithm, carry: Carry, first: JaxArray, done: JaxArray, until: JaxArray
) -> tuple[Carry, JaxArray]:
    """Steps done + 1 to `until`, for replicates from `first` on; also whether every client is still finite, (S, R).

    The bounds are arguments: one compilation serves every length of run.
    """
    anyone = algorithm.sync.any(axis=0)

    def one(algorithm: Algorithm, carry: Carry) -> Carry:
        _, n_clients, n_replicates = carry.theta.shape
        noise = Noise(algorithm.key, first, n_clients, n_replicates)
        return lax.fori_loop(done + 1, until + 1, lambda t, c: take_step(algorithm, noise, anyone, t, c), carry)

    carry = jax.vmap(one, in_axes=(_axes(algorithm), 0))(algorithm, carry)
    return carry, jnp.isfinite(carry.theta).all(axis=(1, 2))


@jax.jit
def read(observers: tuple[Observer, ...], states: tuple[Any, ...]) -> dict[str, JaxArray]:
    """The observers' results, (S, R, ...)."""

    def one(observers: tuple[Observer, ...], states: tuple[Any, ...]) -> dict[str, JaxArray]:
        return {name: jnp.moveaxis(value, -1, 0) for name, value in _values(observers, states).items()}

    return jax.vmap(one, in_axes=(_axes(observers), 0))(observers, states)


def _values(observers: tuple[Observer, ...], states: tuple[Any, ...]) -> dict[str, JaxArray]:
    """The results of all observers, by name."""
    values: dict[str, JaxArray] = {}
    for observer, state in zip(observers, states, strict=True):
        for name, value in observer.value(state).items():
            if name in values:
                raise ValueError(f"{name!r} is observed twice. Drop one, or give observers.at another suffix.")
            values[name] = value
    return values


def stack(trees: Sequence[T]) -> T:
    """Several of one shape as one, along a new first axis; integers, which all must share, stay as they are."""
    if len({jax.tree.structure(tree) for tree in trees}) > 1:
        raise ValueError(
            "settings that run together must be of one kind: the same family of problem, kind of start, projection "
            "and observers. Run the others separately."
        )

    def join(*leaves: Any) -> Any:
        if any(np.shape(leaf) != np.shape(leaves[0]) for leaf in leaves):
            raise ValueError(
                "settings that run together must have arrays of one shape: the same clients, dimensions, network "
                f"size and number of step sizes; got {np.shape(leaves[0])} and others. Run the others separately."
            )
        if not _is_shared(leaves[0]):
            return np.stack(leaves)
        if any(not np.array_equal(leaf, leaves[0]) for leaf in leaves):
            raise ValueError(
                "settings that run together must share the edges of a large network, when and on which edge an attack "
                "begins, and what is observed. Run the others separately."
            )
        return leaves[0]

    return jax.tree.map(join, *trees)


def _axes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: None if _is_shared(leaf) else 0, tree)


def _is_shared(leaf: Any) -> bool:
    return np.issubdtype(np.asarray(leaf).dtype if np.isscalar(leaf) else leaf.dtype, np.integer)
