"""Passes of local SGD over the data: with whitened steps, with the caller's own steps, and several over small data.

A pass is a burn-in, then a window over which iterates are averaged and clients keep sums. The rule for whitened steps
lets one schedule serve problems of any scale and condition:

1. A warm-up over the first max(10, ceil(40 d / K)) rows of each client, which are read again later, gives the mean
   Hessian at the start, H_0. Steps of the burn-in go along P_1 g with P_1 = H_0^-1.
2. The burn-in is the first fifth of the run. It ends with its own mean Hessian along the path; steps of the window go
   along P_2 g, its inverse.
3. eta_t = c (t + k_0)^-beta with beta = .75, c = 1 in the burn-in and .75 in the window, and k_0 such that no eta
   exceeds 1 / (d + 2): about where the step of a typical row, eta h |x|_P^2, would reach its own minimum. A smaller
   limit may be asked for, as `fit` does for rare outcomes (`preparation.largest_step`).
4. Steps that go further than that are shortened (`Preconditioned`).

Several passes over the same rows are for data too small for one: until the order of the rows hardly matters. After each
pass steps are whitened again with that pass's mean Hessian; the index t of eta_t runs on, so steps shrink. The estimate
is the mean of the averages of the last half of the passes. Reading rows again adds no information: errors are those of
the sandwich A^-1 V A^-1 with the true number of rows, plus the optimisation error, which is what the order of the rows
still contributes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedgauss._random import stage_key
from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.mixing import mixing_of
from fedgauss.engine.observers import Latest, Observer
from fedgauss.engine.runs import Runs
from fedgauss.engine.simulate import padded, simulate
from fedgauss.inference.client_steps import Guard, Preconditioned
from fedgauss.inference.client_sums import (
    THINNED,
    ClientStatistics,
    ClientSums,
    HessianSums,
    RoundStart,
    client_statistics,
    mean_hessian,
    unaligned,
    warm_hessians,
)
from fedgauss.networks import Network, as_network
from fedgauss.problems.base import Problem, pytree
from fedgauss.step_sizes import Steps, as_step_sizes

BETA = 0.75
BURN_IN = 0.2
_FIRST, _LATER = 1.0, 0.75  # c in the burn-in and in the window
_FLOOR = 1e-8  # of the largest eigenvalue of a Hessian that is inverted: rounding, not regularisation


@dataclass(frozen=True)
class StepPlan:
    """eta_t for t = 1..n, and the number m of steps before the window."""

    eta: FloatArray  # (n,)
    burn_in: int

    @property
    def window(self) -> int:
        """N = n - m, the number of steps averaged over."""
        return len(self.eta) - self.burn_in


@dataclass(frozen=True)
class Pass:
    """R runs: the window's average, each client's statistics over it, and the matrices P that shaped the steps.

    In the burn-in steps went along P_1 g and met the mean Hessian A_1, in the window along P_2 g. Without
    preconditioning both are the identity.
    """

    runs: Runs
    clients: ClientStatistics
    first: FloatArray  # P_1, (R, d, d)
    second: FloatArray  # P_2, (R, d, d)
    first_hessian: FloatArray  # A_1, (R, d, d)
    schedule: StepPlan
    weights: FloatArray  # w_k, (K,)
    start: FloatArray  # theta_0, (d,)
    preconditioned: bool = True

    @property
    def summed_all(self) -> bool:
        """Whether clients added up every step of the window."""
        return self.clients.count == self.schedule.window

    @property
    def hessian(self) -> FloatArray:
        """A = sum_k w_k H_k over the window, (R, d, d)."""
        return self.clients.hessian(self.weights)

    @property
    def noise_cov(self) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k) over the window, (R, d, d)."""
        return self.clients.noise(self.weights)


@pytree
class LastClients(Latest):
    """Theta_n, every client's last iterate: `last_clients` (K, d)."""

    def seen(self, theta: JaxArray, mean: JaxArray) -> dict[str, JaxArray]:
        """Theta_t."""
        return {"last_clients": theta}

    def value(self, state: Any) -> dict[str, JaxArray]:
        """Clients first."""
        return {name: jnp.swapaxes(theta, 0, 1) for name, theta in state.items()}


