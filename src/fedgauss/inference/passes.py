"""One pass over the data: a burn-in, then a window over which iterates are averaged and clients add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss._types import FloatArray, JaxArray
from fedgauss.engine.folds import Observer, Step
from fedgauss.engine.runs import Runs
from fedgauss.inference.summaries import Summaries
from fedgauss.problems.base import pytree

_FLOOR = 1e-8  # of the largest eigenvalue of a Hessian that is inverted: rounding, not regularisation


@dataclass(frozen=True)
class Schedule:
    """eta_t for t = 1..n, and the number m of steps before the window."""

    eta: FloatArray  # (n,)
    burn_in: int

    @property
    def window(self) -> int:
        """N = n - m, the number of steps averaged over."""
        return len(self.eta) - self.burn_in


@dataclass(frozen=True)
class Pass:
    """R runs: the window's average, what clients added up in it, and the matrices P that shaped the steps.

    In the burn-in steps went along P_1 g and met the mean Hessian A_1, in the window along P_2 g. Without
    preconditioning both are the identity.
    """

    runs: Runs
    summaries: Summaries
    first: FloatArray  # P_1, (R, d, d)
    second: FloatArray  # P_2, (R, d, d)
    first_hessian: FloatArray  # A_1, (R, d, d)
    schedule: Schedule
    weights: FloatArray  # w_k, (K,)
    start: FloatArray  # theta_0, (d,)
    preconditioned: bool = True

    @property
    def hessian(self) -> FloatArray:
        """A = sum_k w_k H_k over the window, (R, d, d)."""
        return self.summaries.hessian(self.weights)

    @property
    def noise_cov(self) -> FloatArray:
        """V_K = sum_k w_k^2 Var(W^k) over the window, (R, d, d)."""
        return self.summaries.noise(self.weights)


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
