"""Propositions 2 to 8 measured: how the quantities they bound really shrink with the step size.

Propositions 4, 5 and 8 compare a run with its Lindeberg copy, in which the data of one step i are drawn afresh;
6 and 7 are moments of the run itself; 2 and 3 are facts about the matrices Q_s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray, JaxArray
from fedgauss.engine.observers import Latest, at
from fedgauss.engine.simulate import simulate
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.combine import coupled
from fedgauss.problems.linearize import linearize
from fedgauss.step_sizes import Steps, as_step_sizes
from fedgauss.theory.covariances import step_matrices


@dataclass(frozen=True)
class Coupling:
    """A run and its Lindeberg copy at the listed steps: one value per replicate and step, (R, m).

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
    steps: Steps,
    n_steps: int,
    *,
    resampled: int,
    record: Sequence[int],
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1000,
    seed: int = 0,
) -> Coupling:
    """Run local SGD from its optimum, and a copy that sees other data at one step alone (Section B.1.2).

    Parameters
    ----------
    problem, network, steps, n_steps, sync_every, sync_phase, replicates, seed
        As in `simulate`.
    resampled : int
        The step at which the copy sees other data.
    record : sequence of int
        The steps after which the two are compared.

    Returns
    -------
    Coupling
    """
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
    """How a quantity that a proposition bounds by a power of eta_t actually scales: exponent and standard error.

    Both are NaN where the quantity is zero up to rounding, as client spread is with one client or complete mixing.
    """

    proposition: int
    quantity: str
    printed: float
    measured: float
    standard_error: float

    @property
    def verdict(self) -> str:
        """How the measured exponent compares with the printed one, in words."""
        if math.isnan(self.measured):
            return "identically zero"
        margin = max(0.25, 3 * self.standard_error)
        if self.measured < self.printed - margin:
            return "slower"
        return "at least as fast as printed" if self.measured > self.printed + margin else "as printed"

    def __str__(self) -> str:
        head = f"Proposition {self.proposition}: {self.quantity:38} printed eta^{self.printed:g}"
        if math.isnan(self.measured):
            return f"{head}, {self.verdict}"
        return f"{head}, measured eta^{self.measured:.2f} ({self.standard_error:.2f}): {self.verdict}"