def run_window(
    first: Problem,
    later: Problem,
    network: Network | ArrayLike | None,
    plan: StepPlan,
    start: FloatArray,
    observe: Sequence[Observer] = (),
    **options: Any,
) -> Runs:
    """The window of runs on the problem `later`, after a burn-in on the problem `first`; options as for `simulate`."""
    m, begun = plan.burn_in, start
    if m:
        watch = [LastClients()]
        begun = simulate(first, network, plan.eta[:m], m, start=start, observe=watch, **options).last_clients
    return simulate(later, network, plan.eta, len(plan.eta), after=m, start=begun, observe=observe, **options)


def run_given_steps(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: Steps,
    n_steps: int,
    sync_every: int,
    *,
    burn_in: int = 0,
    start: FloatArray | None = None,
    observe: Sequence[Observer] = (),
    every: int = THINNED,
    **options: Any,
) -> Pass:
    """One pass with the caller's step sizes and no preconditioner; options are the seed and progress of `simulate`.

    Clients add to their sums every `every` steps of the window.
    """
    eta = np.asarray(as_step_sizes(steps).eta(n_steps), dtype=float)
    if eta.ndim > 1:
        raise ValueError("steps must be the same for all clients to infer from their average; got one for each.")
    plan, identity = StepPlan(eta, burn_in), np.eye(problem.dim)[None]
    theta, weights = np.zeros(problem.dim) if start is None else start, np.asarray(problem.weights, dtype=float)
    options["sync_every"] = sync_every
    watch = [_sums(problem, network, every, sync_every), *observe]
    runs = run_window(problem, problem, network, plan, theta, watch, **options)
    clients = client_statistics(runs.observed)
    hessian = clients.hessian(weights)
    return Pass(runs, clients, identity, identity, hessian, plan, weights, theta, preconditioned=False)


def inverse(matrices: FloatArray) -> FloatArray:
    """Inverses of Hessians (R, d, d), with eigenvalues kept away from zero."""
    if not np.all(np.isfinite(matrices)):
        raise ValueError(
            "the Hessian must be finite; it is not over the first rows or the burn-in. Use a start nearer to the "
            "optimum, or covariates of smaller scale."
        )
    values, vectors = np.linalg.eigh(matrices)
    if not np.all(values[:, -1] > 0.0):
        raise ValueError(
            "the Hessian must not vanish; over the first rows or the burn-in its largest eigenvalue is "
            f"{values[:, -1].min():.3g}. Use a start nearer to the optimum, or with Huber's loss a larger threshold."
        )
    safe = np.maximum(values, _FLOOR * values[:, -1:])
    return np.einsum("rip,rp,rjp->rij", vectors, 1.0 / safe, vectors)


def schedule(n_steps: int, dim: int, beta: float = BETA, largest: float | None = None) -> StepPlan:
    """The default eta_t for n steps in d dimensions, none above `largest`."""
    burn_in = max(1, round(BURN_IN * n_steps))
    t, most = np.arange(1.0, n_steps + 1), 1.0 / (dim + 2) if largest is None else largest
    return StepPlan(np.where(t <= burn_in, window_eta(t, most, beta, _FIRST), window_eta(t, most, beta)), burn_in)


def window_eta(t: FloatArray, largest: float, beta: float = BETA, c: float = _LATER) -> FloatArray:
    """eta_t of the window, for any steps t: it may run on. With another c, that of the burn-in."""
    shift = max((c / largest) ** (1 / beta) - 1.0, 0.0)
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
    largest: float | None = None,
    progress: bool | None = None,
) -> Pass:
    """Warm-up, burn-in and window, `replicates` times; `observe` watches the window. No eta_t exceeds `largest`.

    Clients add to their sums every `every` steps of the window, or a few more: see `unaligned`.
    """
    plan = schedule(n_steps, problem.dim, beta, largest)
    options: Any = {"sync_every": sync_every, "replicates": replicates, "seed": seed, "progress": progress}
    m = plan.burn_in
    theta, weights = np.zeros(problem.dim) if start is None else start, np.asarray(problem.weights, dtype=float)
    rows = min(n_steps, warm_rows(problem.dim, problem.n_clients))
    warm = np.asarray(
        warm_hessians(problem, stage_key(seed, "data"), jnp.float32(theta), replicates, np.int32(rows)), dtype=float
    )
    first = inverse(np.einsum("k,ijkr->rij", weights, warm / rows))
    damped = _along(problem, first, plan.eta, "damped")
    watch: list[Observer] = [HessianSums(unaligned(every, sync_every)), LastClients(), RoundStart(sync_every)]
    begun = simulate(damped, network, plan.eta[:m], m, start=theta, observe=watch, **options)
    hessian = mean_hessian(begun.observed, weights)
    second = inverse(hessian)
    capped = _along(problem, second, plan.eta, "capped")
    if m % sync_every:
        capped = replace(capped, round_start=np.transpose(begun.round_start, (2, 1, 0)))
    watch = [LastClients(), *observe, _sums(problem, network, every, sync_every)]
    runs = simulate(capped, network, plan.eta, n_steps, after=m, start=begun.last_clients, observe=watch, **options)
    clients = client_statistics(runs.observed)
    return Pass(runs, clients, first, second, hessian, plan, weights, theta)


