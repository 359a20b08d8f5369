"""The one recursion: Theta_t = (Theta_{t-1} - eta_t G_t) C_t, with G_t = K (w_1 grad f_1, ..., w_K grad f_K).

Here is where it starts, the step, and the contract of an observer, a fold over its path.

It runs several settings at once over the same random numbers: S algorithms of one shape, stacked along a new first
axis. Integers (the key, tables of neighbours, steps to observe at) are shared and have no such axis.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss import _checks
from fedgauss._lanes import client_mean
from fedgauss._random import Key, Noise
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.local_rules import LocalRules
from fedgauss.engine.mixing import Mixing
from fedgauss.engine.participation import Presence, Seats
from fedgauss.engine.projections import Projection
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.linearize import optimum

T = TypeVar("T")


class Step(NamedTuple):
    """What happened at step t: Theta_{t-1}, the data drawn, the clients' own steps, Theta_t and Y_t, its mean.

        moved = Theta_{t-1} - eta_t G_t,    theta = Theta_t = Phi(moved C_t),    mean = Y_t = K^-1 Theta_t 1

    What no observer reads is not computed on its account: the compiler drops it. Where all observers are `mean_only`,
    there may be columns for those present alone; Y_t is the mean over all K all the same.
    """

    t: JaxArray
    problem: Problem
    before: JaxArray  # (d, K, R)
    data: Any
    moved: JaxArray  # (d, K, R), before mixing and projection
    theta: JaxArray  # (d, K, R)
    mean: JaxArray  # (d, R)
    noise: Noise  # of the run


class Observer(abc.ABC):
    """The contract of a fold: `init` makes a state, `update` takes one step into account, `value` reads it off.

    Replicates are the last axis of everything. `keeps_time` says whether the state has a place for each step. Where it
    has none, runs of other lengths share the program that makes it, and `init` is told that n_steps is 0. A class says
    `mean_only` of itself if of a step it reads nothing but `t` and `mean`, and of Theta_0 the mean: see `seats`.
    """

    keeps_time: bool = True
    mean_only: bool = False

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

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=10, seed=1907)
    >>> start = fg.near_optimum(0.25)
    >>> runs = fg.simulate(problem, fg.networks.ring(10), [0.1] * 100, n_steps=100, replicates=50, start=start)
    >>> runs.average.shape
    (50, 2)
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
        shape = (dim, *noise.shape)
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
    return ResolvedStart(np.array(array, ndmin=3).T)


class Algorithm(NamedTuple):
    """Everything that stays fixed during a run. All of it is traced, so a sweep compiles once."""

    problem: Problem
    mixing: Mixing
    projection: Projection | None
    observers: tuple[Observer, ...]
    eta: JaxArray  # eta_t, (N,) or (N, K), padded beyond n
    sync: JaxArray  # whether clients mix after step t, (N,)
    key: Key
    presence: Presence | None = None  # who takes part in a round; None for everybody
    working: JaxArray | None = None  # whether client k still works at step t of its round, (N, K); None for always
    rules: LocalRules | None = None  # None for plain steps
    seats: Seats | None = None  # in the place of `presence`: columns for those who take part alone

    def works(self, noise: Noise, t: JaxArray) -> JaxArray | None:
        """Who takes step t, (K, R) or (K, 1); None for everybody."""
        works = None if self.working is None else noise.per_client(self.working[t - 1])
        if self.presence is None:
            return works
        here = self.presence.at(noise, t)
        return here if works is None else here & works


class Carry(NamedTuple):
    """Everything that a step changes."""

    theta: JaxArray  # (d, K, R)
    states: tuple[Any, ...]  # one for each observer
    memory: Any = None  # a Memory, if there are rules that need one
    absent: JaxArray | None = None  # where those without a seat stand, (d, 1, R)


def take_step(algorithm: Algorithm, noise: Noise, anyone: JaxArray, t: JaxArray, carry: Carry) -> Carry:
    """Step t of every client and replicate, seen by every observer.

    Columns of G_t are zero for clients that do not work, and `rules` may put something else in the gradients' place.
    Where C_t is random it is drawn here, and it mixes those who are present. With m seats,

        Y_t = (m / K) (mean of the seats) + (1 - m / K) W_r,    W_r where round r began

    `anyone` (N,) says whether any setting mixes after step t: other settings discard the mixed result.
    """
    problem, theta = algorithm.problem, carry.theta
    data = problem.sample(noise.at_step(t), t)
    scale = noise.per_client(algorithm.eta[t - 1] * problem.n_clients * jnp.asarray(problem.weights))
    works, rules, memory = algorithm.works(noise, t), algorithm.rules, carry.memory
    gradient = problem.gradient(theta, data)
    if rules is not None:
        gradient, memory = rules.direction(gradient, theta, memory, works)
    moved = theta - scale * gradient
    if works is not None:
        moved = jnp.where(works, moved, theta)

    def mix(same: JaxArray) -> JaxArray:
        mixed = algorithm.mixing.mix(same, t, noise)
        return jnp.where(algorithm.sync[t - 1], mixed if rules is None else rules.pushed(mixed, memory), same)

    after = lax.cond(anyone[t - 1], mix, lambda same: same, moved)
    if algorithm.projection is not None:
        after = algorithm.projection.project(after)
    if rules is not None:
        memory = rules.next_round(after, memory, algorithm.sync[t - 1])
    mean, absent = client_mean(after), carry.absent
    if absent is not None:
        if algorithm.projection is not None:
            absent = algorithm.projection.project(absent)
        absent = jnp.where(algorithm.sync[t - 1], after[:, :1], absent)
        share = theta.shape[1] / problem.n_clients
        mean = share * mean + (1.0 - share) * absent[:, 0]
    step = Step(t, problem, theta, data, moved, after, mean, noise)
    states = tuple(o.update(s, step) for o, s in zip(algorithm.observers, carry.states, strict=True))
    return Carry(after, states, memory, absent)


@partial(jax.jit, static_argnames=("n_replicates", "n_steps"))
def begin(
    algorithm: Algorithm, start: ResolvedStart, key: Key, first: JaxArray, n_replicates: int, n_steps: int
) -> Carry:
    """Theta_0 and the observers' first states for replicates first, ..., first + n_replicates - 1."""

    def one(algorithm: Algorithm, start: ResolvedStart) -> Carry:
        problem, seats = algorithm.problem, algorithm.seats
        noise = Noise(key, first, problem.n_clients, n_replicates)
        if seats is not None:  # everybody starts where client 0 does
            noise = replace(noise, clients=jnp.zeros((seats.count, n_replicates), jnp.int32))
        theta = start.theta(noise, problem.dim)
        memory = None if algorithm.rules is None else algorithm.rules.memory(theta)
        states = tuple(o.init(theta, n_steps) for o in algorithm.observers)
        carry = Carry(theta, states, memory, None if seats is None else theta[:, :1])
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

    noise = Noise(algorithm.key, first, algorithm.problem.weights.shape[-1], carry.theta.shape[-1])
    seats = algorithm.seats

    def every_setting(t: JaxArray, state: tuple[Carry, JaxArray | None]) -> tuple[Carry, JaxArray | None]:
        carry, clients = state
        if seats is not None:
            clients = seats.next_clients(clients, noise, t)
        step = partial(take_step, noise=replace(noise, clients=clients), anyone=anyone, t=t)
        return jax.vmap(lambda a, c: step(a, carry=c), in_axes=(_axes(algorithm), 0))(algorithm, carry), clients

    clients = None if seats is None else seats.clients(noise, done + 1)
    carry, _ = lax.fori_loop(done + 1, until + 1, every_setting, (carry, clients))
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
            "settings that run together must be of one kind: the same family of problem, kind of network, start and "
            "projection, the same observers, and `participation`, `local_steps` and parts of an optimiser for all or "
            "for none. Run the others separately."
        )

    def join(*leaves: Any) -> Any:
        if any(np.shape(leaf) != np.shape(leaves[0]) for leaf in leaves):
            raise ValueError(
                "settings that run together must have arrays of one shape: the same clients, dimensions, network "
                f"size and number of step sizes; got {np.shape(leaves[0])} and others. Run the others separately."
            )
        if not _is_shared(leaves[0]):
            return np.asarray(leaves[0])[None] if len(leaves) == 1 else np.stack(leaves)  # one need not be copied
        if any(not np.array_equal(leaf, leaves[0]) for leaf in leaves):
            raise ValueError(
                "settings that run together must share the edges of a large network, when and on which edge an attack "
                "begins, the rounds in which clients take part, and what is observed. Run the others separately."
            )
        return leaves[0]

    return jax.tree.map(join, *trees)


def _axes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: None if _is_shared(leaf) else 0, tree)


def _is_shared(leaf: Any) -> bool:
    return np.issubdtype(np.asarray(leaf).dtype if np.isscalar(leaf) else leaf.dtype, np.integer)
