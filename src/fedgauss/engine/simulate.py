"""`simulate`: many replicates of local SGD, folded over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._random import stage_key
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.engine.loop import Algorithm, Carry, advance, begin, read
from fedgauss.engine.mixing import mixing_of
from fedgauss.engine.observers import Average, Cusum, Disagreement, Last, Observer, Path, sup_partial_sum
from fedgauss.engine.progress import ProgressBar
from fedgauss.engine.projections import Everywhere, Projection
from fedgauss.engine.runs import DivergedError, Runs
from fedgauss.engine.starts import ResolvedStart, Start, resolve_start
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem
from fedgauss.problems.linearize import exact_optimum, optimum
from fedgauss.step_sizes import StepSizes, as_step_sizes, sync_mask, warn_if_unstable

_SEGMENT_SECONDS = 0.25  # how long Python waits for the compiled loop: progress and Ctrl-C act in between


def simulate(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
    n_steps: int,
    *,
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1,
    seed: int = 0,
    start: Start = "zeros",
    observe: Sequence[str | Observer] = (),
    keep: Literal["path"] | None = None,
    projection: Projection | None = None,
    memory_budget: float = 2**30,
    progress: bool | None = None,
) -> Runs:
    """Run local SGD (Algorithm 1) `replicates` times: Theta_t = (Theta_{t-1} - eta_t G_t) C_t.

    network        a Network, a mixing matrix or a networkx graph
    steps          eta_t: `step_sizes.polynomial(eta0, beta)`, or an array (n,) or (n, K)
    sync_every     tau, or a mask (n,); clients mix after step t when t % tau == sync_phase; None for never
    start          "zeros", "optimum", near_optimum(sd), or an array (d,), (K, d) or (R, K, d)
    observe        more folds: "sup_partial_sum", "cusum", "disagreement", or objects of `observers`
    keep           "path" keeps every Y_t: runs.path is (R, n, d)
    projection     a set Phi that clients are projected onto after each step
    memory_budget  bytes for the state of the replicates that run at once; results never depend on it
    progress       show a bar (None: in a terminal, when the run takes long)
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be made by fedgauss.problems; got {type(problem).__name__}.")
    n_steps, replicates = _checks.step_number("n_steps", n_steps), _checks.whole("replicates", replicates)
    _check_length(problem, n_steps)
    graph = as_network(network, problem.n_clients)
    eta = _checked_eta(as_step_sizes(steps).eta(n_steps), n_steps, problem.n_clients)
    mask = sync_mask(sync_every, n_steps, sync_phase)
    hessians = _known_hessians(problem)
    if hessians is not None:
        warn_if_unstable(eta, hessians, problem.weights)
    if isinstance(observe, str | Observer):
        observe = [observe]
    if keep is not None:
        _checks.one_of("keep", keep, ["path"])
        observe = [*observe, Path(1)]
    region = Everywhere() if projection is None else projection
    if not isinstance(region, Projection):
        raise ValueError(f"projection must be projections.ball(...) or projections.box(...); got {projection!r}.")
    region.check(problem.dim)
    observers = (Average(), Last(), *(_observer(o, problem) for o in observe))
    if observe:
        _check_observers(observers, problem, n_steps)
    algorithm = Algorithm(
        problem=problem,
        mixing=mixing_of(graph),
        projection=region,
        observers=observers,
        eta=_padded(eta),
        sync=_padded(mask),
        key=stage_key(seed, "data"),
    )
    theta_0 = resolve_start(start, problem, replicates)
    engine = _Engine(_to_device(algorithm), theta_0, stage_key(seed, "start"), n_steps, replicates)
    chunk = engine.chunk_size(replicates, memory_budget)
    values: dict[str, np.ndarray[Any, Any]] = {}
    with ProgressBar("simulating", replicates * n_steps, progress) as bar:
        for first in range(0, replicates, chunk):
            part = engine.run(first, chunk, bar)
            for name, value in part.items():
                whole = values.setdefault(name, np.empty((replicates, *value.shape[1:]), value.dtype))
                whole[first : first + chunk] = value[: replicates - first]
                _check_finite(name, whole[first : first + chunk])
    return Runs(values.pop("average"), values.pop("last"), n_steps, problem.n_clients, seed, values)


