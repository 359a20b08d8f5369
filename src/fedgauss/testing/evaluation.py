"""Parts at work: gradients by small programs that compile quickly, and the engine's loop on a given algorithm."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import add_up
from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import AnyArray, FloatArray, IntArray, JaxArray
from fedgauss.engine.loop import Algorithm, Observer, ResolvedStart, advance, begin, stack
from fedgauss.engine.mixing import mixing_of
from fedgauss.networks import Network, complete
from fedgauss.problems.base import Problem
from fedgauss.testing.battery import expect

SEED = 20_250_101
_PADDED = 256  # steps that the engine pads short runs to

T = TypeVar("T")


class Program(NamedTuple):
    """A traced function. Numbers that come from elsewhere than its arguments are constants of it."""

    words: str
    constants: tuple[Any, ...]

    def same(self, other: Program) -> bool:
        """Whether it would compute the same."""
        pairs = zip(self.constants, other.constants, strict=False)
        return self.words == other.words and all(np.array_equal(mine, theirs) for mine, theirs in pairs)


def on_device(part: T) -> T:
    """The part with its numbers as the engine has them: arrays, floating ones in float32."""

    def narrow(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return jnp.asarray(array.astype(np.float32) if array.dtype == np.float64 else array)

    return jax.tree.map(narrow, part)


# A battery runs many small programs once each, so that compiling them is nearly all of its time.
quickly = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _draw(
    problem: Problem, key: Key, first: JaxArray, t: JaxArray, theta: JaxArray, clients: JaxArray | None = None
) -> tuple[Any, JaxArray]:
    noise = Noise(key, first, problem.n_clients, theta.shape[-1], clients=clients)
    data = problem.sample(noise.at_step(t), t)
    return data, problem.gradient(theta, data)


_evaluate = quickly(_draw)


def evaluate(problem: Problem, theta: FloatArray, t: int = 1, first: int = 0, seed: int = SEED) -> tuple[Any, JaxArray]:
    """Data of step t for replicates first, first + 1, ..., and the gradients there at theta (d, K, R)."""
    key = stage_key(seed, "data")
    return _evaluate(on_device(problem), key, jnp.uint32(first), jnp.int32(t), jnp.asarray(theta, jnp.float32))


def traced(function: Callable[..., Any], *arguments: Any) -> Program:
    """What JAX would compile, in words, and the constants in it: traced afresh at every call."""
    return _program(jax.make_jaxpr(lambda *given: function(*given))(*arguments))


def traced_twice(problem: Problem, theta: FloatArray) -> tuple[Program, Program]:
    """What `evaluate` compiled, and what it would compile now."""
    counters = jnp.uint32(0), jnp.int32(1), jnp.asarray(theta, jnp.float32)
    arguments = on_device(problem), stage_key(SEED, "data"), *counters
    return _program(_evaluate.trace(*arguments).jaxpr), traced(_draw, *arguments)


def _program(found: Any) -> Program:
    return Program(re.sub("0x[0-9a-f]+", "", str(found)), tuple(found.consts))


def gradients_of_some(problem: Problem, theta: FloatArray, clients: IntArray) -> JaxArray:
    """The gradients of some clients (m, R) alone at theta (d, m, R), in step 1."""
    counters = jnp.uint32(0), jnp.int32(1), jnp.asarray(theta, jnp.float32)
    return _evaluate(on_device(problem), stage_key(SEED, "data"), *counters, jnp.asarray(clients, jnp.int32))[1]


@quickly
def curvatures(problem: Problem, theta: JaxArray, data: Any, along: JaxArray) -> tuple[JaxArray, ...]:
    """At one step's data and theta (d, K, R): curvature and steepness along (d,), and a difference of gradients.

    Also the curvature by factors of the second derivative, or once more as it is where the problem has none.
    """
    towards, width = jnp.broadcast_to(along[:, None, None], theta.shape), 1e-2
    ends = [problem.gradient(theta + side * width * towards, data) for side in (1.0, -1.0)]
    slope = (ends[0] - ends[1]) / (2.0 * width)
    curvature, factors = problem.curvature(theta, data, towards), problem.hessian_factors(theta, data)
    factored = curvature if factors is None else add_up(factors[0] * add_up(factors[1] * towards, axis=1)[:, None])
    return curvature, problem.steepness(theta, data, towards), slope, factored


@quickly
def mean_gradient(problem: Problem, theta: JaxArray) -> JaxArray:
    """The closed form at theta (d, K, R)."""
    return problem.mean_gradient(theta)


def shared_shape(problem: Problem, count: int) -> tuple[int, ...]:
    """The shape of the gradients of several replicates on the data of one."""

    def gradients(problem: Problem) -> JaxArray:
        t, key = jnp.int32(1), (jnp.uint32(0), jnp.uint32(0))
        one = problem.sample(Noise(key, jnp.uint32(0), problem.n_clients, 1).at_step(t), t)
        return problem.gradient(jnp.zeros((problem.dim, problem.n_clients, count)), problem.shared(one, count))

    return jax.eval_shape(gradients, on_device(problem)).shape


def everywhere(point: FloatArray, n_clients: int, count: int) -> FloatArray:
    """One point (d,) for every client and replicate, (d, K, R)."""
    return np.broadcast_to(np.asarray(point, float)[:, None, None], (len(point), n_clients, count))


def algorithm(problem: Problem, observers: tuple[Observer, ...] = ()) -> Algorithm:
    """Local SGD with steps of .1, in which everybody averages after every second step."""
    mixing = mixing_of(complete(problem.n_clients), problem.dim)
    eta, sync = np.full(_PADDED, 0.1), np.arange(_PADDED) % 2 == 1
    return Algorithm(problem, mixing, None, observers, eta, sync, stage_key(SEED, "data"))


def mixed(network: Network, theta: AnyArray) -> JaxArray:
    """Theta C_t as the engine mixes theta (d, K, R), at a step 0 before all others."""
    dim, n_clients, runs = theta.shape
    noise = Noise(stage_key(SEED, "data"), jnp.uint32(0), n_clients, runs)
    mixing = mixing_of(network, dim)
    return quickly(lambda theta: mixing.mix(theta, jnp.int32(0), noise))(jnp.asarray(theta, jnp.float32))


# The engine's loop itself, compiled like the rest of a battery.
quick_advance = quickly(advance.__wrapped__)  # type: ignore[attr-defined]


def start(dim: int, settings: int) -> ResolvedStart:
    """Everybody at zero, in every setting."""
    return stack([ResolvedStart(np.zeros((dim, 1, 1)))] * settings)


def trace(problem: Problem) -> None:
    """Trace the engine's loop, without compiling it."""
    stacked = on_device(stack([algorithm(problem)]))
    stacked = stacked._replace(problem=stacked.problem.replicates(0, 16))
    key = stage_key(SEED, "start")
    carry = begin.eval_shape(stacked, start(problem.dim, 1), key, np.uint32(0), 16, 4)
    advance.eval_shape(stacked, carry, np.uint32(0), np.int32(0), np.int32(4))


