"""One pass over the data: a burn-in, then a window over which iterates are averaged and clients keep sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss._types import ArrayLike, FloatArray, JaxArray
from fedgauss.engine.loop import Observer, Step
from fedgauss.engine.simulate import Runs, simulate
from fedgauss.inference.client_sums import THINNED, ClientStatistics, ClientSums, client_statistics, unaligned
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, pytree
from fedgauss.step_sizes import StepSizes, as_step_sizes

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
    def hessian(self) -> FloatArray:
        """A = sum_k w_k H_k over the window, (R, d, d)."""
        return self.clients.hessian(self.weights)

    @property
    def noise_cov(self) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k) over the window, (R, d, d)."""
        return self.clients.noise(self.weights)


@pytree
class LastClients(Observer):
    """Theta_n, every client's last iterate: `last_clients` (K, d)."""

    keeps_time = False

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        """Theta_0."""
        return theta

    def update(self, state: Any, step: Step) -> Any:
        """Theta_t."""
        return step.theta

    def value(self, state: Any) -> dict[str, JaxArray]:
        """`last_clients`."""
        return {"last_clients": jnp.swapaxes(state, 0, 1)}


def run_given_steps(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
    n_steps: int,
    sync_every: int,
    *,
    burn_in: int = 0,
    seed: int = 0,
    start: FloatArray | None = None,
    observe: Sequence[Observer] = (),
    every: int = THINNED,
    progress: bool | None = None,
) -> Pass:
    """One pass with the caller's step sizes and no preconditioner; the window begins after `burn_in` steps."""
    eta = np.asarray(as_step_sizes(steps).eta(n_steps), dtype=float)
    if eta.ndim > 1:
        raise ValueError("steps must be the same for all clients to infer from their average; got one for each.")
    theta, weights = np.zeros(problem.dim) if start is None else start, np.asarray(problem.weights, dtype=float)
    options: Any = {"sync_every": sync_every, "seed": seed, "progress": progress}
    begun: Any = theta
    if burn_in:
        watch = [LastClients()]
        begun = simulate(problem, network, eta[:burn_in], burn_in, start=theta, observe=watch, **options).last_clients
    observers = [ClientSums(unaligned(every, sync_every)), *observe]
    runs = simulate(problem, network, eta, n_steps, after=burn_in, start=begun, observe=observers, **options)
    clients, identity, plan = client_statistics(runs.observed), np.eye(problem.dim)[None], StepPlan(eta, burn_in)
    return Pass(runs, clients, identity, identity, clients.hessian(weights), plan, weights, theta, preconditioned=False)


def inverse(matrices: FloatArray) -> FloatArray:
    """Inverses of Hessians (R, d, d), with eigenvalues kept away from zero."""
    values, vectors = np.linalg.eigh(matrices)
    if not np.all(values[:, -1] > 0.0):
        raise ValueError(
            "the Hessian must not vanish; it does over the first rows or the burn-in. With Huber's loss no row lies "
            "within the threshold there: use a larger threshold, an intercept, or a start nearer to the optimum."
        )
    safe = np.maximum(values, _FLOOR * values[:, -1:])
    return np.einsum("rip,rp,rjp->rij", vectors, 1.0 / safe, vectors)
