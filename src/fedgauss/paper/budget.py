"""The distance of a run to its Gaussian law: simulated with each error term taken out, and from exact moments.

The results that go beyond the paper share these cells, the rows they return, and the budgets the rows add up to.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.paper.curves import Clients, Curve
from fedgauss.paper.judging import ResultVerdict
from fedgauss.paper.readings import CODED, OPTIMUM, SHORT, ZERO, Reading
from fedgauss.paper.result import Result, Scale, Section

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.step_sizes import StepSizes
    from fedgauss.theory.distances import Distance

Where = Literal["Figure 1, right", "Table over tau", "Figure 2", "phase map", "unequal Hessians", "Logistic"]
Measure = Literal["distance", "length", "exact moments", "exact mean", "slope on log n"]
Covariance = Literal["Sigma_n", "Sigma/K"]
Rows = Sequence["BeyondRow"]
Point = tuple[float, float, float]  # x, value, standard error

AT_ZERO = Reading(SHORT[ZERO], "zeros")
AT_OPTIMUM = Reading(SHORT[OPTIMUM], "optimum")
# Figure 2 has client standard deviations 1 and 2.
FIGURE_2 = Curve(replace(AT_OPTIMUM, noise_vars=(1.0, 4.0)), 3, gamma=0.0, sync_every=5, eta0=0.5)

# Taken out in this order. What is left of all is W, the noise at the optimum.
STAGES = ("all", "without D_1", "without D_1, D_3", "without D_1, D_3, D_2", "W")
REMOVED = dict(zip(STAGES[1:], ("D_1", "D_3", "D_2", "D_4"), strict=True))  # what a stage takes out
TERMS = ("W", "D_1", "D_2", "D_3", "D_4")

_SETTINGS = get_args(Where)
_READINGS = (SHORT[ZERO], SHORT[CODED], SHORT[OPTIMUM])
_MOST = 100_000  # more runs than this tell little more, and are slow to sort


@dataclass(frozen=True, kw_only=True)
class BeyondRow:
    """One measurement, and where it was made.

    setting      a setting of the paper, or one of our own; `curve` tells people the rest
    tau, ...     coordinates of the curve
    measure      "distance": of runs over balls, and over half-spaces in eight directions
                 "length": of an error term's mean, and its root mean square length
                 "exact moments": the distance of the Gaussian law with a run's exact mean and covariance
                 "exact mean": the length of the standardised mean of the average
                 "slope on log n": of the log distance
    term         an error term, or the stage at which a distance was measured
    covariance   of the Gaussian law that a distance is measured to
    printed      the bound of Theorem 2.3 as printed; `corrected` is the corrected one
    """

    result: str
    setting: Where
    reading: str
    curve: str
    clients: Clients | None = None
    draw: int
    n: int | None = None
    K: int
    tau: int
    gamma: float
    beta: float
    rho: float | None = None
    r: float | None = None
    replicates: int | None = None
    measure: Measure
    term: str | None = None
    covariance: Covariance | None = None
    estimate: float | None = None
    error: float | None = None
    floor: float | None = None
    half_spaces: float | None = None
    half_spaces_floor: float | None = None
    mean: float | None = None
    rms: float | None = None
    variance_ratio: float | None = None
    printed: float | None = None
    corrected: float | None = None

    @property
    def measured(self) -> tuple[float, float]:
        """The estimate and its standard error; a length has neither."""
        if self.estimate is None or self.error is None:
            raise ValueError(f"a row must hold an estimate and its error; this one is a {self.measure}.")
        return self.estimate, self.error

    def with_distance(self, found: Distance) -> BeyondRow:
        """This row with a distance of runs."""
        return replace(self, estimate=found.estimate, error=found.standard_error, floor=found.floor)


class BeyondResult(Result):
    """A result that goes beyond the paper, with a verdict in words of its own."""

    row: ClassVar = BeyondRow
    beyond: ClassVar[bool] = True
    quick: ClassVar[bool] = False

    def section_of(self, words: str, **parts: Any) -> Section:
        """A section whose verdict is in these words; the other parts are as `Section` has them."""
        return Section(self, ResultVerdict.BEYOND, words=words, **parts)


@dataclass(frozen=True)
class CurveCell(abc.ABC):
    """A cell that measures one curve, and what its rows have in common.

    experiment   the result that the rows belong to
    """

    experiment: str
    setting: Where
    curve: Curve

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program; those of this one compile nothing."""
        return "moments"

    @property
    def label(self) -> str:
        """The setting and its coordinates, for people."""
        labels = {
            "Table over tau": f"Table over tau, tau={self.curve.sync_every}",
            "Figure 2": f"Figure 2, r={self.curve.r} beta={self.curve.beta}",
            "phase map": f"beta={self.curve.beta}",
            "unequal Hessians": self.curve.clients,
        }
        return labels.get(self.setting, self.setting)

    @abc.abstractmethod
    def run(self) -> list[BeyondRow]:
        """The rows of this cell."""

    def row(self, measure: Measure, **columns: Any) -> BeyondRow:
        """A row of this curve."""
        return BeyondRow(
            result=self.experiment,
            setting=self.setting,
            reading=self.curve.reading.name,
            curve=self.label,
            clients=self.curve.clients,
            draw=self.curve.draw,
            K=self.curve.n_clients,
            measure=measure,
            **self.curve.coordinates,
            **columns,
        )

    def mean_start(self, lin: Linearization) -> FloatArray:
        """E(Theta_0)."""
        return np.zeros(lin.dim) if self.curve.reading.start == "zeros" else lin.optimum


