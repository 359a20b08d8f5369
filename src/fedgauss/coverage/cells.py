"""How often intervals cover, and how wide they are, over many runs of one federation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from fedgauss._types import FloatArray
from fedgauss.coverage.federation import Federation
from fedgauss.sweep.cell import Row

if TYPE_CHECKING:
    from fedgauss.inference.passes import Pass
    from fedgauss.problems.regression import Regression

LEVEL = 0.95
# In the order in which they are shown.
METHODS = ("plugin", "plugin, drift subtracted", "plugin, last iterate", "bootstrap", "random_scaling", "batch_means")


@dataclass(frozen=True)
class CoverageCell:
    """R runs of a federation from a start at zero, and the intervals of every method but the bootstrap."""

    federation: Federation
    runs: int
    seed: int = 0

    experiment = "coverage"

    def __str__(self) -> str:
        return f"coverage of {self.federation}"

    @property
    def cost(self) -> float:
        """In draws of random numbers."""
        return _draws(self.federation) * self.runs + 3e8

    @property
    def group(self) -> tuple[object, ...]:
        """What the compiled program depends on."""
        f = self.federation
        return f.family, f.n_clients, f.dim, f.condition == 1.0

    def run(self) -> list[Row]:
        """A row for each method."""
        from fedgauss.inference.bias import estimated_bias, predicted_coverage
        from fedgauss.inference.path_methods import BatchMeans, RandomScaling, random_scaling_critical
        from fedgauss.inference.plugin import average_covariance, last_covariance

        problem = self.federation.problem()
        whole = _pass(self.federation, problem, self.runs, self.seed, [RandomScaling(), BatchMeans()])
        normal, window = float(stats.norm.ppf(0.5 + LEVEL / 2)), whole.schedule.window
        plugin, bias = average_covariance(whole), estimated_bias(whole)
        errors = np.sqrt(np.einsum("rii->ri", plugin))
        scaled = whole.runs.random_scaling.astype(float) / window
        judge = _Judge(self.federation, problem, self.runs)
        average, last = (np.asarray(found, dtype=float) for found in (whole.runs.average, whole.runs.last))
        predicted = {
            "predicted": float(predicted_coverage(bias.total / errors, LEVEL).mean()),
            "bias": float(np.abs((bias.total / errors).mean(axis=0)).max()),
        }
        moved = {"predicted": float(predicted_coverage(bias.start / errors, LEVEL).mean())}
        return [
            judge.row("plugin", average, normal * errors, plugin) | predicted,
            judge.row("plugin, drift subtracted", average - bias.drift.clear, normal * errors, plugin) | moved,
            judge.ellipsoid("plugin, last iterate", last, normal, last_covariance(whole)),
            judge.row(
                "random_scaling",
                average,
                random_scaling_critical(LEVEL) ** 0.5 * _errors(scaled),
                scaled,
                random_scaling_critical(LEVEL, problem.dim),
            ),
            judge.ellipsoid("batch_means", average, normal, whole.runs.batch_means.astype(float) / window),
        ]


@dataclass(frozen=True)
class BootstrapCell:
    """The first runs of a `CoverageCell`, each with B bootstrap chains beside it."""

    federation: Federation
    runs: int
    chains: int = 200
    seed: int = 0

    experiment = "coverage"

    def __str__(self) -> str:
        return f"bootstrap coverage of {self.federation}"

    @property
    def cost(self) -> float:
        """In draws of random numbers; a chain draws one bit a step, and takes a gradient."""
        return 0.25 * _draws(self.federation) * self.runs * self.chains

    @property
    def group(self) -> tuple[object, ...]:
        """What the compiled program depends on."""
        f = self.federation
        return "bootstrap", f.family, f.n_clients, f.dim, f.condition == 1.0

    def run(self) -> list[Row]:
        """One row."""
        from fedgauss.inference.bootstrap import bootstrap_deviations
        from fedgauss.inference.estimate import hotelling_radius2

        problem, graph = self.federation.problem(), self.federation.graph()
        whole = _pass(self.federation, problem, self.runs, self.seed, [])
        tau = self.federation.sync_every

        def deviations() -> Iterator[FloatArray]:
            for run in range(self.runs):
                yield bootstrap_deviations(problem, graph, whole, tau, self.chains, self.seed, run, progress=False)

        half, cov = [], []
        for draws in deviations():
            half.append(np.quantile(np.abs(draws), LEVEL, axis=0))
            cov.append(draws.T @ draws / len(draws))
        judge = _Judge(self.federation, problem, self.runs)
        estimates = np.asarray(whole.runs.average, dtype=float)
        radius2 = hotelling_radius2(LEVEL, problem.dim, self.chains)
        return [judge.row("bootstrap", estimates, np.stack(half), np.stack(cov), radius2)]


class _Judge:
    """Counts which intervals cover the optimum of a federation."""

    def __init__(self, federation: Federation, problem: Regression, runs: int) -> None:
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance

        lin = linearize(problem)
        self.optimum, self.runs, self.fields = lin.optimum, runs, asdict(federation)
        # Of an efficient estimate from all n steps.
        self.least = stats.norm.ppf(0.5 + LEVEL / 2) * np.sqrt(np.diag(limit_covariance(lin)) / federation.n_steps)

    def row(
        self, method: str, estimates: FloatArray, half: FloatArray, cov: FloatArray, radius2: float | None = None
    ) -> Row:
        """Coverage with its Monte-Carlo error; estimates and half widths (R, d), covariances (R, d, d).

        radius2   of the ellipsoid; the quantile of chi-squared if not given
        """
        covered = np.abs(estimates - self.optimum) <= half
        of_runs, of_coordinates = covered.mean(axis=1), covered.mean(axis=0)
        return {
            **self.fields,
            "method": method,
            "runs": self.runs,
            "coverage": float(covered.mean()),
            "error": float(of_runs.std(ddof=1) / np.sqrt(self.runs)),
            "lowest": float(of_coordinates.min()),
            "highest": float(of_coordinates.max()),
            "width": float((half / self.least).mean()),
            "joint": self._joint(estimates, cov, radius2),
        }

    def ellipsoid(self, method: str, estimates: FloatArray, critical: float, cov: FloatArray) -> Row:
        """Of intervals that follow from a covariance."""
        return self.row(method, estimates, critical * _errors(cov), cov)

    def _joint(self, estimates: FloatArray, cov: FloatArray, radius2: float | None) -> float:
        """How often the ellipsoid covers; where it is flat, it does not."""
        gaps = estimates - self.optimum
        values, axes = np.linalg.eigh(cov)
        along = np.einsum("rip,ri->rp", axes, gaps)
        statistic = (along**2 / np.maximum(values, 1e-12 * values[:, -1:])).sum(axis=1)
        return float((statistic <= (radius2 or stats.chi2.ppf(LEVEL, gaps.shape[1]))).mean())


def _pass(federation: Federation, problem: Regression, runs: int, seed: int, observe: list[object]) -> Pass:
    from fedgauss.inference.whitened import run_whitened

    return run_whitened(
        problem, federation.graph(), federation.n_steps, federation.sync_every, replicates=runs, seed=seed,
        observe=observe, beta=federation.beta, progress=False,  # type: ignore[arg-type]
    )  # fmt: skip


def _errors(cov: FloatArray) -> FloatArray:
    return np.sqrt(np.einsum("rii->ri", np.asarray(cov, dtype=float)))


def _draws(federation: Federation) -> float:
    """Random numbers of one run."""
    return float(federation.n_steps * federation.n_clients * (federation.dim + 1))
