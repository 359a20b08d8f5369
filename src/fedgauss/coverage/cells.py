"""How often intervals cover, and how wide they are, over many runs of one federation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from fedgauss._types import FloatArray
from fedgauss.coverage.federation import Federation

if TYPE_CHECKING:
    from fedgauss.inference.passes import Pass
    from fedgauss.problems.regression import Regression

LEVEL = 0.95
# In the order in which they are shown.
METHODS = (
    "plugin",
    "plugin, average",
    "plugin, drift subtracted",
    "plugin, last iterate",
    "bootstrap",
    "random_scaling",
    "batch_means",
)


@dataclass(frozen=True)
class CoverageRow:
    """What the intervals of one method do in one federation, whose fields come first.

    coverage, error      the share of intervals that cover, over runs and coordinates, and its Monte Carlo error
    lowest, highest      the coverage of the worst and the best coordinate
    width                relative to the interval of an efficient estimate from all n steps
    joint                how often the ellipsoid covers
    predicted, bias      the coverage that the diagnostic of bias predicts, and the largest bias of a coordinate in
                         standard errors; None for methods without one, which the default is
    """

    family: str
    offsets: float
    condition: float
    n_clients: int
    sync_every: int
    network: str
    beta: float
    n_steps: int
    dim: int
    draw: int
    method: str
    runs: int
    coverage: float
    error: float
    lowest: float
    highest: float
    width: float
    joint: float
    predicted: float | None = None
    bias: float | None = None

    @property
    def federation(self) -> Federation:
        """The federation."""
        return Federation(**{own.name: getattr(self, own.name) for own in fields(Federation)})


@dataclass(frozen=True)
class _FederationCell:
    """R runs of a federation from a start at zero."""

    federation: Federation
    runs: int
    seed: int = field(default=0, kw_only=True)

    experiment = "coverage"

    @property
    def group(self) -> tuple[object, ...]:
        """What the compiled program depends on."""
        f = self.federation
        return type(self).__name__, f.family, f.n_clients, f.dim, f.condition == 1.0


@dataclass(frozen=True)
class CoverageCell(_FederationCell):
    """The intervals of every method but the bootstrap."""

    def __str__(self) -> str:
        return f"coverage of {self.federation}"

    @property
    def cost(self) -> float:
        """In draws of random numbers."""
        return _draws(self.federation) * self.runs + 3e8

    def run(self) -> list[CoverageRow]:
        """A row for each method."""
        from fedgauss.inference.accuracy import (
            average_covariance,
            estimated_bias,
            last_covariance,
            predicted_coverage,
            row_covariance,
        )
        from fedgauss.inference.methods import BatchMeans, RandomScaling
        from fedgauss.inference.reference_laws import StudentT, random_scaling_critical
        from fedgauss.inference.solution import all_rows

        problem = self.federation.problem()
        one_pass = _pass(self.federation, problem, self.runs, self.seed, [RandomScaling(), BatchMeans()])
        runs, window = one_pass.runs, one_pass.schedule.window
        average, last = (np.asarray(estimates, dtype=float) for estimates in (runs.average, runs.last))
        cov, bias = average_covariance(one_pass), estimated_bias(one_pass)
        errors, judge = _errors(cov), _Judge(self.federation, problem, self.runs)
        without_drift = judge.row("plugin, drift subtracted", average - bias.drift.clear, cov)
        critical, critical_joint = random_scaling_critical(LEVEL) ** 0.5, random_scaling_critical(LEVEL, problem.dim)
        scaled = runs.random_scaling.astype(float) / window
        solution = all_rows(problem, self.federation.n_steps, self.runs, self.seed, np.zeros(problem.dim), False)
        by_rows, dof = row_covariance(solution, one_pass.weights)
        laws = [StudentT(each) for each in dof]
        half = np.stack([law.half_widths(each, LEVEL) for law, each in zip(laws, _errors(by_rows), strict=True)])
        radius2 = np.array([law.radius2(LEVEL, problem.dim) for law in laws])
        return [
            judge.row("plugin", solution.params, by_rows, half, radius2),
            replace(
                judge.row("plugin, average", average, cov),
                predicted=float(predicted_coverage(bias.total / errors, LEVEL).mean()),
                bias=float(np.abs((bias.total / errors).mean(axis=0)).max()),
            ),
            replace(without_drift, predicted=float(predicted_coverage(bias.start / errors, LEVEL).mean())),
            judge.row("plugin, last iterate", last, last_covariance(one_pass)),
            judge.row("random_scaling", average, scaled, critical * _errors(scaled), critical_joint),
            judge.row("batch_means", average, runs.batch_means.astype(float) / window),
        ]


@dataclass(frozen=True)
class BootstrapCell(_FederationCell):
    """The first runs of a `CoverageCell`, each with B bootstrap chains beside it."""

    chains: int = 200

    def __str__(self) -> str:
        return f"bootstrap coverage of {self.federation}"

    @property
    def cost(self) -> float:
        """In draws of random numbers; a chain draws one bit a step, and takes a gradient."""
        return 0.25 * _draws(self.federation) * self.runs * self.chains

    def run(self) -> list[CoverageRow]:
        """One row."""
        from fedgauss.inference.methods import bootstrap_deviations
        from fedgauss.inference.reference_laws import hotelling_radius2

        problem, graph, tau = self.federation.problem(), self.federation.graph(), self.federation.sync_every
        one_pass = _pass(self.federation, problem, self.runs, self.seed, [])
        half, cov = [], []
        for run in range(self.runs):
            draws = bootstrap_deviations(problem, graph, one_pass, tau, self.chains, self.seed, run, progress=False)
            half.append(np.quantile(np.abs(draws), LEVEL, axis=0))
            cov.append(draws.T @ draws / len(draws))
        judge = _Judge(self.federation, problem, self.runs)
        estimates = np.asarray(one_pass.runs.average, dtype=float)
        radius2 = hotelling_radius2(LEVEL, problem.dim, self.chains)
        return [judge.row("bootstrap", estimates, np.stack(cov), np.stack(half), radius2)]


class _Judge:
    """Counts which intervals cover the optimum of a federation."""

    def __init__(self, federation: Federation, problem: Regression, runs: int) -> None:
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance

        lin = linearize(problem)
        self.optimum, self.runs, self.federation = lin.optimum, runs, federation
        self.normal = float(stats.norm.ppf(0.5 + LEVEL / 2))
        # Of an efficient estimate from all n steps.
        self.least = self.normal * np.sqrt(np.diag(limit_covariance(lin)) / federation.n_steps)

    def row(
        self,
        method: str,
        estimates: FloatArray,
        cov: FloatArray,
        half: FloatArray | None = None,
        radius2: float | FloatArray | None = None,
    ) -> CoverageRow:
        """Coverage with its Monte Carlo error; estimates and half widths (R, d), covariances (R, d, d).

        Half widths are normal ones, and radius2, that of the ellipsoid, a quantile of chi-squared, unless given.
        """
        half = self.normal * _errors(cov) if half is None else half
        covered = np.abs(estimates - self.optimum) <= half
        of_runs, of_coordinates = covered.mean(axis=1), covered.mean(axis=0)
        return CoverageRow(
            **asdict(self.federation),
            method=method,
            runs=self.runs,
            coverage=float(covered.mean()),
            error=float(of_runs.std(ddof=1) / np.sqrt(self.runs)),
            lowest=float(of_coordinates.min()),
            highest=float(of_coordinates.max()),
            width=float((half / self.least).mean()),
            joint=self._joint(estimates, cov, radius2),
        )

    def _joint(self, estimates: FloatArray, cov: FloatArray, radius2: float | FloatArray | None) -> float:
        """How often the ellipsoid covers; where it is flat, it does not."""
        gaps = estimates - self.optimum
        values, axes = np.linalg.eigh(cov)
        along = np.einsum("rip,ri->rp", axes, gaps)
        statistic = (along**2 / np.maximum(values, 1e-12 * values[:, -1:])).sum(axis=1)
        reach = stats.chi2.ppf(LEVEL, gaps.shape[1]) if radius2 is None else radius2
        return float((statistic <= reach).mean())


def _pass(federation: Federation, problem: Regression, runs: int, seed: int, observe: list[object]) -> Pass:
    from fedgauss.inference.passes import run_whitened

    return run_whitened(
        problem, federation.graph(), federation.n_steps, federation.sync_every, replicates=runs, seed=seed,
        observe=observe, beta=federation.beta, progress=False,  # type: ignore[arg-type]
    )  # fmt: skip


def _errors(cov: FloatArray) -> FloatArray:
    return np.sqrt(np.einsum("rii->ri", np.asarray(cov, dtype=float)))


def _draws(federation: Federation) -> float:
    """Random numbers of one run."""
    return float(federation.n_steps * federation.n_clients * (federation.dim + 1))