@dataclass(frozen=True)
class BudgetCell(CurveCell):
    """Runs of one curve, taken apart: sqrt(n) Sigma_n^-1/2 (Ybar_n - theta*) = W + D_1 + D_2 + D_3 + D_4.

    Each stage is compared with N(0, Sigma_n) and with N(0, Sigma/K); the same runs serve all. The distance of W to
    N(0, Sigma_n) is Monte-Carlo error and what the gradient noise itself lacks of normality; its distance to
    N(0, Sigma/K) is, besides, what n has left of the gap between the two covariances.
    """

    n_steps: int
    replicates: int
    seed: int = 0

    @property
    def cost(self) -> float:
        """In draws; the mean gradient of logistic clients takes a quadrature in every step."""
        factor = 20.0 if self.curve.clients == "logistic" else 1.5
        return factor * self.n_steps * self.curve.n_clients * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        kind = {"random effects": "unit", "logistic": "logistic"}.get(self.curve.clients, "general")
        return f"budget {kind} {self.curve.n_clients} {self.replicates}"

    def run(self) -> list[BeyondRow]:
        """A row for each stage and covariance, with `estimate`; and one for each term, with its lengths."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.decomposition import error_terms
        from fedgauss.theory.distances import ball_distance, half_space_distance

        curve, problem = self.curve, self.curve.problem()
        terms = error_terms(
            problem,
            curve.network,
            curve.steps,
            self.n_steps,
            sync_every=curve.sync_every,
            sync_phase=curve.reading.phase,
            replicates=self.replicates,
            seed=self.seed,
            start=curve.reading.theta_0(),
            progress=False,
        )
        lin = linearize(problem)
        covariances = _covariances(lin, curve.steps, self.n_steps)
        values, vectors = np.linalg.eigh(covariances["Sigma_n"])
        root, zero = (vectors * np.sqrt(values)) @ vectors.T, np.zeros(lin.dim)
        rows = []
        removed = (terms.start, terms.drift, terms.curvature, terms.moving)  # in the order of STAGES
        for stage, z in zip(STAGES, accumulate(removed, np.subtract, initial=terms.left), strict=True):
            for name, cov in covariances.items():
                row = self._row("distance", stage).with_distance(ball_distance(z @ root, zero, cov, 1.0))
                if name == "Sigma_n":
                    half = half_space_distance(z, zero, np.eye(lin.dim), 1.0, directions=8)
                    row = replace(row, half_spaces=half.estimate, half_spaces_floor=half.floor)
                rows.append(replace(row, covariance=name))
        for term, (_, mean, rms) in zip(TERMS, terms.rows(), strict=False):
            rows.append(replace(self._row("length", term), mean=mean, rms=rms))
        return rows

    def _row(self, measure: Measure, term: str) -> BeyondRow:
        return self.row(measure, n=self.n_steps, replicates=self.replicates, term=term)


@dataclass(frozen=True)
class MomentsCell(CurveCell):
    """The ball distance between N(b, S) and the two Gaussian laws of theory, after each of the listed steps.

    b and S are the mean and the covariance of sqrt(n) (Ybar_n - theta*), by the exact recursion. A run is not quite
    Gaussian, so its own distance may differ from this one; a trend of this one, in K or in n, has no noise in it.
    """

    steps: tuple[int, ...]

    @property
    def cost(self) -> float:
        """In draws of a simulation that would take as long: the recursion moves K^2 numbers a step."""
        return float(max(self.steps) * (5e3 + 6 * self.curve.n_clients**2))

    def run(self) -> list[BeyondRow]:
        """A row for each listed step and each covariance."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.exact import exact_path

        curve, problem = self.curve, self.curve.problem()
        lin = linearize(problem)
        last, start, phase = max(self.steps), self.mean_start(lin), curve.reading.phase
        path = exact_path(problem, curve.network, curve.steps, last, curve.sync_every, start, sync_phase=phase)
        rows = []
        for n in self.steps:
            mean, cov = n**0.5 * (path.mean_average[n - 1] - lin.optimum), n * path.cov_average[n - 1]
            for name, theory in _covariances(lin, curve.steps, n).items():
                row = self.row("exact moments", n=n, term="all", covariance=name)
                distance = gaussian_ball_distance(mean, cov, theory)
                ratio = float(np.trace(np.linalg.solve(theory, cov))) / lin.dim
                rows.append(replace(row, estimate=distance, error=0.0, variance_ratio=ratio))
        return rows