def measure_propositions(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: Steps,
    n_steps: int,
    *,
    sync_every: int = 1,
    replicates: int = 2000,
    seed: int = 0,
    points: int = 6,
    lag: int = 1,
) -> list[Slope]:
    """Slopes in log eta_t of what Propositions 4 to 8 bound, at t = i + lag for changes i between n/16 and n - lag.

    Each i comes just after a mixing, so that with sync_every >= 3 clients act alone at i and at i + 1. Every i has
    its own seed, seed, seed + 1, ..., so that the points are independent. By t the copies have drawn together
    by about exp(-lag eta_t): with lag eta_t far from 0 the slopes of 4, 5 and 8 come out flatter than they are.

    Proposition 5 is printed as O(K eta_t^4) for every t > i. That holds for all t > i only if rho = 0 and a mixing
    lies between; its proof uses at s = i a bound derived for s > i. With r mixings since i the bound is
    O(K (rho^(2r) eta_i^2 + eta_t^4)): eta^2 at first, eta^4 after many mixings. Measured on ring(6), tau = 1: slope
    2 at lags 1, 2 and 5, 4.04 at lag 40; tau = 5: 2 just after 1, 2 and 5 mixings, 3.94 after 25. With the complete
    graph it is 0 just after a mixing. Theorem 2.1 survives: the extra term is about K^1/2 n^-beta.

    Parameters
    ----------
    problem, network, steps, n_steps, sync_every, replicates, seed
        As in `simulate`.
    points : int
        The number of changes i.
    lag : int
        t - i.

    Returns
    -------
    list of Slope
        One for each of Propositions 4 to 8.
    """
    schedule = as_step_sizes(steps)
    tau = _checks.whole("sync_every", sync_every)
    lag = _checks.whole("lag", lag, fix="Proposition 5 speaks of t > i.")
    n = _checks.whole("n_steps", n_steps)
    low, high = max(1, n // 16), n - lag
    grid = np.geomspace(low, max(low, high), _checks.whole("points", points, at_least=2, at_most=10_000)).astype(int)
    grid = np.unique(grid // tau * tau + 1)
    grid = grid[grid <= high]
    if len(grid) < 2:
        raise ValueError(
            f"n_steps must leave room for changes after two mixings, with lag steps to follow; got {n} with "
            f"sync_every = {tau} and lag = {lag}. Run longer, or synchronise more often."
        )
    eta = schedule.eta(n)
    level, several = float(np.linalg.norm(linearize(problem).optimum)), math.sqrt(problem.n_clients)
    collected: dict[int, list[tuple[float, FloatArray]]] = {number: [] for number in _BOUNDED}
    for index, i in enumerate(grid):
        pair = lindeberg(
            problem,
            network,
            schedule,
            n,
            resampled=int(i),
            record=[int(i) + lag],
            sync_every=tau,
            replicates=replicates,
            seed=seed + index,
        )
        for number, (length, power, _, _) in _BOUNDED.items():
            values = getattr(pair, length)[:, 0].astype(float)
            if _size(values) > (several if "spread" in length else 1.0) * _ROUNDING * (level + _size(pair.error)):
                collected[number].append((float(eta[i + lag - 1]), values**power))
    return [
        Slope(number, quantity, printed, *_log_slope(collected[number]))
        for number, (_, _, quantity, printed) in _BOUNDED.items()
    ]


# For each proposition: the length in `Coupling`, its power, what is bounded, and the printed exponent of eta_t.
_BOUNDED = {
    4: ("mean_gap", 2, "E|Y_t - Y'_t|^2", 2.0),
    5: ("spread_gap", 2, "E|(Theta_t - Theta'_t)(I-J)|_F^2, t > i", 4.0),
    6: ("spread", 4, "E|Theta_t (I-J)|_F^4", 4.0),
    7: ("error", 4, "E|Y_t - theta*|^4", 2.0),
    8: ("mean_gap", 4, "E|Y_t - Y'_t|^4", 4.0),
}


# Differences of float32 numbers below this share of their size are rounding: it is about 7 times what was measured.
_ROUNDING = 4 * float(np.finfo(np.float32).eps)


def _size(values: FloatArray) -> float:
    """Root mean square."""
    return float(np.sqrt((values.astype(float) ** 2).mean()))


def step_variation(lin: Linearization, steps: Steps, n_steps: int) -> tuple[float, FloatArray]:
    """Omega_n = |Q_1| + sum_{s=2}^n |Q_s - Q_{s-1}| of Proposition 2, and |Q_s - A^-1| of Proposition 3, (n,).

    Q_s is B_{s,n} with the factor eta_s that Proposition 2 leaves out and its proof has. The proposition bounds
    Omega_n by log n; it is bounded: 17.4, 30.5, 33.7 and 33.8 at n = 10^2, 10^3, 10^4 and 10^5 with A = I in two
    dimensions and eta_t = 0.3 t^-0.75. Proposition 3 prints s^-1 for the second; away from s = n it is s^(beta-1).

    Parameters
    ----------
    lin : Linearization
        From `linearize` or `linearization`.
    steps : StepSizes or array of shape (n,)
        eta_t.
    n_steps : int
        n.

    Returns
    -------
    variation : float
        Omega_n.
    gaps : array of shape (n,)
        |Q_s - A^-1|.
    """
    q = step_matrices(lin, steps, n_steps)
    variation = np.linalg.norm(q[0]) + np.linalg.norm(np.diff(q, axis=0), axis=(1, 2)).sum()
    return float(variation), np.linalg.norm(q - np.linalg.inv(lin.hessian), axis=(1, 2))


def _log_slope(points: Sequence[tuple[float, FloatArray]]) -> tuple[float, float]:
    """Weighted least squares of log E[value] on log eta, with its standard error; NaN without two points."""
    if len(points) < 2:
        return math.nan, math.nan
    x = np.log([eta for eta, _ in points])
    y = np.log([values.mean() for _, values in points])
    variance = np.array([values.var(ddof=1) / len(values) / values.mean() ** 2 for _, values in points])
    weight = 1.0 / np.maximum(variance, 1e-12)
    centred = x - np.average(x, weights=weight)
    spread = (weight * centred**2).sum()
    return float((weight * centred * y).sum() / spread), float(1.0 / np.sqrt(spread))


@pytree
class _Gaps(Latest):
    """The four lengths of `Coupling` after the latest step of a coupled problem."""

    optimum: FloatArray

    def seen(self, theta: JaxArray, mean: JaxArray) -> dict[str, JaxArray]:
        (theta, copy), (mean, copy_mean) = jnp.split(theta, 2), jnp.split(mean, 2)

        def length(x: JaxArray) -> JaxArray:
            return jnp.sqrt((x**2).sum(axis=tuple(range(x.ndim - 1))))

        return {
            "mean_gap": length(mean - copy_mean),
            "spread_gap": length((theta - copy) - (mean - copy_mean)[:, None]),
            "spread": length(theta - mean[:, None]),
            "error": length(mean - self.optimum[:, None]),
        }
