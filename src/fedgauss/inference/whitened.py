"""Local SGD with whitened steps: a burn-in, then a window over which iterates are averaged.

The rule that lets one schedule serve problems of any scale and condition:

1. A warm-up over the first max(10, ceil(40 d / K)) rows of each client, which are read again later, gives the mean
   Hessian at the start, H_0. Steps of the burn-in go along P_1 g with P_1 = H_0^-1.
2. The burn-in is the first fifth of the run. It ends with its own mean Hessian along the path; steps of the window go
   along P_2 g, its inverse.
3. eta_t = c (t + k_0)^-beta with beta = .75, c = 1 in the burn-in and .75 in the window, and k_0 such that no eta
   exceeds 1 / (d + 2): about where the step of a typical row, eta h |x|_P^2, would reach its own minimum.
4. Steps that go further than that are shortened (`Preconditioned`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedgauss._random import Key, Noise, stage_key
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.loop import Observer
from fedgauss.engine.simulate import simulate
from fedgauss.inference.client_sums import THINNED, ClientSums, client_statistics, second_derivative, unaligned
from fedgauss.inference.passes import LastClients, Pass, StepPlan, inverse
from fedgauss.networks import Network
from fedgauss.problems.base import Problem
from fedgauss.problems.preconditioned import Preconditioned

BETA = 0.75
BURN_IN = 0.2
_FIRST, _LATER = 1.0, 0.75  # c in the burn-in and in the window


def schedule(n_steps: int, dim: int, beta: float = BETA) -> StepPlan:
    """The default eta_t for n steps in d dimensions."""
    burn_in = max(1, round(BURN_IN * n_steps))
    t = np.arange(1.0, n_steps + 1)
    return StepPlan(np.where(t <= burn_in, _eta(t, _FIRST, dim, beta), window_eta(t, dim, beta)), burn_in)


def window_eta(t: FloatArray, dim: int, beta: float = BETA) -> FloatArray:
    """eta_t of the window, for any steps t: it may run on."""
    return _eta(t, _LATER, dim, beta)


def _eta(t: FloatArray, c: float, dim: int, beta: float) -> FloatArray:
    shift = max((c * (dim + 2)) ** (1 / beta) - 1.0, 0.0)
    return c * (t + shift) ** -beta


def warm_rows(dim: int, n_clients: int) -> int:
    """Over how many of its first steps each client takes the Hessian of the warm-up."""
    return max(10, math.ceil(40 * dim / n_clients))


def run_whitened(
    problem: Problem,
    network: Network | ArrayLike | None,
    n_steps: int,
    sync_every: int,
    *,
    replicates: int = 1,
    seed: int = 0,
    start: FloatArray | None = None,
    observe: Sequence[Observer] = (),
    every: int = THINNED,
    beta: float = BETA,
    progress: bool | None = None,
) -> Pass:
    """Warm-up, burn-in and window, `replicates` times; `observe` watches the window.

    Clients add to their sums every `every` steps, or a few more: see `unaligned`.
    """
    plan = schedule(n_steps, problem.dim, beta)
    theta, weights = np.zeros(problem.dim) if start is None else start, np.asarray(problem.weights, dtype=float)
    rows = warm_rows(problem.dim, problem.n_clients)
    warm = np.asarray(
        warm_hessians(problem, stage_key(seed, "data"), jnp.float32(theta), replicates, np.int32(rows)), dtype=float
    )
    first = inverse(np.einsum("k,ijkr->rij", weights, warm / rows))
    sums = ClientSums(unaligned(every, sync_every))
    go: Any = partial(
        simulate, network=network, steps=plan.eta, sync_every=sync_every, replicates=replicates, seed=seed,
        progress=progress,
    )  # fmt: skip
    begun = go(
        _along(problem, first, plan, "damped"), n_steps=plan.burn_in, steps=plan.eta[: plan.burn_in], start=theta,
        observe=[sums, LastClients()],
    )  # fmt: skip
    hessian = client_statistics(begun.observed).hessian(weights)
    second = inverse(hessian)
    runs = go(
        _along(problem, second, plan, "capped"), n_steps=n_steps, after=plan.burn_in, start=begun.last_clients,
        observe=[sums, *observe],
    )  # fmt: skip
    return Pass(runs, client_statistics(runs.observed), first, second, hessian, plan, weights, theta)


def _along(problem: Problem, matrix: FloatArray, plan: StepPlan, guard: Any) -> Preconditioned:
    return Preconditioned(problem, np.moveaxis(matrix, 0, -1)[:, :, None], plan.eta, guard)


@partial(jax.jit, static_argnames="replicates")
def warm_hessians(problem: Problem, key: Key, start: JaxArray, replicates: int, rows: JaxArray) -> JaxArray:
    """Sums of second derivatives at the start over the first rows of each client, (d, d, K, R)."""
    noise = Noise(key, jnp.uint32(0), problem.n_clients, replicates)
    theta = jnp.broadcast_to(start[:, None, None], (problem.dim, problem.n_clients, replicates))
    zero = jnp.zeros((problem.dim, *theta.shape), theta.dtype)

    def add(t: JaxArray, total: JaxArray) -> JaxArray:
        return total + second_derivative(problem, theta, problem.sample(noise.at_step(t), t))

    return lax.fori_loop(1, rows + 1, add, zero)