def gaussian_ball_distance(mean: FloatArray, cov: FloatArray, theory: FloatArray) -> float:
    """sup_x |P(|theory^-1/2 X| <= x) - (1 - exp(-x^2 / 2))| for X ~ N(mean, cov) in the plane.

    The density of the length is that of X in polar coordinates, averaged over the angle; the trapezoidal rule gives
    it to about 1e-5.
    """
    white = np.linalg.inv(np.linalg.cholesky(theory))
    center, spread = white @ mean, white @ cov @ white.T
    angle = np.linspace(0.0, 2.0 * np.pi, 128, endpoint=False)
    low, high = np.sqrt(np.linalg.eigvalsh(spread))
    reach = float(np.linalg.norm(center)) + 8.0 * max(1.0, float(high))
    x = np.linspace(0.0, reach, 1 + int(100.0 * reach / min(1.0, float(low))))
    points = x[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) - center
    square = np.einsum("xai,xai->xa", points @ np.linalg.inv(spread), points)
    density = x * np.exp(-square / 2).mean(axis=1) / np.sqrt(np.linalg.det(spread))
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    return float(np.abs(share - (1.0 - np.exp(-(x**2) / 2))).max())


@dataclass(frozen=True)
class Budget:
    """The simulated rows of one setting and one number of clients. Numbers are means over draws of the clients."""

    rows: tuple[BeyondRow, ...]

    @property
    def at(self) -> BeyondRow:
        """A row, for the coordinates that all of them share."""
        return self.rows[0]

    @property
    def floor(self) -> float:
        """The distance that a Gaussian law would show at as many runs."""
        return self._mean("floor", "all", "Sigma_n")

    def distance(self, stage: str, covariance: str = "Sigma_n") -> float:
        """Over balls."""
        return self._mean("estimate", stage, covariance)

    def error(self, stage: str, covariance: str = "Sigma_n") -> float:
        """The Monte-Carlo standard error of a distance."""
        return self._mean("error", stage, covariance)

    def half_spaces(self, stage: str) -> float:
        """The distance over half-spaces to N(0, Sigma_n)."""
        return self._mean("half_spaces", stage, "Sigma_n")

    def mean(self, term: str) -> float:
        """The length of a term's mean."""
        return self._mean("mean", term)

    def rms(self, term: str) -> float:
        """The root mean square length of a term."""
        return self._mean("rms", term)

    def acts(self, term: str) -> bool:
        """Whether a term is there at all: runs are in single precision, and what is zero shows as rounding."""
        return self.rms(term) > 1e-3 * sum(self.rms(other) for other in TERMS)

    def _mean(self, column: str, term: str, covariance: str | None = None) -> float:
        values = [getattr(row, column) for row in matching(self.rows, term=term, covariance=covariance)]
        return sum(values) / len(values)


def budgets_of(rows: Rows, **columns: Any) -> list[Budget]:
    """Budgets of the rows with these columns, as the settings are listed, and from zero before from the optimum."""
    grouped: dict[tuple[Any, ...], list[BeyondRow]] = {}
    for row in matching(rows, **columns):
        if row.measure in ("distance", "length"):
            start = _READINGS.index(row.reading)
            place = (_SETTINGS.index(row.setting), start, row.tau, row.r, row.beta, row.clients, row.K)
            grouped.setdefault(place, []).append(row)
    return [Budget(tuple(grouped[place])) for place in sorted(grouped)]


def by_draw(rows: Rows, **columns: Any) -> list[list[Point]]:
    """K, estimate and error of the rows with these columns, ordered by K, a list for each draw of the clients."""
    found: dict[int, list[Point]] = {}
    for row in matching(rows, **columns):
        found.setdefault(row.draw, []).append((row.K, *row.measured))
    return [sorted(line) for line in found.values()]


def matching(rows: Rows, **columns: Any) -> list[BeyondRow]:
    """Those of the rows that have these values in these columns."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in columns.items())]


def runs(count: int, scale: Scale) -> int:
    """How many runs at a scale, where there would be this many at the paper's."""
    return min(_MOST, scale.replicates(count))


def _covariances(lin: Linearization, steps: StepSizes, n: int) -> dict[Covariance, FloatArray]:
    """Of the Gaussian laws that theory has for sqrt(n) (Ybar_n - theta*)."""
    from fedgauss.theory.covariances import average_covariance, limit_covariance

    return {"Sigma_n": average_covariance(lin, steps, n), "Sigma/K": limit_covariance(lin)}
