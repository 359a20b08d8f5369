"""Optimum, Hessian and gradient noise of any problem: exact where it has closed forms, estimated otherwise.

`warm_up` estimates them from as few draws as clients would make before a run.
"""

import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._forked import refuse_in_forked_child
from fedgauss._linearization import Linearization, gradient_moments, linearization
from fedgauss._memory import check_memory
from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.problems.base import Moments, Problem, checked_problem

_LANES = 512  # draws of a warm-up made at least, and those not asked for dropped: short ones share a compilation
_ESTIMATED = ("optimum", "client_hessians", "client_noise_cov", "hessian", "noise_cov", "client_gradients")

# Linearisations already computed, by problem and by how: None for closed forms, else (samples, batches, seed).
_computed: weakref.WeakKeyDictionary[Problem, dict[tuple[int, ...] | None, Linearization]] = weakref.WeakKeyDictionary()

_optima: weakref.WeakKeyDictionary[Problem, tuple[FloatArray, FloatArray]] = weakref.WeakKeyDictionary()

# Client gradients and Hessians at a point, or None where closed forms end.
Risk: TypeAlias = Callable[[FloatArray], tuple[FloatArray, FloatArray] | None]


def linearize(problem: Problem, *, samples: int = 8192, batches: int = 32, seed: int = 0) -> Linearization:
    """theta*_K, the client Hessians there, and the client gradient covariances Var(W^k).

    Without closed forms they are averages over independent batches, each with its own optimum by Newton's method;
    their spread gives `standard_errors`, which therefore include the error that the estimated optimum passes on to the
    others. They do not include the bias of order 1/samples of each batch. A problem that changes during a run is
    linearised as it was before the change.

    Parameters
    ----------
    problem : Problem
    samples, batches : int
        Draws of each client in a batch, and the number of batches, where there are no closed forms.
    seed : int
        Fixes these draws.

    Returns
    -------
    Linearization

    Examples
    --------
    >>> import fedgauss as fg
    >>> lin = fg.linearize(fg.problems.random_effects(n_clients=10, seed=1907))
    >>> lin.optimum.round(3), lin.hessian.shape, lin.noise_cov.shape
    (array([ 1.716, -2.364]), (2, 2), (2, 2))
    """
    refuse_in_forked_child()
    exact = exact_linearization(checked_problem(problem))
    if exact is not None:
        return exact
    samples = _checks.whole("samples", samples, at_least=2)
    batches = _checks.whole("batches", batches, at_least=2, fix="One batch shows no spread.")
    _check_room(problem, samples)
    problem = problem.reference()
    kept = _computed.setdefault(problem, {})
    how = (samples, batches, seed)
    if how not in kept:
        kept[how] = _linearize_by_sampling(problem, samples, batches, seed)
    return kept[how]


def warm_up(problem: Problem, n_warmup: int, at: ArrayLike, seed: int = 0) -> Linearization:
    """A linearisation from `n_warmup` draws of every client at the point `at` (d,), where a warm start ended.

    Each client takes the gradient and the Hessian of its loss at `at` for each of its draws, and reports the mean
    Hessian with the covariance and the kurtosis of its gradients: what `linearization` asks for. For a problem on real
    rows this is a simulation of it; clients of your own call `gradient_moments`.

    Parameters
    ----------
    problem : Problem
    n_warmup : int
        Draws of each client.
    at : (d,) array_like
        Where gradients are taken.
    seed : int
        Fixes the draws.

    Returns
    -------
    Linearization

    Examples
    --------
    >>> import fedgauss as fg
    >>> problem = fg.problems.random_effects(n_clients=5, seed=1907)
    >>> lin = fg.warm_up(problem, n_warmup=200, at=fg.linearize(problem).optimum)
    >>> lin.n_warmup, lin.n_clients
    (200, 5)
    """
    n_warmup = _checks.whole("n_warmup", n_warmup, at_least=2, fix="One gradient shows no spread.")
    point = _checks.real_array("at", at, shape=(checked_problem(problem).dim,))
    _check_room(problem, n_warmup)
    key = stage_key(seed, "warm up")
    problem = problem.reference()
    lanes = max(_LANES, 1 << (n_warmup - 1).bit_length())
    drawn = sampled_gradients(problem, key, 0, point, lanes, np.float32(n_warmup))
    gradients, hessians = (np.asarray(part, dtype=float) for part in drawn)
    gradients = gradients[:, :, :n_warmup]
    reports = [gradient_moments(client.T) for client in np.moveaxis(gradients, 1, 0)]
    covariances, kurtosis = (np.stack(part) for part in zip(*reports, strict=True))
    symmetric = (hessians + hessians.transpose(0, 2, 1)) / 2  # but for rounding, they are
    weights = np.asarray(problem.weights, dtype=float)
    return linearization(symmetric, covariances, weights, n_warmup, point, kurtosis, gradients.mean(axis=2).T)