def _sums(problem: Problem, network: Network | ArrayLike | None, every: int, sync_every: int) -> ClientSums:
    """The observer of a window."""
    mixing = mixing_of(as_network(network, problem.n_clients), problem.dim)
    return ClientSums(unaligned(every, sync_every), sync_every, mixing)


def _along(problem: Problem, matrix: FloatArray, eta: FloatArray, guard: Guard) -> Preconditioned:
    """`problem` with steps along P g, for matrices P (R, d, d)."""
    return Preconditioned(problem, np.moveaxis(matrix, 0, -1)[:, :, None], padded(eta), guard)


class Passes(NamedTuple):
    """The average of each pass, (P, d), and the last pass itself."""

    averages: FloatArray
    last: Pass

    @property
    def kept(self) -> FloatArray:
        """The averages of the last half of the passes."""
        return self.averages[len(self.averages) // 2 :]

    @property
    def params(self) -> FloatArray:
        """Their mean, (d,)."""
        return self.kept.mean(axis=0)

    @property
    def sandwich(self) -> FloatArray:
        """A^-1 V_K A^-1 / n of the last pass, in which every row was read once; (d, d)."""
        bread = np.linalg.inv(self.last.hessian[0])
        return bread @ self.last.noise_cov[0] @ bread / len(self.last.schedule.eta)

    @property
    def optimisation(self) -> FloatArray:
        """The covariance of the mean of the kept averages about where they go, (d, d).

        From their variation; with two passes their squared difference is used.
        """
        if len(self.kept) > 1:
            return np.atleast_2d(np.cov(self.kept.T)) / len(self.kept)
        change = self.averages[-1] - self.averages[-2]
        return np.outer(change, change)

    @property
    def gap(self) -> FloatArray:
        """The Newton step from the zero of the last pass's mean gradient to the estimate, (d,).

        It contains whatever is left of the start and the drift between mixings alike.
        """
        pulls = self.last.clients.gradients_at(self.params[None])[0]
        return np.linalg.solve(self.last.hessian[0], self.last.weights @ pulls)


def run_passes(
    rows_of: Callable[[int], Problem],
    network: Network,
    n_steps: int,
    sync_every: int,
    passes: int,
    *,
    start: FloatArray | None = None,
    largest: float | None = None,
    enough: Callable[[Passes], bool] | None = None,
    **options: Any,
) -> Passes:
    """`passes` passes of n steps each; rows_of(i) is the problem of pass i, with its rows in an order of their own.

    No eta_t exceeds `largest`. From the fourth pass on, `enough` may end them early. Options are the seed and progress
    of `simulate`.
    """
    options["sync_every"] = sync_every
    first = rows_of(0)
    most = 1.0 / (first.dim + 2) if largest is None else largest
    last = run_whitened(first, network, n_steps, start=start, every=1, largest=most, **options)
    averages = [last.runs.average[0]]
    for i in range(1, passes):
        eta = window_eta(np.arange(i * n_steps + 1.0, (i + 1) * n_steps + 1.0), most)
        matrix = inverse(last.hessian)
        problem = _along(rows_of(i), matrix, eta, "capped")
        watch = [_sums(problem, network, 1, sync_every), LastClients()]
        runs = simulate(problem, network, eta, n_steps, start=last.runs.last_clients, observe=watch, **options)
        clients, plan = client_statistics(runs.observed), StepPlan(eta, 0)
        last = Pass(runs, clients, matrix, matrix, last.hessian, plan, last.weights, last.start)
        averages.append(runs.average[0])
        if enough is not None and i >= 3 and enough(Passes(np.asarray(averages, dtype=float), last)):
            break
    return Passes(np.asarray(averages, dtype=float), last)
