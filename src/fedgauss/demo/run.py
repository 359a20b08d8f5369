"""The demonstration, computed: simulation and theory side by side. Nothing is drawn here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedgauss import networks
from fedgauss._progress import Tick
from fedgauss._types import FloatArray
from fedgauss.demo.attack import demo_attack
from fedgauss.demo.setup import Setup
from fedgauss.demo.simulation import Simulated, simulate_from
from fedgauss.demo.watching import Watched, watch_attack
from fedgauss.problems.linearize import linearize
from fedgauss.report.comparison import Comparison, Verdict, compare, judge, product_terms
from fedgauss.theory.advice import Advice, advise
from fedgauss.theory.covariances import average_covariance, last_covariance, limit_covariance, start_bias
from fedgauss.theory.exact import ExactPath, exact_moments, exact_path


@dataclass(frozen=True)
class FromStart:
    """One start: what was simulated, the exact law of every Y_t and Ybar_t, and their comparison."""

    start: FloatArray
    simulated: Simulated
    exact: ExactPath
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class DemoResult:
    """Simulation and theory side by side. Covariances are those of sqrt(n) (Ybar_n - theta*).

    sigma_n    Sigma_n, by n
    exact_n    n Cov(Ybar_n) from the optimum, by n
    averaged   the same at the last n, had all clients averaged with each other after every step
    limit      Sigma/K
    watched    the second chapter: an attack, and what the monitor says of it
    """

    setup: Setup
    optimum: FloatArray
    from_optimum: FromStart
    from_zero: FromStart
    sigma_n: dict[int, FloatArray]
    exact_n: dict[int, FloatArray]
    averaged: FloatArray
    limit: FloatArray
    verdict: Verdict
    advice: Advice
    watched: Watched

    def scaled(self, part: FromStart, checkpoint: int = -1) -> FloatArray:
        """sqrt(n) (Ybar_n - theta*) with n the checkpoint, (R, d)."""
        return self.setup.checkpoints[checkpoint] ** 0.5 * (part.simulated.averages[:, checkpoint] - self.optimum)

    def __str__(self) -> str:
        return str(self.verdict)


def run_demo(setup: Setup, tick: Tick = lambda what, done, total: None) -> DemoResult:
    """Simulate from the optimum and from zero, with the same data, beside theory; then watch an attack."""
    lin = linearize(setup.problem)
    n = setup.n_steps
    at_optimum = _from_start(setup, lin.optimum, partial(tick, "simulating, from the optimum"))
    at_zero = _from_start(setup, np.zeros(lin.dim), partial(tick, "simulating, from zero"))
    marks = sorted({*range(setup.sync_every, n + 1, setup.sync_every), *setup.checkpoints})
    everyone = networks.complete(setup.network.n_clients)
    averaged = exact_moments(setup.problem, everyone, setup.steps, n, 1, lin.optimum)
    comparisons = [*at_optimum.comparisons, *at_zero.comparisons]
    return DemoResult(
        setup=setup,
        optimum=lin.optimum,
        from_optimum=at_optimum,
        from_zero=at_zero,
        sigma_n={m: average_covariance(lin, setup.steps, m) for m in marks},
        exact_n={m: m * at_optimum.exact.cov_average[m - 1] for m in marks},
        averaged=n * averaged.cov_average,
        limit=limit_covariance(lin),
        verdict=judge(comparisons, setup.replicates),
        advice=advise(
            n,
            setup.network.n_clients,
            beta=setup.steps.beta,
            sync_every=setup.sync_every,
            second_eigenvalue=setup.network.second_eigenvalue,
        ),
        watched=watch_attack(demo_attack(setup), setup, partial(tick, "watching an attack")),
    )


def _from_start(setup: Setup, start: FloatArray, tick: Callable[[int, int], None]) -> FromStart:
    simulated = simulate_from(setup, start, tick)
    exact = exact_path(setup.problem, setup.network, setup.steps, setup.n_steps, setup.sync_every, start)
    return FromStart(start, simulated, exact, _compare(setup, start, simulated, exact))


def _compare(setup: Setup, start: FloatArray, simulated: Simulated, exact: ExactPath) -> tuple[Comparison, ...]:
    """The average, the last iterate and the disagreement, beside the exact law and the paper's approximations.

    Those are D_1, Sigma_n and tilde Sigma_n for sqrt(n) (Ybar_n - theta*) and n^(beta/2) (Y_n - theta*).
    """
    lin, n, beta = linearize(setup.problem), setup.n_steps, setup.steps.beta
    x = n**0.5 * (simulated.averages[:, -1] - lin.optimum)
    y = n ** (beta / 2) * (simulated.last - lin.optimum)
    mean, bias = n**0.5 * (exact.mean_average[-1] - lin.optimum), n**0.5 * start_bias(lin, setup.steps, n, start)
    cov, sigma = n * exact.cov_average[-1], average_covariance(lin, setup.steps, n)
    cov_last, sigma_last = n**beta * exact.cov[-1], last_covariance(lin, setup.steps, n)
    rows = [compare(f"average: mean {i + 1}", x[:, i], mean[i], bias[i]) for i in range(lin.dim)]
    for i in range(lin.dim):
        terms = product_terms(x[:, i], x[:, i])
        rows.append(compare(f"average: variance {i + 1}", terms, cov[i, i], sigma[i, i], positive=True))
    rows.append(compare("average: covariance", product_terms(x[:, 0], x[:, 1]), cov[0, 1], sigma[0, 1]))
    for i in range(lin.dim):
        terms = product_terms(y[:, i], y[:, i])
        rows.append(compare(f"last iterate: variance {i + 1}", terms, cov_last[i, i], sigma_last[i, i], positive=True))
    synced = n - n % setup.sync_every
    for t, when in [(synced - 1, "before"), (synced, "after")]:
        rows.append(
            Comparison(
                f"disagreement {when} mixing",
                simulated=float(simulated.square_disagreement[t - 1]),
                error=float(simulated.square_disagreement_error[t - 1]),
                exact=float(exact.disagreement[t - 1]),
                positive=True,
            )
        )
    return tuple(rows)
