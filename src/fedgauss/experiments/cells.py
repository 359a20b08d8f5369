"""The two kinds of computation behind the paper's results: distances to a Gaussian law, and quantiles of U_n.

A cell is a frozen dataclass of plain values. It runs by itself, anywhere, and gives rows. One cell holds every curve
with the same number of clients: they see the same random numbers, which are drawn once. JAX is imported when a cell
runs, and not before, so that a program which only lists or plans cells starts at once and hears Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.readings import Reading
from fedgauss.sweep.cell import Row

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.engine.observers import Observer
    from fedgauss.engine.runs import Runs
    from fedgauss.engine.together import Setting

Statistic = Literal["average over Sigma_n", "average over Sigma/K", "last over Sigma_n"]

LEVELS = tuple(float(level) for level in np.round(np.arange(0.02, 0.99, 0.02), 2))
APPROXIMATIONS = ("Aggr-GA", "Client-GA", "f-CLT")


@dataclass(frozen=True)
class Curve:
    """A line of a figure or table under one reading, for one draw of the clients.

    statistic   what distances compare: sqrt(n) (Ybar_n - theta*) scaled by Sigma_n or by Sigma/K; or, as one
                published program does, sqrt(n) (Y_n - theta*) of the last iterate scaled by the Sigma_n of the average
    norm        of U_n for local SGD; its approximations use the Euclidean norm
    shift       its approximations step by eta_{t + shift}, as one published program does
    """

    label: str
    reading: Reading
    draw: int = 0
    sync_every: int = 10
    gamma: float = 1.0
    rho: float | None = None  # None: the ring
    eta0: float = 0.3
    beta: float = 0.75
    statistic: Statistic = "average over Sigma_n"
    norm: Literal["euclidean", "max"] = "euclidean"
    shift: int = 0


@dataclass(frozen=True)
class DistanceCell:
    """Runs of some curves, and the ball distance of each after each of the listed steps.

    column   what the abscissa is: n, the listed steps, or K
    lanes    settings that one program runs; spare ones repeat the last curve and are dropped
    watched  steps that the program looks at, if more than are listed: cells that watch as many share a program
    """

    result: str
    curves: tuple[Curve, ...]
    column: Literal["n", "K"]
    n_clients: int
    steps: tuple[int, ...]
    replicates: int
    lanes: int
    seed: int = 0
    watched: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.result} with K = {self.n_clients}, n = {', '.join(map(str, self.steps))}"

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws, to start long cells first: an update of a client costs about a tenth of its draws."""
        return max(self._seen) * self.n_clients * self.replicates * (1.0 + 0.1 * self.lanes)

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"distance {self.n_clients} {self.replicates} {len(self._seen)} {self.lanes}"

    @property
    def _seen(self) -> tuple[int, ...]:
        return self.watched or self.steps

    def run(self) -> list[Row]:
        """A row for each curve and listed step."""
        from fedgauss.engine.observers import Average, Last, at
        from fedgauss.engine.together import simulate_together
        from fedgauss.problems.linearize import linearize

        watch = (at(self._seen, Average()), at(self._seen, Last()))
        settings = [_setting(curve, self.n_clients, watch) for curve in _filled(self.curves, self.lanes)]
        together = simulate_together(
            settings, max(self._seen), replicates=self.replicates, seed=self.seed, progress=False
        )
        rows: list[Row] = []
        for curve, setting, runs in zip(self.curves, settings, together, strict=False):
            rows += self._rows(curve, linearize(setting.problem), runs)
        return rows

    def _rows(self, curve: Curve, lin: Linearization, runs: Runs) -> list[Row]:
        from fedgauss import step_sizes
        from fedgauss.theory.covariances import average_covariance, limit_covariance
        from fedgauss.theory.distances import ball_distance, half_space_distance

        steps = step_sizes.polynomial(curve.eta0, curve.beta)
        iterates = runs.last_at if curve.statistic.startswith("last") else runs.average_at
        rows: list[Row] = []
        for n in self.steps:
            i = self._seen.index(n)
            limit = curve.statistic == "average over Sigma/K"
            cov = limit_covariance(lin) if limit else average_covariance(lin, steps, n)
            ball = ball_distance(iterates[:, i], lin.optimum, cov, n**0.5)
            half = half_space_distance(iterates[:, i], lin.optimum, cov, n**0.5, directions=8)
            rows.append(
                {
                    "result": self.result,
                    "reading": curve.reading.name,
                    "draw": curve.draw,
                    "seed": self.seed,
                    "curve": curve.label,
                    "x": n if self.column == "n" else self.n_clients,
                    "n": n,
                    "K": self.n_clients,
                    "estimate": ball.estimate,
                    "error": ball.standard_error,
                    "low": ball.interval[0],
                    "high": ball.interval[1],
                    "floor": ball.floor,
                    "half_spaces": half.estimate,
                    "replicates": self.replicates,
                }
            )
        return rows


