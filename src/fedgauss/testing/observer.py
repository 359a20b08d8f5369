"""What every observer must keep to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss._lanes import client_mean
from fedgauss._random import Noise, stage_key
from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step, begin, read, stack
from fedgauss.engine.runs import Runs
from fedgauss.problems.base import Problem, checked_problem, claims, pytree
from fedgauss.testing.battery import Check, Report, checks, expect, not_applicable, run
from fedgauss.testing.evaluation import (
    SEED,
    algorithm,
    expect_pytree,
    on_device,
    quick_advance,
    quickly,
    start,
    traced,
)

_STEPS, _SEGMENT = 11, 4  # of the battery's run, and of the first part of it
_REPLICATES = 16
_ROUNDING = 1e-4  # relative, between programs in float32
_TAKEN = {"n_steps", "n_clients", "seed", "observed", *(name for name in vars(Runs) if not name.startswith("_"))}


def check_observer(observer: Observer, problem: Problem | None = None) -> Report:
    """Check an observer of your own: a fold over the path that the engine may cut into segments and chunks as it likes.

    Parameters
    ----------
    observer : Observer
        One that fits a run of 11 steps in as many dimensions as `problem` has.
    problem : Problem, optional
        What is run; by default a quadratic in 2 dimensions with 3 clients. Needed by observers that look at the
        gradients or data of a particular kind of problem.

    Returns
    -------
    Report
        The outcome of every check; printed, it lists them.

    Raises
    ------
    ConformanceError
        If any rule is broken. It lists all broken rules, with what was found and how to mend it.

    Examples
    --------
    >>> import fedgauss as fg
    >>> from fedgauss.testing import check_observer
    >>> print(check_observer(fg.observers.Disagreement()))  # doctest: +SKIP
    """
    return run(f"observer {type(observer).__name__}", checks_for_observer(observer, problem))


def checks_for_observer(observer: Observer, problem: Problem | None = None) -> list[Check]:
    """The checks of `check_observer` one by one, for `pytest.mark.parametrize("check", ..., ids=str)`.

    Parameters
    ----------
    observer, problem
        As in `check_observer`.

    Returns
    -------
    list of Check
        Each is called without arguments and raises an AssertionError if its rule is broken.
    """
    if not isinstance(observer, Observer):
        got = type(observer).__name__
        raise ValueError(f"an observer must be a subclass of fedgauss.engine.observers.Observer; got {got}.")
    return checks(_RULES, _Case(observer, _Wobble.make() if problem is None else checked_problem(problem)))


@pytree
class _Wobble(Problem):
    """Gradients theta_k - center_k less a wobble by step, client and replicate: noise that compiles quickly."""

    centers: FloatArray  # (d, K)
    weights: FloatArray  # (K,)

    @classmethod
    def make(cls) -> _Wobble:
        """Two dimensions, three clients."""
        return cls(np.array([[1.0, 2.0, -1.0], [0.5, -2.0, 1.5]]), np.array([0.2, 0.3, 0.5]))

    @property
    def dim(self) -> int:
        """d."""
        return int(np.shape(self.centers)[0])

    def sample(self, noise: Noise, t: JaxArray) -> JaxArray:
        """The wobble, (d, K, R)."""
        shape = (self.dim, noise.n_clients, noise.n_replicates)
        coordinate, client, replicate = (jax.lax.broadcasted_iota(jnp.float32, shape, axis) for axis in range(3))
        replicate = replicate + jnp.float32(noise.first)
        return jnp.sin(1.7 * jnp.float32(t) + 2.3 * coordinate + 0.9 * client + 0.61 * replicate)

    def gradient(self, theta: JaxArray, data: JaxArray) -> JaxArray:
        """theta_k - center_k - wobble."""
        return theta - jnp.asarray(self.centers)[:, :, None] - data


class _Case:
    """An observer, the problem it watches, and its results."""

    def __init__(self, observer: Observer, problem: Problem) -> None:
        self.observer, self.problem = observer, problem
        self.length = _STEPS if observer.keeps_time else 0

    def results(self, stops: Sequence[int] = (_STEPS,), first: int = 0, settings: int = 1) -> dict[str, Any]:
        """What the observer saw of replicates first, ..., in a run that is cut at these steps, (S, R, ...)."""
        several = [algorithm(self.problem, (self.observer,))] * settings
        stacked, theta = on_device(stack(several)), on_device(start(self.problem.dim, settings))
        stacked = stacked._replace(problem=stacked.problem.replicates(first, _REPLICATES))
        carry = begin(stacked, theta, stage_key(SEED, "start"), np.uint32(first), _REPLICATES, self.length)
        for done, until in zip((0, *stops), stops, strict=False):
            carry, _ = quick_advance(stacked, carry, np.uint32(first), np.int32(done), np.int32(until))
        return {name: np.asarray(value) for name, value in read(stacked.observers, carry.states).items()}

    @cached_property
    def whole(self) -> dict[str, Any]:
        """In one segment and one chunk, alone."""
        return self.results()

    @cached_property
    def theta(self) -> JaxArray:
        """Some Theta_0, (d, K, R)."""
        shape = (self.problem.dim, self.problem.n_clients, _REPLICATES)
        return jnp.asarray(np.random.default_rng(SEED).standard_normal(shape), jnp.float32)

    def update(self, state: Any, theta: JaxArray) -> Any:
        """One step of the observer, away from the engine."""
        noise = Noise(stage_key(SEED, "data"), jnp.uint32(0), self.problem.n_clients, _REPLICATES)
        t = jnp.int32(1)
        data = self.problem.sample(noise.at_step(t), t)
        return self.observer.update(state, Step(t, self.problem, theta, data, theta, theta, client_mean(theta), noise))

    def state(self, n_steps: int) -> Any:
        """Shapes of the state before the first step of a run of this length."""
        return jax.eval_shape(lambda theta: self.observer.init(theta, n_steps), self.theta)


def _pytree(case: _Case) -> None:
    """JAX can take the observer to pieces and put it together again: numbers are leaves, everything else is static."""
    expect_pytree(case.observer)


def _suits_the_run(case: _Case) -> None:
    """`check` lets an ordinary run pass."""
    case.observer.check(case.problem.dim, _STEPS)


def _names(case: _Case) -> None:
    """`value` is a dictionary of names that can be attributes of the runs and hide none that they have."""
    fix = "return {'my_name': array} from `value`."
    found = jax.eval_shape(case.observer.value, case.state(case.length))
    expect(isinstance(found, dict) and found, f"{type(found).__name__} {found!r}", fix)
    for name in found:
        expect(isinstance(name, str) and name.isidentifier(), f"the name {name!r}", fix)
        expect(name not in _TAKEN, f"{name!r}, which runs have already", "choose another name.")


def _replicates_last(case: _Case) -> None:
    """Every value has the replicates as its last axis."""
    for name, shape in jax.eval_shape(case.observer.value, case.state(case.length)).items():
        got = f"{name} of shape {shape.shape} for {_REPLICATES} replicates"
        fix = "keep the last axis of theta; use jnp.broadcast_to for what is the same in all."
        expect(shape.shape[-1:] == (_REPLICATES,), got, fix)


def _same_state(case: _Case) -> None:
    """A step changes the numbers in the state and neither its structure nor its shapes and types."""
    try:
        case.whole  # noqa: B018
    except TypeError as error:
        said = " ".join(str(error).split())[:300]
        fix = "make the state in `init` with the shapes and types that `update` returns: jnp.int32(0), not 0."
        expect(False, said, fix)


def _memory(case: _Case) -> None:
    """The state does not grow with the run, or does so no faster than a table over time and says so by `keeps_time`."""
    sizes = {n: sum(leaf.size for leaf in jax.tree.leaves(case.state(n))) for n in (_STEPS, 2 * _STEPS, 4 * _STEPS)}
    short, middle, long = sizes.values()
    got = f"{short}, {middle} and {long} numbers for runs of {', '.join(map(str, sizes))} steps"
    if not case.observer.keeps_time:
        expect(short == middle == long, got, "leave keeps_time at True, or keep running sums instead of a table.")
    expect(long - middle <= 2 * (middle - short), got, "keep one row a step at most.")


def _segments(case: _Case) -> None:
    """The engine may stop after any step and go on: all that an observer remembers is in its state."""
    _expect_equal(case.results((_SEGMENT, _STEPS)), case.whole, "in two segments", 0.0)


def _chunks(case: _Case) -> None:
    """A replicate's values do not depend on the replicates that are computed with it."""
    half = _REPLICATES // 2
    here = {name: value[:, half:] for name, value in case.whole.items()}
    there = {name: value[:, :half] for name, value in case.results(first=half).items()}
    _expect_equal(there, here, "when the chunk begins at another replicate", _ROUNDING)


