"""The error of Ybar_n decomposed, run by run, into W, D_1, D_2, D_3 and D_4 of Appendix B.1.1."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.linalg import sqrtm

from fedgauss._lanes import add_up, times
from fedgauss._shown import Shown
from fedgauss._types import ArrayLike, BoolArray, FloatArray, JaxArray
from fedgauss.engine.loop import Start
from fedgauss.engine.observers import Observer, Step, Sum
from fedgauss.engine.simulate import simulate
from fedgauss.networks import Network
from fedgauss.problems.base import Problem, pytree
from fedgauss.problems.linearize import linearize
from fedgauss.step_sizes import Steps, as_step_sizes
from fedgauss.theory.covariances import average_covariance, start_bias, step_matrices


@dataclass(frozen=True, repr=False)
class ErrorTerms(Shown):
    """sqrt(n) Sigma_n^-1/2 (Ybar_n - theta*) = W + D_1 + D_2 + D_3 + D_4 in every replicate; each is (R, d).

    noise     W    the linear, Gaussian-like part: sum of Q_s N_s with N_s the gradient noise at theta*
    start     D_1  where the run began
    curvature D_2  the risk is not quadratic
    drift     D_3  clients differ from their mean while their Hessians or weights differ
    moving    D_4  the gradient noise at theta_{s-1}^k is not that at theta*
    left           the left side, from the run itself
    """

    left: FloatArray
    noise: FloatArray
    start: FloatArray
    curvature: FloatArray
    drift: FloatArray
    moving: FloatArray

    @property
    def total(self) -> FloatArray:
        """W + D_1 + D_2 + D_3 + D_4."""
        return self.noise + self.start + self.curvature + self.drift + self.moving

    @property
    def gap(self) -> float:
        """The largest |left - total| over runs, relative to the root mean square of the left side."""
        scale = np.sqrt((self.left**2).sum(axis=1).mean())
        return float(np.abs(self.left - self.total).max() / scale)

    def rows(self) -> list[tuple[str, float, float]]:
        """For each term: its name, the length of its mean, and its root mean square length."""
        terms = {
            "W    noise at the optimum": self.noise,
            "D_1  start": self.start,
            "D_2  curvature": self.curvature,
            "D_3  client drift": self.drift,
            "D_4  moving noise": self.moving,
            "sum": self.total,
            "left side": self.left,
        }
        return [
            (name, float(np.linalg.norm(x.mean(axis=0))), float(np.sqrt((x**2).sum(axis=1).mean())))
            for name, x in terms.items()
        ]

    def __str__(self) -> str:
        head = f"sqrt(n) Sigma_n^-1/2 (Ybar_n - theta*) over {len(self.left)} runs\n"
        body = "\n".join(f"{name:28}{mean:12.5f}{size:12.5f}" for name, mean, size in self.rows())
        return f"{head}{'term':28}{'|mean|':>12}{'rms':>12}\n{body}"


def error_terms(
    problem: Problem,
    network: Network | ArrayLike | None,
    steps: Steps,
    n_steps: int,
    *,
    sync_every: int | BoolArray | None = 1,
    sync_phase: int = 0,
    replicates: int = 1000,
    seed: int = 0,
    start: Start = "zeros",
    progress: bool | None = None,
) -> ErrorTerms:
    """Run local SGD and decompose its error as in (B.5) to (B.10).

    The printed D_1 is n^-1/2 Sigma_n^-1/2 eta_0^-1 Q_0 (Y_0 - theta*), whose Q_0 counts a term j = 0 that Ybar_n
    does not have; here the sum starts at j = 1, and the identity is exact.

    Parameters
    ----------
    problem, network, steps, n_steps, sync_every, sync_phase, replicates, seed, start, progress
        As in `simulate`; clients must share their step sizes.

    Returns
    -------
    ErrorTerms
    """
    schedule = as_step_sizes(steps)
    if schedule.eta(n_steps).ndim == 2:
        raise ValueError("error_terms needs one step size for all clients (Theorem 2.1); got one per client.")
    lin = linearize(problem)
    weights = step_matrices(lin, schedule, n_steps)
    observer = _Remainders(weights, lin.optimum, lin.hessian)
    runs = simulate(
        problem,
        network,
        schedule,
        n_steps,
        sync_every=sync_every,
        sync_phase=sync_phase,
        replicates=replicates,
        seed=seed,
        start=start,
        observe=[observer],
        progress=progress,
    )
    covariance = average_covariance(lin, schedule, n_steps)
    whiten = np.linalg.inv(np.real(sqrtm(covariance)))

    def standardised(sums: FloatArray) -> FloatArray:
        return sums.astype(float) @ whiten.T / np.sqrt(n_steps)

    unit = np.eye(lin.dim)
    bias = np.stack([start_bias(lin, schedule, n_steps, lin.optimum + e) for e in unit], axis=1)
    return ErrorTerms(
        left=standardised(n_steps * (runs.average.astype(float) - lin.optimum)),
        noise=standardised(runs.noise),
        start=standardised(n_steps * runs.start_gap @ bias.T),
        curvature=standardised(runs.curvature),
        drift=standardised(runs.drift),
        moving=standardised(runs.moving),
    )


@pytree
class _Remainders(Observer):
    """The four sums over s of Q_s times the terms of step s, and Y_0 - theta*."""

    keeps_time = False

    step_matrices: FloatArray  # Q_s (n, d, d)
    optimum: FloatArray
    hessian: FloatArray

    def init(self, theta: JaxArray, n_steps: int) -> Any:
        zero = Sum.zero(theta[:, 0])
        return theta.mean(axis=1) - self.optimum[:, None], (zero, zero, zero, zero)

    def update(self, state: Any, step: Step) -> Any:
        gap, sums = state
        problem, data, theta = step.problem, step.data, step.before
        w = jnp.asarray(problem.weights)[:, None]
        optimum = jnp.broadcast_to(self.optimum[:, None, None], theta.shape)
        mean = theta.mean(axis=1)
        everywhere = jnp.broadcast_to(mean[:, None], theta.shape)
        at_theta, at_mean = problem.mean_gradient(theta), problem.mean_gradient(everywhere)
        noise_here = at_theta - problem.gradient(theta, data)
        noise_there = problem.mean_gradient(optimum) - problem.gradient(optimum, data)
        terms = (
            add_up(w * noise_there, axis=1),
            times(self.hessian, (mean - self.optimum[:, None])[:, None])[:, 0] - add_up(w * at_mean, axis=1),
            add_up(w * (at_mean - at_theta), axis=1),
            add_up(w * (noise_here - noise_there), axis=1),
        )
        q = self.step_matrices[step.t - 1]
        added = (s.add(times(q, x[:, None])[:, 0]) for s, x in zip(sums, terms, strict=True))
        return gap, tuple(added)

    def value(self, state: Any) -> dict[str, JaxArray]:
        gap, sums = state
        names = ("noise", "curvature", "drift", "moving")
        return {"start_gap": gap} | {name: s.result for name, s in zip(names, sums, strict=True)}
