"""Optimum, Hessian and gradient noise of any problem: exact where it has closed forms, estimated otherwise."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import FloatArray, JaxArray
from fedgauss.problems.base import Moments, Problem

_exact: weakref.WeakKeyDictionary[Problem, Linearization] = weakref.WeakKeyDictionary()

_ESTIMATED = ("optimum", "client_hessians", "client_noise_cov", "hessian", "noise_cov")


def linearize(problem: Problem, *, samples: int = 8192, batches: int = 32, seed: int = 0) -> Linearization:
    """theta*_K, the client Hessians there, and the client gradient covariances Var(W^k).

    Without closed forms they are averages over `batches` independent batches of `samples` draws a client, each
    with its own optimum by Newton's method; their spread gives `standard_errors`, which therefore include
    the error that the estimated optimum passes on to the others.
    """
    known = exact_linearization(problem)
    if known is not None:
        return known
    samples = _checks.whole("samples", samples, at_least=2)
    batches = _checks.whole("batches", batches, at_least=2, fix="One batch shows no spread.")
    return _linearize_by_sampling(problem, samples, batches, seed)


def exact_linearization(problem: Problem) -> Linearization | None:
    """The linearisation by closed forms (computed once a problem), or None where there are none."""
    if problem in _exact:
        return _exact[problem]
    if problem.moments(np.zeros(problem.dim)) is None:
        return None

    def moments_at(theta: FloatArray) -> Moments:
        moments = problem.moments(theta)
        assert moments is not None
        return moments

    weights = np.asarray(problem.weights, dtype=float)
    theta = _newton(moments_at, weights, np.zeros(problem.dim), tolerance=1e-12)
    moments = moments_at(theta)
    _exact[problem] = Linearization(theta, moments.hessian, moments.noise_cov, weights)
    return _exact[problem]


def _newton(
    moments_at: Callable[[FloatArray], Moments], weights: FloatArray, start: FloatArray, tolerance: float
) -> FloatArray:
    """Solve sum_k w_k grad F_k(theta) = 0 by Newton's method, halving steps that do not shrink the gradient."""
    theta, moments = start, moments_at(start)
    for _ in range(50):
        gradient = weights @ moments.gradient
        hessian = np.einsum("k,kij->ij", weights, moments.hessian)
        if not np.all(np.isfinite(hessian)) or np.linalg.cond(hessian) > 1e13:
            break
        step = np.linalg.solve(hessian, gradient)
        if np.linalg.norm(step) <= tolerance * (1.0 + np.linalg.norm(theta)):
            return theta - step
        scale, shrunk = 2.0, False
        while not shrunk and scale > 1e-3:
            scale /= 2.0
            moments = moments_at(theta - scale * step)
            shrunk = bool(np.linalg.norm(weights @ moments.gradient) < np.linalg.norm(gradient))
        theta = theta - scale * step
    raise ValueError(
        "the risk sum_k w_k F_k must have one minimiser (Assumption A.1), but Newton's method found none: its "
        "Hessian is singular or its optimum at infinity. Are columns collinear, or classes separable?"
    )


def _linearize_by_sampling(problem: Problem, samples: int, batches: int, seed: int) -> Linearization:
    weights = np.asarray(problem.weights, dtype=float)
    key = stage_key(seed, "linearize")
    theta = np.zeros(problem.dim)
    estimates = []
    for batch in range(batches):

        def moments_at(at: FloatArray, batch: int = batch) -> Moments:
            return Moments(*(np.asarray(m, float) for m in _batch_moments(problem, key, batch, at, samples)))

        # Float32 averages resolve the optimum to about 1e-6; sampling error is far larger.
        theta = _newton(moments_at, weights, theta, tolerance=1e-5)
        moments = moments_at(theta)
        estimates.append(Linearization(theta, moments.hessian, moments.noise_cov, weights))
    values = {name: np.stack([getattr(e, name) for e in estimates]) for name in _ESTIMATED}
    mean = {name: value.mean(axis=0) for name, value in values.items()}
    errors = {name: value.std(axis=0, ddof=1) / np.sqrt(batches) for name, value in values.items()}
    return Linearization(mean["optimum"], mean["client_hessians"], mean["client_noise_cov"], weights, errors)


@partial(jax.jit, static_argnames="samples")
def _batch_moments(problem: Problem, key: Key, batch: JaxArray, theta: JaxArray, samples: int) -> tuple:
    """Sample moments of the gradients of every client at one theta (d,)."""
    t = jnp.int32(batch) + 1
    data = problem.sample(Noise(key, jnp.uint32(0), problem.n_clients, samples).at_step(t), t)
    point = jnp.broadcast_to(theta[:, None, None], (problem.dim, problem.n_clients, samples))

    def mean_slope(direction: JaxArray) -> JaxArray:
        tangent = jnp.broadcast_to(direction[:, None, None], point.shape)
        return jax.jvp(lambda at: problem.gradient(at, data), (point,), (tangent,))[1].mean(axis=-1)

    gradients = problem.gradient(point, data)
    mean = gradients.mean(axis=-1)
    centred = gradients - mean[..., None]
    hessian = jax.lax.map(mean_slope, jnp.eye(problem.dim))  # (direction, d, K)
    noise_cov = jnp.einsum("ikr,jkr->kij", centred, centred) / (samples - 1)
    return mean.T, jnp.moveaxis(hessian, 2, 0), noise_cov
