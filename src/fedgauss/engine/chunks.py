"""Runs replicates in chunks that fit the memory, and each chunk in segments of time that a user can wait for."""

import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._memory import check_memory
from fedgauss._progress import ProgressBar
from fedgauss._random import Key, Noise
from fedgauss._types import AnyArray, BoolArray, JaxArray
from fedgauss.engine.devices import Devices, Split, mesh_for
from fedgauss.engine.loop import Algorithm, Carry, ResolvedStart, advance, begin, read

_SEGMENT_SECONDS = 0.25  # how long Python waits for the compiled loop: progress and Ctrl-C act in between
_CACHE = 2**19  # bytes that a CPU keeps close to a core: the draws of a step and Theta_t of every setting


class DivergedError(ArithmeticError):
    """A run left the finite numbers.

    Attributes
    ----------
    step, client, replicate : int
        Where this happened first.
    eta : float
        The step size there.

    Examples
    --------
    >>> import fedgauss as fg
    >>> try:
    ...     raise fg.DivergedError(step=12, client=3, replicate=0, eta=50.0)  # as `simulate` does
    ... except fg.DivergedError as error:
    ...     print(f"client {error.client} at step {error.step}")
    client 3 at step 12
    """

    def __init__(self, step: int, client: int, replicate: int, eta: float) -> None:
        self.step, self.client, self.replicate, self.eta = step, client, replicate, eta
        super().__init__(
            f"the run must stay finite, but client {client} left the finite numbers at step {step} "
            f"(replicate {replicate}, eta = {eta:.3g}). Use a smaller eta0 or a larger shift in step_sizes, "
            "or a projection such as projections.ball(radius)."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.step, self.client, self.replicate, self.eta)  # so that it crosses processes


