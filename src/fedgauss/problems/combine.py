"""Problems made of problems: one that changes at a step, one beside its Lindeberg copy, and the Gaussian surrogate."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss import _checks
from fedgauss._lanes import times
from fedgauss._linearization import Linearization
from fedgauss._random import Noise, stream_number
from fedgauss._types import FloatArray, Int32Array, JaxArray
from fedgauss.problems.base import Moments, Problem, WrappedProblem, pytree


@pytree
class ChangedProblem(WrappedProblem):
    """One problem after another: `phases[i]` from step `starts[i - 1]` on, `phases[0]` from the beginning.

    The first is what the theory describes: the honest run.
    """

    later: tuple[Problem, ...]
    starts: Int32Array  # increasing, one for each of `later`

    @property
    def phases(self) -> tuple[Problem, ...]:
        """`problem`, and those that follow it."""
        return self.problem, *self.later

    def sample(self, noise: Noise, t: JaxArray) -> tuple[JaxArray, Any]:
        """The number of the phase in force, and its data."""
        phase = (t >= jnp.asarray(self.starts)).sum()
        return phase, lax.switch(phase, [lambda p=p: p.sample(noise, t) for p in self.phases])

    def gradient(self, theta: JaxArray, data: tuple[JaxArray, Any]) -> JaxArray:
        """That of the phase in force."""
        phase, xi = data
        return lax.switch(phase, [lambda p=p: p.gradient(theta, xi) for p in self.phases])

    def max_steps(self) -> int | None:
        """The data of any phase may run out."""
        return min((m for m in (p.max_steps() for p in self.phases) if m is not None), default=None)


def change_at(before: Problem, after: Problem, start: int) -> ChangedProblem:
    """A problem that turns into another from step `start` on: an attack, a drift, and with a second call a repair.

    Parameters
    ----------
    before, after : Problem
        With the same clients, weights and dimension, and data of the same shapes.
    start : int
        The first step of `after`.

    Returns
    -------
    ChangedProblem

    Examples
    --------
    >>> attacked = fg.problems.change_at(honest, other, start=251)
    >>> repaired = fg.problems.change_at(attacked, honest, start=400)
    """
    start = _checks.step_number("start", start)
    phases: tuple[Problem, ...] = before.phases if isinstance(before, ChangedProblem) else (before,)
    starts: list[int] = list(before.starts) if isinstance(before, ChangedProblem) else []
    if starts and start <= starts[-1]:
        raise ValueError(f"changes must follow one another; got one at step {start} after one at step {starts[-1]}.")
    last = phases[-1]
    if (last.n_clients, last.dim) != (after.n_clients, after.dim):
        raise ValueError(
            "both problems must have the same clients and dimension; got "
            f"{last.n_clients} x {last.dim} before and {after.n_clients} x {after.dim} after."
        )
    if abs(jnp.asarray(last.weights) - jnp.asarray(after.weights)).max() > 1e-6:
        raise ValueError("both problems must have the same weights. Pass weights=before.weights to the second?")
    shapes = [_sample_shape(problem) for problem in (last, after)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"both problems must draw data of the same shapes; got {shapes[0]} and {shapes[1]}. "
            "Make the second with the same function as the first?"
        )
    return ChangedProblem(phases[0], (*phases[1:], after), np.array([*starts, start], dtype=np.int32))


@pytree
class CoupledProblem(WrappedProblem):
    """The problem and its Lindeberg copy, stacked in 2d dimensions: same data but for one step (Section B.1.2).

    The first d coordinates follow xi_t; the last d follow xi_t too, except at step `resampled`, where an
    independent xi' takes its place.
    """

    resampled: JaxArray

    @property
    def dim(self) -> int:
        """2d."""
        return 2 * self.problem.dim

    def reference(self) -> Problem:
        """Both halves."""
        return self

    def sample(self, noise: Noise, t: JaxArray) -> tuple[Any, Any]:
        """The data of the original and of the copy."""
        data = self.problem.sample(noise, t)
        fresh = lambda: self.problem.sample(noise.stream("lindeberg"), t)  # noqa: E731
        return data, lax.cond(t == self.resampled, fresh, lambda: data)

    def gradient(self, theta: JaxArray, data: tuple[Any, Any]) -> JaxArray:
        """Each half at its own iterate."""
        halves = jnp.split(theta, 2)
        return jnp.concatenate([self.problem.gradient(half, xi) for half, xi in zip(halves, data, strict=True)])


def coupled(problem: Problem, resampled: int) -> CoupledProblem:
    """The problem beside its Lindeberg copy, in which only the data of one step are drawn again.

    Parameters
    ----------
    problem : Problem
    resampled : int
        That step.

    Returns
    -------
    CoupledProblem
        In 2d dimensions: the problem, then its copy.
    """
    return CoupledProblem(problem, _checks.step_number("resampled", resampled))


@pytree
class GaussianSurrogate(Problem):
    """Gradients A theta_k / (K w_k) - Z^k, Z^k ~ N(0, Var(W^k)): K w_k times them drives Client-GA.

    The engine's recursion Theta_t = (Theta_{t-1} - eta_t G_t) C_t is then (3.6) of the paper,
    Theta_t = ((I - eta_t A) Theta_{t-1} + eta_t K (w_1 Z^1, ..., w_K Z^K)) C_t, centred at zero.
    """

    hessian: FloatArray  # A, (d, d)
    noise_root: FloatArray  # Var(W^k)^{1/2}, (K, d, d)
    weights: FloatArray  # w_k, (K,)
    stream: np.uint32  # which random numbers it sees

    @property
    def dim(self) -> int:
        """d."""
        return int(np.shape(self.hessian)[0])

    def sample(self, noise: Noise, t: JaxArray) -> JaxArray:
        """Z^k, (d, K, R)."""
        return times(self.noise_root, noise.numbered(self.stream).normal(self.dim))

    def gradient(self, theta: JaxArray, data: JaxArray) -> JaxArray:
        """A theta_k / (K w_k) - Z^k."""
        return self.mean_gradient(theta) - data

    def mean_gradient(self, theta: JaxArray) -> JaxArray:
        """A theta_k / (K w_k)."""
        scale = self.weights * self.n_clients
        return times(self.hessian, theta) / scale[:, None]

    def moments(self, theta: FloatArray) -> Moments:
        """Exact: the gradient is linear in theta and its noise does not depend on theta."""
        hessians = np.asarray(self.hessian) / (np.asarray(self.weights) * self.n_clients)[:, None, None]
        noise = np.einsum("kij,klj->kil", self.noise_root, self.noise_root)
        return Moments(hessians @ theta, hessians, noise)


def gaussian_surrogate(lin: Linearization, stream: str = "surrogate") -> GaussianSurrogate:
    """The Gaussian surrogate of a linearised problem; its optimum is zero.

    Parameters
    ----------
    lin : Linearization
    stream : str
        Name of its noise. At one seed, surrogates with different names are independent.

    Returns
    -------
    GaussianSurrogate
    """
    values, vectors = np.linalg.eigh(lin.client_noise_cov)
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return GaussianSurrogate(lin.hessian, root, lin.weights, stream_number(stream))


def _sample_shape(problem: Problem) -> Any:
    """Shapes and types of one step's data for one replicate."""

    def draw() -> Any:
        key = (jnp.uint32(0), jnp.uint32(0))
        noise = Noise(key, jnp.uint32(0), problem.n_clients, 1)
        return problem.sample(noise.at_step(jnp.uint32(1)), jnp.int32(1))

    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), jax.eval_shape(draw))