class _Engine:
    """Runs chunks of replicates through time, a segment of steps at a time."""

    def __init__(
        self, algorithm: Algorithm, start: ResolvedStart, start_key: Any, n_steps: int, replicates: int
    ) -> None:
        self.algorithm, self.start, self.start_key = algorithm, start, start_key
        self.n_steps, self.replicates = n_steps, replicates
        problem = algorithm.problem
        self.n_clients, self.dim = problem.n_clients, problem.dim
        self.segment: int | None = None

    def carry(self, first: int, count: int) -> Carry:
        """The state before step 1 of replicates first, ..., first + count - 1."""
        start = self.start.replicates(first, count)
        return begin(self.algorithm, start, self.start_key, np.uint32(first), count, self.n_steps)

    def chunk_size(self, replicates: int, memory_budget: float) -> int:
        """How many replicates to run at once: within the budget, and on a CPU within its cache."""
        shapes = begin.eval_shape(self.algorithm, self.start.replicates(0, 64), self.start_key, 0, 64, self.n_steps)
        state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)) / 64
        draws = 4.0 * self.n_clients * (self.dim + 1)
        # Twice, because a segment keeps the state it began with until it is known to have stayed finite.
        largest = int(_checks.real("memory_budget", memory_budget, above=0.0) / (2.0 * state + 3.0 * draws))
        if jax.default_backend() == "cpu":
            largest = min(largest, max(64, int(2**20 / draws)))
        # Chunks of one size share a compilation; evening them out leaves little of the last one unused.
        n_chunks = -(-replicates // max(1, largest))
        chunk = -(-replicates // n_chunks)
        # Below 16 lanes programs take longer to compile, or to run, than with 16; spare ones are dropped.
        return chunk if chunk == 1 and self.n_clients > 3 else max(chunk, 16)

    def run(self, first: int, count: int, bar: ProgressBar) -> dict[str, np.ndarray[Any, Any]]:
        """All steps of one chunk, and what its observers saw."""
        carry, done = self.carry(first, count), 0
        while done < self.n_steps:
            compiled = self.segment is not None
            until = min(self.n_steps, done + (self.segment or self._first_segment(count)))
            began = time.perf_counter()
            after, finite = advance(self.algorithm, carry, np.uint32(first), np.int32(done), np.int32(until))
            if not np.asarray(finite)[: self.replicates - first].all():
                raise self._diverged(carry, first, done, until)
            if compiled or self.segment is None:
                self._adapt(until - done, time.perf_counter() - began, compiled)
            bar.advance(min(count, self.replicates - first) * (until - done))
            carry, done = after, until
        return {name: np.asarray(value) for name, value in read(self.algorithm.observers, carry.states).items()}

    def _first_segment(self, count: int) -> int:
        """A guess for steps that take about a quarter of a second."""
        work = 2e7 if jax.default_backend() == "cpu" else 5e9
        return max(1, int(work / (count * self.n_clients * (self.dim + 1))))

    def _adapt(self, taken: int, seconds: float, compiled: bool) -> None:
        """Lengthen or shorten segments towards `_SEGMENT_SECONDS`; the first call also compiles, so it tells little."""
        if not compiled:
            self.segment = taken
        else:
            factor = np.clip(_SEGMENT_SECONDS / max(seconds, 1e-4), 0.25, 4.0)
            self.segment = max(1, int(taken * factor))

    def _diverged(self, carry: Carry, first: int, done: int, until: int) -> DivergedError:
        """Find the first step and client that are not finite: a non-finite client stays so, which bisection uses."""

        real = self.replicates - first  # spare lanes do not count

        def walk(algorithm: Algorithm, state: Carry, start: int, stop: int) -> Carry:
            return advance(algorithm, state, np.uint32(first), np.int32(start), np.int32(stop))[0]

        def finite(state: Carry) -> np.ndarray[Any, Any]:
            return np.isfinite(np.asarray(state.theta)[..., :real]).all(axis=0)

        low, high = done, until
        while high - low > 1:
            middle = (low + high) // 2
            after = walk(self.algorithm, carry, low, middle)
            if finite(after).all():
                carry, low = after, middle
            else:
                high = middle
        # That step alone, without its mixing and projection, which pass a bad value on or hide it.
        alone = self.algorithm._replace(sync=jnp.zeros_like(self.algorithm.sync), projection=Everywhere())
        good = finite(walk(alone, carry, low, high))
        if good.all():  # the mixing itself overflowed
            good = finite(walk(self.algorithm, carry, low, high))
        replicate = int(np.argmin(good.all(axis=0)))
        client = int(np.argmin(good[:, replicate]))
        eta = np.atleast_1d(self.algorithm.eta[high - 1])
        return DivergedError(high, client, first + replicate, float(eta[client if eta.size > 1 else 0]))


def _observer(choice: str | Observer, problem: Problem) -> Observer:
    if isinstance(choice, Observer):
        return choice
    name = _checks.one_of("observe", choice, ["sup_partial_sum", "cusum", "disagreement"])
    if name == "sup_partial_sum":
        return sup_partial_sum(optimum(problem))
    return Cusum() if name == "cusum" else Disagreement()


def _known_hessians(problem: Problem) -> FloatArray | None:
    """Client Hessians at the optimum, to warn by; a problem without an optimum can be simulated all the same."""
    try:
        found = exact_optimum(problem)
    except ValueError:
        return None
    return None if found is None else found[1]


def _checked_eta(eta: ArrayLike, n_steps: int, n_clients: int) -> FloatArray:
    """Step sizes (n,) or (n, K), finite and positive, whoever made them."""
    array = _checks.real_array("step sizes", eta)
    if array.ndim == 2 and array.shape[1] != n_clients:
        raise ValueError(f"per-client steps must have {n_clients} columns, one a client; got {array.shape[1]}.")
    if array.ndim not in (1, 2) or len(array) != n_steps:
        raise ValueError(f"step sizes must have shape ({n_steps},) or ({n_steps}, {n_clients}); got {array.shape}.")
    if np.any(array <= 0):
        t = int(np.argmax((array <= 0).reshape(n_steps, -1).any(axis=1))) + 1
        raise ValueError(f"step sizes must be positive; at step {t} one is {np.min(array[t - 1]):g}.")
    return array


def _check_finite(name: str, values: np.ndarray[Any, Any]) -> None:
    if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        raise ArithmeticError(
            f"{name} must be finite, but it left the range of float32 although every client stayed inside. "
            "Rescale the problem, so that iterates stay below 1e18."
        )


def _check_observers(observers: Sequence[Observer], problem: Problem, n_steps: int) -> None:
    theta = jax.ShapeDtypeStruct((problem.dim, problem.n_clients, 1), jnp.float32)
    seen: set[str] = set()
    for observer in observers:
        observer.check(problem.dim, n_steps)
        for name in jax.eval_shape(lambda at, o=observer: o.value(o.init(at, n_steps)), theta):
            if name in seen:
                raise ValueError(f"{name!r} is observed twice. Drop one, or give observers.at another suffix.")
            seen.add(name)


def _check_length(problem: Problem, n_steps: int) -> None:
    longest = problem.max_steps()
    if longest is not None and n_steps > longest:
        raise ValueError(
            f"n_steps must not exceed the rows of the smallest client when data are read once; got {n_steps} > "
            f"{longest}. Use n_steps={longest}, or from_arrays(..., order='replacement')."
        )


def _padded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Pad time to a power of two, so that runs of nearby lengths share a compilation."""
    length = 1 << max(8, (len(array) - 1).bit_length())
    return np.concatenate([array, np.zeros((length - len(array), *array.shape[1:]), array.dtype)])


def _to_device(algorithm: Algorithm) -> Algorithm:
    """Move every array once, floating ones as float32; plain numbers become arrays, never compiled-in constants."""

    def move(leaf: Any) -> Any:
        array = np.asarray(leaf)
        return jax.device_put(array.astype(np.float32) if array.dtype == np.float64 else array)

    return jax.tree.map(move, algorithm)
