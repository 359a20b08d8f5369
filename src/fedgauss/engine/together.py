"""`simulate_together`: several settings over the same random numbers, drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax
import numpy as np

from fedgauss import _checks
from fedgauss._progress import ProgressBar
from fedgauss._random import Key, stage_key
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.engine.chunks import Chunks
from fedgauss.engine.loop import Algorithm, stack
from fedgauss.engine.mixing import mixing_of
from fedgauss.engine.observers import Average, CusumPath, Disagreement, Last, Observer, Path, sup_partial_sum
from fedgauss.engine.projections import Everywhere, Projection
from fedgauss.engine.runs import Runs
from fedgauss.engine.starts import ResolvedStart, Start, resolve_start
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem, checked_problem
from fedgauss.problems.linearize import exact_optimum, optimum
from fedgauss.step_sizes import StepSizes, as_step_sizes, sync_mask, warn_if_unstable


@dataclass(frozen=True)
class Setting:
    """What may differ between runs that share their random numbers; for `simulate_together`.

    Parameters
    ----------
    problem, network, steps, sync_every, sync_phase, start, observe, projection
        As in `simulate`.
    """

    problem: Problem
    network: Network | ArrayLike | None
    steps: StepSizes | ArrayLike
    sync_every: int | BoolArray | None = 1
    sync_phase: int = 0
    start: Start = "zeros"
    observe: Sequence[str | Observer] = ()
    projection: Projection | None = None

    def __post_init__(self) -> None:
        alone = isinstance(self.observe, str | Observer)  # a single one need not be in a list
        object.__setattr__(self, "observe", (self.observe,) if alone else tuple(self.observe))

    def keeping(self, keep: Literal["path"] | None) -> Setting:
        """This setting, with every Y_t kept if `keep` is "path"."""
        if keep is None:
            return self
        _checks.one_of("keep", keep, ["path"])
        return replace(self, observe=(*self.observe, Path(1)))


def simulate_together(
    settings: Sequence[Setting],
    n_steps: int,
    *,
    replicates: int = 1,
    seed: int = 0,
    after: int = 0,
    memory_budget: float = 2**30,
    progress: bool | None = None,
) -> list[Runs]:
    """`simulate` for each setting, to the same bits, in one pass: random numbers are drawn once for all.

    Drawing them is most of the work, so many settings cost little more than a few, and a comparison of two of them is
    free of most of the noise.

    Parameters
    ----------
    settings : sequence of Setting
        They must be of one kind and shape: the same family of problem, number of clients and dimensions, and the same
        observers.
    n_steps, replicates, seed, after, memory_budget, progress
        As in `simulate`, for all settings.

    Returns
    -------
    list of Runs
        One for each setting, in order.
    """
    if not settings:
        raise ValueError("settings must list at least one Setting; got none.")
    n_steps, replicates = _checks.step_number("n_steps", n_steps), _checks.whole("replicates", replicates)
    after = _checks.whole("after", after, at_least=0, at_most=n_steps - 1, fix="n_steps counts from step 1.")
    key = stage_key(seed, "data")
    algorithms = [_algorithm(setting, n_steps, key) for setting in settings]
    theta_0 = _stacked_starts([resolve_start(s.start, s.problem, replicates) for s in settings])
    chunks = Chunks(_to_device(stack(algorithms)), theta_0, stage_key(seed, "start"), n_steps, replicates, after)
    size = chunks.size(memory_budget)
    values: dict[str, np.ndarray[Any, Any]] = {}
    with ProgressBar("simulating", replicates * (n_steps - after), progress) as bar:
        for first in range(0, replicates, size):
            for name, part in chunks.run(first, size, bar).items():
                shape = (len(settings), replicates, *part.shape[2:])
                every = values.setdefault(name, np.empty(shape, part.dtype))
                every[:, first : first + size] = part[:, : replicates - first]
                _check_finite(name, every[:, first : first + size])
    return [
        _runs({name: every[s] for name, every in values.items()}, n_steps, setting.problem.n_clients, seed)
        for s, setting in enumerate(settings)
    ]


def _algorithm(setting: Setting, n_steps: int, key: Key) -> Algorithm:
    """Check a setting and assemble its arrays."""
    problem = checked_problem(setting.problem)
    _check_length(problem, n_steps)
    graph = as_network(setting.network, problem.n_clients)
    eta = _checked_eta(as_step_sizes(setting.steps).eta(n_steps), n_steps, problem.n_clients)
    mask = sync_mask(setting.sync_every, n_steps, setting.sync_phase)
    hessians = _known_hessians(problem) if problem.plain_steps else None
    if hessians is not None:
        warn_if_unstable(eta, hessians, problem.weights)
    region = Everywhere() if setting.projection is None else setting.projection
    if not isinstance(region, Projection):
        raise ValueError(
            f"projection must be projections.ball(...) or projections.box(...); got {setting.projection!r}."
        )
    region.check(problem.dim)
    observers = (Average(), Last(), *(_observer(o, problem) for o in setting.observe))
    for observer in observers:
        observer.check(problem.dim, n_steps)
    return Algorithm(problem, mixing_of(graph, problem.dim), region, observers, _padded(eta), _padded(mask), key)


def _stacked_starts(starts: Sequence[ResolvedStart]) -> ResolvedStart:
    """Starts of several kinds as one: where one has noise, the others have noise of size zero."""
    if any(start.sd is not None for start in starts):
        starts = [start if start.sd is not None else replace(start, sd=0.0) for start in starts]
    shape = np.broadcast_shapes(*(start.fixed.shape for start in starts))
    return stack([replace(start, fixed=np.broadcast_to(start.fixed, shape)) for start in starts])


def _runs(values: dict[str, np.ndarray[Any, Any]], n_steps: int, n_clients: int, seed: int) -> Runs:
    return Runs(values.pop("average"), values.pop("last"), n_steps, n_clients, seed, values)


def _observer(choice: str | Observer, problem: Problem) -> Observer:
    if isinstance(choice, Observer):
        return choice
    name = _checks.one_of("observe", choice, ["sup_partial_sum", "cusum", "disagreement"])
    if name == "sup_partial_sum":
        return sup_partial_sum(optimum(problem))
    return CusumPath() if name == "cusum" else Disagreement()


def _known_hessians(problem: Problem) -> FloatArray | None:
    """Client Hessians at the optimum, for a warning; a problem without an optimum can be simulated all the same."""
    try:
        optimum_and_hessians = exact_optimum(problem)
    except ValueError:
        return None
    return None if optimum_and_hessians is None else optimum_and_hessians[1]


def _checked_eta(eta: ArrayLike, n_steps: int, n_clients: int) -> FloatArray:
    """Step sizes (n,) or (n, K), finite and positive, wherever they come from."""
    array = _checks.real_array("step sizes", eta)
    if array.ndim == 2 and array.shape[1] != n_clients:
        raise ValueError(f"per-client steps must have {n_clients} columns, one per client; got {array.shape[1]}.")
    if array.ndim not in (1, 2) or len(array) != n_steps:
        raise ValueError(f"step sizes must have shape ({n_steps},) or ({n_steps}, {n_clients}); got {array.shape}.")
    if np.any(array <= 0):
        t = int(np.argmax((array <= 0).reshape(n_steps, -1).any(axis=1))) + 1
        raise ValueError(f"step sizes must be positive; at step {t} one is {np.min(array[t - 1]):g}.")
    return array


def _check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise ArithmeticError(
            f"{name} must be finite, but it left the range of float32 although every client stayed inside it. "
            "Rescale the problem so that iterates stay below 1e18."
        )


def _check_length(problem: Problem, n_steps: int) -> None:
    longest = problem.max_steps()
    if longest is not None and n_steps > longest:
        raise ValueError(
            f"n_steps must not exceed the rows of the smallest client when data are read once; got {n_steps} > "
            f"{longest}. Use n_steps={longest}, or from_arrays(..., order='replacement')."
        )


def _padded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Time padded to a power of two, so that runs of similar length share a compilation."""
    length = 1 << max(8, (len(array) - 1).bit_length())
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def _to_device(algorithm: Algorithm) -> Algorithm:
    """Move every array once, floating ones as float32; plain numbers become arrays, never compiled-in constants."""

    def narrow(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return array.astype(np.float32) if array.dtype == np.float64 else array

    return jax.device_put(jax.tree.map(narrow, algorithm))