def _check_room(problem: Problem, draws: int) -> None:
    """Gradients and slopes of all clients at all draws are in memory at once."""
    size = 16 * draws * problem.n_clients * problem.dim
    what = f"{draws:,} draws of {problem.n_clients:,} clients in {problem.dim:,} dimensions"
    check_memory(what, size, "Use fewer draws.")


def exact_linearization(problem: Problem) -> Linearization | None:
    """The linearisation by closed forms (computed once a problem), or None where there are none."""
    problem = problem.reference()
    kept = _computed.setdefault(problem, {})
    if None not in kept:
        at_optimum = exact_optimum(problem)
        moments = None if at_optimum is None else problem.moments(at_optimum[0])
        if at_optimum is None or moments is None:
            return None
        kept[None] = _linearization(at_optimum[0], moments, problem)
    return kept[None]


def exact_optimum(problem: Problem) -> tuple[FloatArray, FloatArray] | None:
    """theta*_K and the client Hessians there (computed once a problem), or None without closed forms.

    It leaves out the gradient noise, which can cost far more for many clients.
    """
    problem = problem.reference()
    if problem not in _optima:
        guess = problem.guess()
        if problem.risk(guess) is None:
            return None
        theta = _newton(problem.risk, np.asarray(problem.weights, dtype=float), guess, tolerance=1e-11)
        last = problem.risk(theta)
        if last is None:
            return None
        _optima[problem] = theta, last[1]
    return _optima[problem]


def optimum(problem: Problem) -> FloatArray:
    """theta*_K, as cheaply as it can be had."""
    refuse_in_forked_child()
    exact = exact_optimum(problem)
    return linearize(problem).optimum if exact is None else exact[0]


def _linearization(theta: FloatArray, moments: Moments, problem: Problem) -> Linearization:
    weights = np.asarray(problem.weights, dtype=float)
    return Linearization(theta, moments.hessian, moments.noise_cov, weights, client_gradients=moments.gradient)


def _newton(risk: Risk, weights: FloatArray, start: FloatArray, tolerance: float) -> FloatArray:
    """Solve sum_k w_k grad F_k(theta) = 0 by Newton's method.

    Steps that do not shrink the gradient are damped (Levenberg): far from the optimum a Hessian may be near zero.
    """
    theta, damping = start, 0.0
    here = risk(theta)
    for _ in range(200):
        if here is None:
            break
        gradients, hessians = here
        gradient, hessian = weights @ gradients, np.einsum("k,kij->ij", weights, hessians)
        if not np.all(np.isfinite(hessian)):
            break
        scale = max(float(np.abs(hessian).max()), 1e-12)
        damped = hessian + damping * scale * np.eye(len(theta))
        if np.linalg.cond(damped) > 1e14:
            damping = max(10 * damping, 1e-3)
            if damping > 1e6:
                break
            continue
        step = np.linalg.solve(damped, gradient)
        if damping < 1e-6 and np.linalg.norm(step) <= tolerance * (1.0 + np.linalg.norm(theta)):
            return theta - step
        with np.errstate(all="ignore"):
            trial = risk(theta - step)
            shrunk = trial is not None and np.linalg.norm(weights @ trial[0]) < np.linalg.norm(gradient)
        if shrunk:
            theta, here, damping = theta - step, trial, damping / 10 if damping > 1e-7 else 0.0
        elif np.linalg.norm(step) <= 1e3 * tolerance * (1.0 + np.linalg.norm(theta)) and damping < 1e-6:
            return theta  # rounding alone keeps the gradient from shrinking
        else:
            damping = max(10 * damping, 1e-3)
    raise ValueError(
        "the risk sum_k w_k F_k must have one minimiser (Assumption A.1), but Newton's method found none: its "
        "Hessian is singular or its optimum at infinity. Are columns collinear, or classes separable?"
    )