def _together(case: _Case) -> None:
    """Several settings can run together, each seen as if it were alone."""
    both = case.results(settings=2)
    for setting in range(2):
        one = {name: value[setting : setting + 1] for name, value in both.items()}
        _expect_equal(one, case.whole, f"as setting {setting} of two", _ROUNDING)


def _pure(case: _Case) -> None:
    """An observer keeps nothing outside its state: traced a second time, a step does the same."""
    once, again = (traced(case.update, case.state(case.length), case.theta) for _ in range(2))
    fix = "put what changes into the state; an observer itself never changes."
    expect(once.same(again), "another program the second time", fix)


def _finite(case: _Case) -> None:
    """Values of a finite run are finite."""
    for name, value in case.whole.items():
        good = np.isfinite(value)
        got = f"{np.count_nonzero(~good)} of {good.size} entries of {name} that are not"
        expect(good.all(), got, "guard divisions and logarithms.")


def _looks_at_the_path(case: _Case) -> None:
    """Values come from the path: they are not the same after one step as at the end."""
    early = case.results((1,))
    if any(np.any(early[name] != value) for name, value in case.whole.items()):
        return
    if case.observer.keeps_time:
        not_applicable("it looks at chosen steps")
    expect(False, "the same values after step 1 and step 11", "take `step` into account in `update`.")


