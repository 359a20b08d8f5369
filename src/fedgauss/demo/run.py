"""The second chapter, computed: simulation beside theory. Nothing is drawn here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fedgauss import networks
from fedgauss._progress import Tick
from fedgauss._types import FloatArray
from fedgauss.demo.comparison import Comparison, Ellipse, ZCheck, check_z, compare, product_terms, variance_ratio
from fedgauss.demo.setup import DemoSetup
from fedgauss.engine import observers
from fedgauss.engine.simulate import simulate
from fedgauss.problems.linearize import linearize
from fedgauss.theory.advice import Advice, advise
from fedgauss.theory.covariances import average_covariance, last_covariance, limit_covariance, start_bias
from fedgauss.theory.exact import ExactPath, exact_moments, exact_path

_BLOCKS = (250, 2000)  # the fewest and the most replicates between two reports of progress


@dataclass(frozen=True)
class Simulated:
    """Local SGD from one start, R times.

    averages                    Ybar_n at each checkpoint                      (R, checkpoints, d)
    last                        Y_n                                            (R, d)
    paths                       Y_t of the first replicates                    (some, n, d)
    square_disagreement         |Theta_t (I - J)|_F^2, mean over replicates    (n,)
    square_disagreement_error   the Monte Carlo standard error of that mean    (n,)
    """

    averages: FloatArray
    last: FloatArray
    paths: FloatArray
    square_disagreement: FloatArray
    square_disagreement_error: FloatArray


@dataclass(frozen=True)
class StartResult:
    """One start: what was simulated, the exact law of every Y_t and Ybar_t, and their comparison."""

    start: FloatArray
    simulated: Simulated
    exact: ExactPath
    comparisons: tuple[Comparison, ...]

    @property
    def share_in_band(self) -> float:
        """The share of simulated Y_t, over kept runs, steps and coordinates, within two exact standard deviations."""
        return float(np.mean(np.abs(self.simulated.paths - self.exact.mean) <= 2 * self.exact.sd))


@dataclass(frozen=True)
class DemoResult:
    """Simulation and theory side by side. Covariances are those of sqrt(n) (Ybar_n - theta*), by n.

    sigma_n    Sigma_n
    limit_n    Sigma/K, the same at every n
    exact_n    n Cov(Ybar_n) from the optimum
    averaged   the same at the last n, had all clients averaged with each other after every step
    """

    setup: DemoSetup
    optimum: FloatArray
    from_optimum: StartResult
    from_zero: StartResult
    sigma_n: dict[int, FloatArray]
    limit_n: dict[int, FloatArray]
    exact_n: dict[int, FloatArray]
    averaged: FloatArray
    check: ZCheck
    advice: Advice

    def scaled(self, part: StartResult, checkpoint: int = -1) -> FloatArray:
        """sqrt(n) (Ybar_n - theta*) with n the checkpoint, (R, d)."""
        return self.setup.checkpoints[checkpoint] ** 0.5 * (part.simulated.averages[:, checkpoint] - self.optimum)

    def ratios(self, theory: Mapping[int, FloatArray]) -> list[Comparison]:
        """At each checkpoint, the variance from the optimum relative to `sigma_n` or `limit_n`."""
        return [
            variance_ratio(self.scaled(self.from_optimum, i), self.exact_n[n], theory[n])
            for i, n in enumerate(self.setup.checkpoints)
        ]

    def ellipses(self, part: StartResult) -> list[Ellipse]:
        """95 % ellipses for sqrt(n) (Ybar_n - theta*): the exact law, and N(0, Sigma_n) and N(0, Sigma/K)."""
        n, zero = self.setup.n_steps, np.zeros_like(self.optimum)
        center = n**0.5 * (part.exact.mean_average[-1] - self.optimum)
        return [
            Ellipse("exact", "exact", center, n * part.exact.cov_average[-1]),
            Ellipse("$\\Sigma_n$", "finite", zero, self.sigma_n[n], line="--"),
            Ellipse("$\\Sigma/K$", "limit", zero, self.limit_n[n], line=":"),
        ]

    def percentages(self, part: StartResult) -> list[float]:
        """The percentage of the runs that each of `ellipses` holds."""
        return [100 * ellipse.share(self.scaled(part)) for ellipse in self.ellipses(part)]

    def removed_by_mixing(self) -> tuple[float, float]:
        """The share of |Theta_t (I - J)|_F, in root mean square, that the first and the last mixing remove."""
        size = np.sqrt(self.from_optimum.simulated.square_disagreement)
        tau = self.setup.sync_every
        first, last = (1.0 - size[t - 1] / size[t - 2] for t in (tau, len(size) - len(size) % tau))
        return float(first), float(last)

    def __str__(self) -> str:
        return str(self.check)


def run_demo(setup: DemoSetup, tick: Tick = lambda what, done, total: None) -> DemoResult:
    """Simulate from the optimum and from zero, with the same data, beside theory.

    Parameters
    ----------
    setup : DemoSetup
        What to run; see `demo_setup`.
    tick : callable
        Called as tick(what, done, total) to report progress.
    """
    lin, n, network = linearize(setup.problem), setup.n_steps, setup.network
    at_optimum = _from_start(setup, lin.optimum, partial(tick, "simulating, from the optimum"))
    at_zero = _from_start(setup, np.zeros(lin.dim), partial(tick, "simulating, from zero"))
    marks = sorted({*range(setup.sync_every, n + 1, setup.sync_every), *setup.checkpoints})
    everyone = networks.complete(network.n_clients)
    averaged = exact_moments(setup.problem, everyone, setup.steps, n, 1, lin.optimum)
    advice = advise(
        n,
        network.n_clients,
        beta=setup.steps.beta,
        sync_every=setup.sync_every,
        second_eigenvalue=network.second_eigenvalue,
    )
    return DemoResult(
        setup=setup,
        optimum=lin.optimum,
        from_optimum=at_optimum,
        from_zero=at_zero,
        sigma_n={m: average_covariance(lin, setup.steps, m) for m in marks},
        limit_n=dict.fromkeys(marks, limit_covariance(lin)),
        exact_n={m: m * at_optimum.exact.cov_average[m - 1] for m in marks},
        averaged=n * averaged.cov_average,
        check=check_z([*at_optimum.comparisons, *at_zero.comparisons], setup.replicates),
        advice=advice,
    )


def _from_start(setup: DemoSetup, start: FloatArray, tick: Callable[[int, int], None]) -> StartResult:
    simulated = _simulate(setup, start, tick)
    exact = exact_path(setup.problem, setup.network, setup.steps, setup.n_steps, setup.sync_every, start)
    return StartResult(start, simulated, exact, _compare(setup, start, simulated, exact))


def _simulate(setup: DemoSetup, start: FloatArray, tick: Callable[[int, int], None]) -> Simulated:
    """Run blocks of replicates of one size, so that they share a compilation; `tick(done, total)` counts them.

    Each block has a seed of its own. What grows with n is kept for the first block only, or summed over all.
    """
    r, n = setup.replicates, setup.n_steps
    fewest, most = _BLOCKS
    n_blocks = -(-r // min(most, max(fewest, r // 64)))
    size = -(-r // n_blocks)
    watch = [
        observers.at(setup.checkpoints, observers.Average()),
        observers.at(range(1, n + 1), observers.Disagreement()),
        observers.path(),
    ]
    averages, last, paths = [], [], np.empty((0, n, setup.problem.dim))
    sums = np.zeros((2, n))
    for block in range(n_blocks):
        tick(block, n_blocks)
        runs = simulate(
            setup.problem,
            setup.network,
            setup.steps,
            n,
            sync_every=setup.sync_every,
            replicates=size,
            seed=(setup.seed << 32) + block,
            start=start,
            observe=watch,
            progress=False,
        )
        used = slice(min(size, r - block * size))
        averages.append(runs.average_at[used])
        last.append(runs.last[used])
        squares = runs.disagreement_at[used].astype(np.float64) ** 2
        sums += squares.sum(axis=0), (squares**2).sum(axis=0)
        if block == 0:
            paths = runs.path[used].astype(np.float64)
    tick(n_blocks, n_blocks)
    mean, mean_square = sums / r
    error = np.sqrt(np.maximum(mean_square - mean**2, 0.0) / (r - 1))
    every_average, every_last = (np.concatenate(parts).astype(np.float64) for parts in (averages, last))
    return Simulated(every_average, every_last, paths, mean, error)


def _compare(setup: DemoSetup, start: FloatArray, simulated: Simulated, exact: ExactPath) -> tuple[Comparison, ...]:
    """The average, the last iterate and the disagreement, beside the exact law and the paper's approximations.

    Those are D_1, Sigma_n and tilde Sigma_n for sqrt(n) (Ybar_n - theta*) and n^(beta/2) (Y_n - theta*).
    """
    lin, n, beta = linearize(setup.problem), setup.n_steps, setup.steps.beta
    x = (n**0.5 * (simulated.averages[:, -1] - lin.optimum)).T
    y = (n ** (beta / 2) * (simulated.last - lin.optimum)).T
    mean, bias = n**0.5 * (exact.mean_average[-1] - lin.optimum), n**0.5 * start_bias(lin, setup.steps, n, start)
    cov, sigma = n * exact.cov_average[-1], average_covariance(lin, setup.steps, n)
    cov_last, sigma_last = n**beta * exact.cov[-1], last_covariance(lin, setup.steps, n)
    synced = n - n % setup.sync_every

    def variances(what: str, points: FloatArray, exact: FloatArray, theory: FloatArray) -> list[Comparison]:
        return [
            compare(f"{what}: variance {i + 1}", product_terms(z, z), exact[i, i], theory[i, i], positive=True)
            for i, z in enumerate(points)
        ]

    def disagreement(when: str, t: int) -> Comparison:
        mean, error = simulated.square_disagreement[t - 1], simulated.square_disagreement_error[t - 1]
        name = f"disagreement {when} mixing"
        return Comparison(name, float(mean), float(error), float(exact.disagreement[t - 1]), positive=True)

    return (
        *(compare(f"average: mean {i + 1}", x[i], mean[i], bias[i]) for i in range(lin.dim)),
        *variances("average", x, cov, sigma),
        compare("average: covariance", product_terms(x[0], x[1]), cov[0, 1], sigma[0, 1]),
        *variances("last iterate", y, cov_last, sigma_last),
        disagreement("before", synced - 1),
        disagreement("after", synced),
    )