def _linearize_by_sampling(problem: Problem, samples: int, batches: int, seed: int) -> Linearization:
    weights = np.asarray(problem.weights, dtype=float)
    key = stage_key(seed, "linearize")
    theta = problem.guess()
    estimates = []
    for batch in range(batches):

        def moments_at(at: FloatArray, batch: int = batch) -> Moments:
            return Moments(*(np.asarray(m, float) for m in _batch_moments(problem, key, batch, at, samples)))

        # Float32 averages resolve the optimum to about 1e-6; sampling error is far larger.
        theta = _newton(lambda at, moments=moments_at: moments(at)[:2], weights, theta, tolerance=1e-5)  # type: ignore[misc]
        estimates.append(_linearization(theta, moments_at(theta), problem))
    values = {name: np.stack([getattr(e, name) for e in estimates]) for name in _ESTIMATED}
    mean = {name: value.mean(axis=0) for name, value in values.items()}
    errors = {name: value.std(axis=0, ddof=1) / np.sqrt(batches) for name, value in values.items()}
    moments = Moments(mean["client_gradients"], mean["client_hessians"], mean["client_noise_cov"])
    return replace(_linearization(mean["optimum"], moments, problem), standard_errors=errors)


@partial(jax.jit, static_argnames="samples")
def _batch_moments(problem: Problem, key: Key, batch: JaxArray, theta: JaxArray, samples: int) -> tuple:
    """Sample moments of the gradients of every client at one theta (d,)."""
    gradients, hessian = sampled_gradients(problem, key, batch, theta, samples, samples)
    mean = gradients.mean(axis=-1)
    centred = gradients - mean[..., None]
    noise_cov = jnp.einsum("ikr,jkr->kij", centred, centred) / (samples - 1)
    return mean.T, hessian, noise_cov


@partial(jax.jit, static_argnames="samples")
def sampled_gradients(
    problem: Problem, key: Key, batch: JaxArray, theta: JaxArray, samples: int, count: JaxArray
) -> tuple[JaxArray, JaxArray]:
    """Gradients (d, K, samples) of so many draws at one theta (d,), and the mean Hessians (K, d, d) of the first ones.

    The mean is over `count` of them: other numbers share a compilation that way.
    """
    t = jnp.int32(batch) + 1
    data = problem.sample(Noise(key, jnp.uint32(0), problem.n_clients, samples).at_step(t), t)
    point = jnp.broadcast_to(theta[:, None, None], (problem.dim, problem.n_clients, samples))

    def mean_slope(direction: JaxArray) -> JaxArray:
        tangent = jnp.broadcast_to(direction[:, None, None], point.shape)
        slopes = jax.jvp(lambda at: problem.gradient(at, data), (point,), (tangent,))[1]
        return jnp.where(jnp.arange(samples) < count, slopes, 0.0).sum(axis=-1) / count

    hessian = jax.lax.map(mean_slope, jnp.eye(problem.dim))  # (direction, d, K)
    return problem.gradient(point, data), jnp.moveaxis(hessian, 2, 0)