class Chunks:
    """The replicates of S stacked algorithms, a chunk at a time."""

    def __init__(
        self, algorithm: Algorithm, start: ResolvedStart, start_key: Key, n_steps: int, replicates: int, after: int = 0
    ) -> None:
        self.algorithm, self.start, self.start_key = algorithm, start, start_key
        self.n_steps, self.replicates, self.after = n_steps, replicates, after
        self.n_settings, self.n_clients = algorithm.problem.weights.shape
        self.columns = self.n_clients if algorithm.seats is None else algorithm.seats.count
        self.dim = start.fixed.shape[1]
        self.segment: int | None = None
        # Static in the program that begins a run, so only passed on where an observer needs it.
        self.length = n_steps if any(o.keeps_time for o in algorithm.observers) else 0
        self.n_devices = 1
        self.begin: Callable[..., Carry] = begin
        self.advance: Callable[..., tuple[Carry, JaxArray]] = advance
        if (mesh := mesh_for(replicates)) is not None:
            parts = Split.of(lambda count: self._part(0, count)), Split.of(lambda count: start.replicates(0, count))
            devices = Devices(mesh, *parts, Split.of(self._shapes))
            self.n_devices, self.begin, self.advance = mesh.size, devices.begin, devices.advance
            self.algorithm = devices.everywhere(algorithm)

    def size(self, memory_budget: float) -> int:
        """How many replicates to run at once: on each device within the budget, and on a CPU within its cache."""
        state = _bytes(self._shapes(64)) / 64
        what = f"the state of one replicate, {self.columns:,} clients in {self.dim:,} dimensions,"
        check_memory(what, int(2 * state), "Use fewer clients, dimensions or steps that are kept.")
        draws = 4.0 * self.columns * (self.dim + 1)
        draws += 12.0 * (self.n_clients - self.columns)  # for the lots of those without a column
        # Twice, because a segment keeps the state it began with until it is known to have stayed finite.
        largest = int(_checks.real("memory_budget", memory_budget, above=0.0) / (2.0 * state + 3.0 * draws))
        share = -(-self.replicates // self.n_devices)
        if self.columns > 3 and min(largest, share) <= 1:
            return self.n_devices
        if jax.default_backend() != "cpu":  # as even as can be: an accelerator wants many lanes
            n_chunks = -(-share // max(16, largest))
            return self.n_devices * max(16, -(-share // n_chunks))
        theta = 4.0 * self.n_settings * self.columns * self.dim
        return self.n_devices * _lanes(share, min(largest, max(64, int(_CACHE / (draws + theta)))))

    @cached_property
    def results(self) -> dict[str, jax.ShapeDtypeStruct]:
        """What is kept of 64 replicates: doubles, so that reductions are right, but for tables over time."""
        kept: dict[str, jax.ShapeDtypeStruct] = {}
        for observer, state in zip(self.algorithm.observers, self._shapes(64).states, strict=True):
            for name, value in read.eval_shape((observer,), (state,)).items():
                single = observer.keeps_time or value.dtype != np.float32
                kept[name] = jax.ShapeDtypeStruct(value.shape, value.dtype if single else np.float64)
        return kept

    def result_bytes(self) -> int:
        """What is kept of each replicate, in all settings."""
        return -(-_bytes(self.results) // 64)

    def _shapes(self, count: int) -> Carry:
        """The state of so many replicates, without its numbers."""
        start = self.start.replicates(0, count)
        shapes: Carry = begin.eval_shape(self._part(0, count), start, self.start_key, 0, count, self.length)
        return shapes

    def run(self, first: int, count: int, bar: ProgressBar) -> dict[str, AnyArray]:
        """All steps of replicates first, ..., first + count - 1, and what observers saw, (S, count, ...)."""
        start, algorithm = self.start.replicates(first, count), self._part(first, count)
        carry = self.begin(algorithm, start, self.start_key, np.uint32(first), count, self.length)
        done = self.after
        while done < self.n_steps:
            until = min(self.n_steps, done + (self.segment or self._first_segment(count)))
            began = time.perf_counter()
            after, finite = self.advance(algorithm, carry, np.uint32(first), np.int32(done), np.int32(until))
            if not np.asarray(finite)[:, : self.replicates - first].all():
                raise self._diverged(algorithm, carry, first, done, until)
            self._adapt(until - done, time.perf_counter() - began)
            bar.advance(min(count, self.replicates - first) * (until - done))
            carry, done = after, until
        return {name: np.asarray(value) for name, value in read(algorithm.observers, carry.states).items()}

    def _part(self, first: int, count: int) -> Algorithm:
        """The algorithm of replicates first, ..., for problems that know something of each."""
        return self.algorithm._replace(problem=self.algorithm.problem.replicates(first, count))

    def _first_segment(self, count: int) -> int:
        """A guess for steps that take about a quarter of a second."""
        work = 2e7 if jax.default_backend() == "cpu" else 5e9
        return max(1, int(work / (count * self.columns * (self.dim * self.n_settings + 1))))

    def _adapt(self, taken: int, seconds: float) -> None:
        """Lengthen or shorten segments towards `_SEGMENT_SECONDS`; the first call also compiles, so it says little."""
        factor = 1.0 if self.segment is None else np.clip(_SEGMENT_SECONDS / max(seconds, 1e-4), 0.25, 4.0)
        self.segment = max(1, int(taken * factor))

    def _diverged(self, algorithm: Algorithm, carry: Carry, first: int, done: int, until: int) -> DivergedError:
        """Find the first step and client that are not finite: a non-finite client stays so, which bisection uses."""

        def walk(algorithm: Algorithm, state: Carry, start: int, stop: int) -> Carry:
            return self.advance(algorithm, state, np.uint32(first), np.int32(start), np.int32(stop))[0]

        def finite(state: Carry) -> BoolArray:
            real = self.replicates - first  # spare lanes do not count
            return np.isfinite(np.asarray(state.theta)[..., :real]).all(axis=1)  # (S, K, R)

        low, high = done, until
        while high - low > 1:
            middle = (low + high) // 2
            after = walk(algorithm, carry, low, middle)
            if finite(after).all():
                carry, low = after, middle
            else:
                high = middle
        # That step alone, without its mixing and projection, which pass a bad value on or hide it.
        alone = algorithm._replace(sync=jnp.zeros_like(algorithm.sync), projection=None)
        good = finite(walk(alone, carry, low, high))
        if good.all():  # the mixing itself overflowed
            good = finite(walk(algorithm, carry, low, high))
        setting = int(np.argmin(good.all(axis=(1, 2))))
        replicate = int(np.argmin(good[setting].all(axis=0)))
        client = int(np.argmin(good[setting, :, replicate]))
        if algorithm.seats is not None:
            noise = Noise(algorithm.key, np.uint32(first), self.n_clients, good.shape[-1])
            client = int(algorithm.seats.clients(noise, jnp.int32(high))[client, replicate])
        eta = np.atleast_1d(algorithm.eta[setting, high - 1])
        return DivergedError(high, client, first + replicate, float(eta[client if eta.size > 1 else 0]))


def _bytes(shapes: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def _lanes(replicates: int, largest: int) -> int:
    """The size of a chunk: a power of two, so that other numbers of replicates share its compilation.

    It is the largest that leaves few lanes idle. With fewer than 16 lanes programs take longer to compile or to run.
    """
    sizes = [2**power for power in range(4, 31) if 2**power <= max(16, min(largest, 2 * replicates))]

    def total(size: int) -> int:
        return -(-replicates // size) * size

    least = min(total(size) for size in sizes if size >= min(64, sizes[-1]))
    return max(size for size in sizes if total(size) <= max(least, 1.05 * replicates))