@dataclass(frozen=True)
class QuantileCell:
    """U_n of local SGD and of its three approximations: quantiles, and their largest relative gap Q."""

    result: str
    curves: tuple[Curve, ...]
    n_clients: int
    n_steps: int
    replicates: int
    lanes: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.result} with K = {self.n_clients}, n = {self.n_steps}"

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws; Client-GA costs as much as the run itself."""
        return 2.0 * self.n_steps * self.n_clients * self.replicates * (1.0 + 0.1 * self.lanes)

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs: those with as many clients all of them, others Aggr-GA's."""
        return f"quantile {self.replicates} {self.lanes}"

    def run(self) -> list[Row]:
        """For each curve and approximation: Q, Q trimmed to [.05, .95], and pairs of quantiles."""
        from fedgauss.problems.linearize import linearize

        curves = _filled(self.curves, self.lanes)
        lins = [linearize(curve.reading.problem(self.n_clients, curve.gamma, curve.draw)) for curve in curves]
        reference = self._local_sgd(curves, lins)
        others = self._approximations(curves, lins)
        rows: list[Row] = []
        for i, curve in enumerate(self.curves):
            for name in APPROXIMATIONS:
                rows += self._rows(curve, name, reference[i], others[name][i])
        return rows

    def _local_sgd(self, curves: Sequence[Curve], lins: Sequence[Linearization]) -> list[FloatArray]:
        """U_n of each curve, in its own norm; both are folded, so that one program serves all."""
        from fedgauss.engine.observers import at, sup_partial_sum

        def watch(lin: Linearization) -> tuple[Observer, ...]:
            both = ((sup_partial_sum(lin.optimum, norm), f"_{norm}") for norm in ("euclidean", "max"))
            return tuple(at((self.n_steps,), observer, suffix) for observer, suffix in both)

        settings = [_setting(curve, self.n_clients, watch(lin)) for curve, lin in zip(curves, lins, strict=True)]
        return [
            runs.observed[f"sup_partial_sum_{curve.norm}"][:, 0].astype(float)
            for curve, runs in zip(curves, self._together(settings), strict=True)
        ]

    def _approximations(self, curves: Sequence[Curve], lins: Sequence[Linearization]) -> dict[str, list[FloatArray]]:
        """U_n of each approximation of each curve."""
        from fedgauss import approx, networks, step_sizes
        from fedgauss.engine.observers import sup_partial_sum

        ring, watch = networks.ring(self.n_clients), (sup_partial_sum(np.zeros(lins[0].dim)),)
        settings: dict[str, list[Setting]] = {name: [] for name in APPROXIMATIONS}
        for curve, lin in zip(curves, lins, strict=True):
            steps = step_sizes.polynomial(curve.eta0, curve.beta, shift=float(curve.shift))
            settings["Aggr-GA"].append(approx.aggregated_setting(lin, steps, watch))
            settings["Client-GA"].append(approx.client_setting(lin, ring, steps, curve.sync_every, 0, watch))
            settings["f-CLT"].append(approx.brownian_setting(lin, watch))
        return {
            name: [runs.sup_partial_sum.astype(float) for runs in self._together(listed)]
            for name, listed in settings.items()
        }

    def _together(self, settings: Sequence[Setting]) -> list[Runs]:
        from fedgauss.engine.together import simulate_together

        return simulate_together(settings, self.n_steps, replicates=self.replicates, seed=self.seed, progress=False)

    def _rows(self, curve: Curve, name: str, u: FloatArray, g: FloatArray) -> list[Row]:
        from fedgauss.theory.distances import max_relative_quantile_gap, quantile_gap_error

        base: Row = {
            "result": self.result,
            "reading": curve.reading.name,
            "draw": curve.draw,
            "seed": self.seed,
            "curve": curve.label,
            "approximation": name,
            "n": self.n_steps,
            "K": self.n_clients,
            "replicates": self.replicates,
        }
        rows: list[Row] = []
        for measure, trim in (("Q", 0.0), ("Q trimmed", 0.05)):
            value, error = max_relative_quantile_gap(u, g, trim=trim), quantile_gap_error(u, g, trim=trim)
            rows.append(base | {"measure": measure, "estimate": value, "error": error})
        for level, q, r in zip(LEVELS, np.quantile(u, LEVELS), np.quantile(g, LEVELS), strict=True):
            rows.append(base | {"measure": "quantile", "x": level, "reference": float(q), "estimate": float(r)})
        return rows


def _filled(curves: Sequence[Curve], lanes: int) -> list[Curve]:
    """`curves`, and the last again for every lane that is left."""
    return [*curves, *(curves[-1] for _ in range(lanes - len(curves)))]


def _setting(curve: Curve, n_clients: int, watch: Sequence[Observer]) -> Setting:
    from fedgauss import networks, step_sizes
    from fedgauss.engine.together import Setting

    return Setting(
        problem=curve.reading.problem(n_clients, curve.gamma, curve.draw),
        network=networks.ring(n_clients) if curve.rho is None else networks.lazy(n_clients, curve.rho),
        steps=step_sizes.polynomial(curve.eta0, curve.beta),
        sync_every=curve.sync_every,
        sync_phase=curve.reading.phase,
        start=curve.reading.theta_0(),
        observe=watch,
    )