def expect_pytree(part: Any) -> None:
    """Expect that JAX can take a part to pieces and put it together again, whatever the pieces are."""
    leaves, found = jax.tree.flatten(part)
    structure: Any = found
    expect(
        not any(leaf is part for leaf in leaves),
        f"{type(part).__name__} is a leaf itself, so that none of its numbers can be traced",
        "decorate the class with fedgauss.problems.pytree.",
    )
    odd = [type(leaf).__name__ for leaf in leaves if np.asarray(leaf).dtype.kind not in "fiub"]
    fix = "mark fields that are not numbers with field(metadata={'static': True})."
    expect(not odd, f"fields that are not numbers: {', '.join(odd)}", fix)
    for each in fields(part) if is_dataclass(part) else ():
        if each.metadata.get("static"):
            value = getattr(part, each.name)
            try:
                hash(value)
            except TypeError as error:
                fix = "make arrays ordinary fields, and lists tuples."
                expect(False, f"a static field {each.name} that cannot be hashed: {error}", fix)
    try:
        again = jax.tree.unflatten(structure, [None] * len(leaves))
    except Exception as error:
        got = f"{type(error).__name__} with placeholders in place of its numbers: {error}"
        expect(False, got, "check and convert arguments in a function that makes the part, not in the class.")
    expect(type(again) is type(part), f"{type(again).__name__} in its place", "register the class itself with JAX.")
    expect(
        structure != jax.tree.structure(_twin(part)),
        "a structure equal to that of another class with the same fields, whose compiled programs it may be given",
        "use fedgauss.problems.pytree, not jax.tree_util.register_dataclass.",
    )
    same = jax.tree.unflatten(structure, leaves)
    expect(
        jax.tree.structure(same) == structure
        and all(a is b for a, b in zip(jax.tree.leaves(same), leaves, strict=True)),
        "other pieces after a round trip",
        "flatten and unflatten must be each other's inverse; fedgauss.problems.pytree sees to it.",
    )


def _twin(part: Any) -> Any:
    """The same fields and values in a dataclass of another type, registered in JAX's own way."""
    own = fields(part) if is_dataclass(part) else ()
    twin = make_dataclass("Twin", [(each.name, Any, field(metadata=each.metadata)) for each in own])
    jax.tree_util.register_dataclass(twin)
    return twin(*(getattr(part, each.name) for each in own))
