"""Propositions 2 to 8 measured: how the quantities they bound really shrink with the step size.

Propositions 4, 5 and 8 compare a run with its Lindeberg copy, in which the data of one step i are drawn afresh;
6 and 7 are moments of the run itself; 2 and 3 are facts about the matrices Q_s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray, JaxArray
from fedgauss.engine.observers import Observer, Step, at
from fedgauss.engine.simulate import simulate
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.combine import coupled
from fedgauss.problems.linearize import linearize
from fedgauss.step_sizes import StepSizes, as_step_sizes
from fedgauss.theory.covariances import step_matrices


@dataclass(frozen=True)
class Coupling:
    """A run beside its Lindeberg copy, at the listed steps: one value a replicate and step, (R, m).

    mean_gap          |Y_t - Y'_t|
    spread_gap        |(Theta_t - Theta'_t)(I - J)|_F
    spread            |Theta_t (I - J)|_F
    error             |Y_t - theta*|
    """

    steps: np.ndarray[Any, np.dtype[np.int64]]
    resampled: int
    mean_gap: FloatArray
    spread_gap: FloatArray
    spread: FloatArray
    error: FloatArray


def lindeberg(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
    n_steps: int,
    *,
    resampled: int,
    record: Sequence[int],
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1000,
    seed: int = 0,
) -> Coupling:
    """Run local SGD from its optimum beside a copy that sees other data at step `resampled` alone (Section B.1.2)."""
    optimum = linearize(problem).optimum
    runs = simulate(
        coupled(problem, resampled),
        network,
        steps,
        n_steps,
        sync_every=sync_every,
        sync_phase=sync_phase,
        replicates=replicates,
        seed=seed,
        start=np.tile(optimum, 2),
        observe=[at(record, _Gaps(optimum))],
    )
    names = ("mean_gap", "spread_gap", "spread", "error")
    return Coupling(np.unique(record), resampled, *(runs.observed[f"{name}_at"] for name in names))


@dataclass(frozen=True)
class Slope:
    """How a quantity that a proposition bounds by a power of eta_t really scales: exponent and standard error."""

    proposition: int
    quantity: str
    printed: float
    measured: float
    standard_error: float

    def __str__(self) -> str:
        verdict = "as printed" if self.measured > self.printed - max(0.25, 3 * self.standard_error) else "slower"
        return (
            f"Proposition {self.proposition}: {self.quantity:38} printed eta^{self.printed:g}, "
            f"measured eta^{self.measured:.2f} ({self.standard_error:.2f}): {verdict}"
        )


def measure_propositions(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: StepSizes | ArrayLike,
    n_steps: int,
    *,
    sync_every: int = 1,
    replicates: int = 2000,
    seed: int = 0,
    points: int = 6,
) -> list[Slope]:
    """Slopes in log eta_t of what Propositions 4 to 8 bound, over changes i spread between n/16 and n - 2.

    The copies are compared at t = i (4 and 8) and at t = i + 1 (5), where i is chosen just after a mixing, so that
    clients act alone at both.
    """
    schedule = as_step_sizes(steps)
    tau = _checks.whole("sync_every", sync_every, at_least=1)
    low, high = max(1, n_steps // 16), n_steps - 2
    if high <= low:
        raise ValueError(f"n_steps must be at least 8 to spread changes over; got {n_steps}.")
    grid = np.unique(np.geomspace(low, high, _checks.whole("points", points, at_least=2)).astype(int))
    grid = np.unique(np.minimum(grid // tau * tau + 1, high))
    eta = schedule.eta(n_steps)
    collected: dict[str, list[tuple[float, FloatArray]]] = {}
    for i in grid:
        pair = lindeberg(
            problem,
            network,
            schedule,
            n_steps,
            resampled=int(i),
            record=[int(i), int(i) + 1],
            sync_every=tau,
            replicates=replicates,
            seed=seed,
        )
        for name, values in {
            "4": pair.mean_gap[:, 0] ** 2,
            "5": pair.spread_gap[:, 1] ** 2,
            "6": pair.spread[:, 1] ** 4,
            "7": pair.error[:, 1] ** 4,
            "8": pair.mean_gap[:, 0] ** 4,
        }.items():
            collected.setdefault(name, []).append((float(eta[i - 1]), values))
    described = {
        "4": ("E|Y_t - Y'_t|^2", 2.0),
        "5": ("E|(Theta_t - Theta'_t)(I-J)|_F^2, t > i", 4.0),
        "6": ("E|Theta_t (I-J)|_F^4", 4.0),
        "7": ("E|Y_t - theta*|^4", 2.0),
        "8": ("E|Y_t - Y'_t|^4", 4.0),
    }
    return [Slope(int(name), *described[name], *_log_slope(collected[name])) for name in described]


def step_variation(lin: Linearization, steps: StepSizes | ArrayLike, n_steps: int) -> tuple[float, FloatArray]:
    """Omega_n = |Q_1| + sum_{s=2}^n |Q_s - Q_{s-1}| of Proposition 2, and |Q_s - A^-1| of Proposition 3, (n,).

    Proposition 2 bounds the first by log n. Proposition 3 prints s^-1 for the second; it is s^(beta-1).
    """
    q = step_matrices(lin, steps, n_steps)
    variation = np.linalg.norm(q[0]) + np.linalg.norm(np.diff(q, axis=0), axis=(1, 2)).sum()
    return float(variation), np.linalg.norm(q - np.linalg.inv(lin.hessian), axis=(1, 2))


def _log_slope(points: Sequence[tuple[float, FloatArray]]) -> tuple[float, float]:
    """Weighted least squares of log E[value] on log eta, with the Monte-Carlo standard error of the slope."""
    x = np.log([eta for eta, _ in points])
    y = np.log([values.mean() for _, values in points])
    variance = np.array([values.var(ddof=1) / len(values) / values.mean() ** 2 for _, values in points])
    weight = 1.0 / np.maximum(variance, 1e-12)
    centred = x - np.average(x, weights=weight)
    spread = (weight * centred**2).sum()
    return float((weight * centred * y).sum() / spread), float(1.0 / np.sqrt(spread))


@pytree
class _Gaps(Observer):
    """The four lengths of `Coupling` after the latest step of a coupled problem."""

    optimum: FloatArray

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        zero = jnp.zeros_like(theta[0, 0])
        return {"mean_gap": zero, "spread_gap": zero, "spread": zero, "error": zero}

    def update(self, state: Any, step: Step) -> Any:
        theta, copy = jnp.split(step.theta, 2)
        mean, copy_mean = jnp.split(step.mean, 2)

        def length(x: JaxArray) -> JaxArray:
            return jnp.sqrt((x**2).sum(axis=tuple(range(x.ndim - 1))))

        return {
            "mean_gap": length(mean - copy_mean),
            "spread_gap": length((theta - copy) - (mean - copy_mean)[:, None]),
            "spread": length(theta - mean[:, None]),
            "error": length(mean - self.optimum[:, None]),
        }

    def value(self, state: Any) -> dict[str, JaxArray]:
        return state