def _mean_alone(case: _Case) -> None:
    """An observer that says `mean_only` sees the same if all clients stand at their mean, be they few or many."""
    if not claims(case.observer, "mean_only"):
        not_applicable("it looks at clients")

    @quickly
    def seen(theta: JaxArray) -> dict[str, JaxArray]:
        return case.observer.value(case.update(case.observer.init(theta, case.length), theta))

    together = seen(client_mean(case.theta)[:, None])
    _expect_equal(together, seen(case.theta), "when all clients stand at their mean", _ROUNDING)


def _expect_equal(found: dict[str, Any], wanted: dict[str, Any], how: str, rounding: float) -> None:
    expect(found.keys() == wanted.keys(), f"{sorted(found)} {how}, not {sorted(wanted)}", "always return one set.")
    for name, value in found.items():
        scale = np.abs(np.asarray(wanted[name], float)).max(initial=0.0)
        gap = np.abs(np.asarray(value, float) - np.asarray(wanted[name], float)).max(initial=0.0)
        fix = "keep everything in the state, and treat the last axis entry by entry."
        expect(gap <= rounding * scale, f"{name} differs by {gap:.3g} {how}", fix)


_RULES: Sequence[Any] = (
    _pytree, _suits_the_run, _names, _replicates_last, _same_state, _memory, _finite, _looks_at_the_path, _segments,
    _chunks, _together, _pure, _mean_alone,
)  # fmt: skip
