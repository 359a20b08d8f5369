"""Cells that measure how far curves are from Gaussian, and the sets of them that several results share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from fedgauss.paper.curves import Curve, CurvesCell, readings_of
from fedgauss.paper.readings import LEGACY, TEXT, Reading

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.engine.runs import Runs
    from fedgauss.paper.result import Scale

STEPS = (100, 200, 300, 400, 500)  # after which programs with ten clients are looked at
TAUS = (10, 15, 20)


@dataclass(frozen=True)
class DistanceRow:
    """The ball distance of one curve after n steps, with its error, interval and noise floor.

    curve         the coordinates that tell the curves of a figure apart, for people
    x             the abscissa of the figure, n or K
    half_spaces   the distance over half-spaces in eight directions
    """

    result: str
    reading: str
    draw: int
    seed: int
    curve: str
    x: int
    n: int
    K: int
    estimate: float
    error: float
    low: float
    high: float
    floor: float
    half_spaces: float
    replicates: int
    tau: int
    gamma: float
    beta: float
    rho: float | None = None
    r: float | None = None


@dataclass(frozen=True)
class DistanceCell(CurvesCell):
    """The ball distance of each curve after each of the listed steps.

    column   what the abscissa is: n, the listed steps, or K
    named    the coordinates that tell the curves apart
    watched  steps that the program looks at, if more than are listed: cells that watch as many share a program
    """

    column: Literal["n", "K"]
    named: tuple[str, ...]
    steps: tuple[int, ...]
    watched: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.result} with K = {self.n_clients}, n = {', '.join(map(str, self.steps))}"

    @property
    def cost(self) -> float:
        """In draws, to start long cells first."""
        return self.draws(max(self._seen))

    @property
    def group(self) -> str:
        """Cells of one group share a compiled program."""
        return f"distance {self.n_clients} {self.replicates} {len(self._seen)} {self.lanes}"

    @property
    def _seen(self) -> tuple[int, ...]:
        return self.watched or self.steps

    def run(self) -> list[DistanceRow]:
        """A row for each curve and listed step."""
        from fedgauss.engine.observers import Average, Last, at
        from fedgauss.problems.linearize import linearize

        watch = (at(self._seen, Average()), at(self._seen, Last()))
        settings = [curve.setting(watch) for curve in self.filled]
        rows: list[DistanceRow] = []
        for curve, setting, runs in zip(self.curves, settings, self.together(settings, max(self._seen)), strict=False):
            rows += self._rows(curve, linearize(setting.problem), runs)
        return rows

    def _rows(self, curve: Curve, lin: Linearization, runs: Runs) -> list[DistanceRow]:
        from fedgauss.theory.covariances import average_covariance, limit_covariance
        from fedgauss.theory.distances import ball_distance, half_space_distance

        iterates = runs.last_at if curve.statistic == "last over Sigma_n" else runs.average_at
        rows = []
        for n in self.steps:
            y = iterates[:, self._seen.index(n)]
            limit = curve.statistic == "average over Sigma/K"
            cov = limit_covariance(lin) if limit else average_covariance(lin, curve.steps, n)
            ball = ball_distance(y, lin.optimum, cov, n**0.5)
            rows.append(
                DistanceRow(
                    **self.place(curve, self.named, n),
                    x=n if self.column == "n" else self.n_clients,
                    estimate=ball.estimate,
                    error=ball.standard_error,
                    low=ball.interval[0],
                    high=ball.interval[1],
                    floor=ball.floor,
                    half_spaces=half_space_distance(y, lin.optimum, cov, n**0.5, directions=8).estimate,
                    beta=curve.beta,
                    rho=curve.rho,
                    r=curve.r,
                )
            )
        return rows


def distance_cells(
    result: str,
    scale: Scale,
    curves: Callable[[int], list[Curve]],
    named: tuple[str, ...],
    column: Literal["n", "K"] = "n",
    steps: tuple[int, ...] = (300,),
    replicates: int = 1000,
) -> list[DistanceCell]:
    """A cell for each draw of the clients, with random numbers of its own. Those of ten clients share a program."""
    cells = []
    for draw in range(scale.draws):
        lines = tuple(curves(draw))
        watched, lanes = (STEPS, 15 if scale.thinned else 30) if lines[0].n_clients == 10 else (steps, 9)
        fixed = {"replicates": scale.replicates(replicates), "lanes": lanes, "seed": draw}
        cells.append(DistanceCell(result, lines, column, named, steps, watched, **fixed))
    return cells


def against_clients(result: str, scale: Scale, gamma: float, coded: Reading, grid: Sequence[int]) -> list[DistanceCell]:
    """Distances against K, a curve for each tau.

    The published program of Figure 1, right, looks at the last iterate, mixes every 5 steps in all three curves, and
    draws each curve's noise variances afresh. For Figure 4, right, none is published: the same is tried there, and
    was chosen because it comes close to the printed curves.
    """

    def at(n_clients: int) -> list[DistanceCell]:
        lines = [Curve(n_clients=n_clients, sync_every=tau, gamma=gamma) for tau in TAUS]

        def curves(draw: int) -> list[Curve]:
            last = [replace(line, reading=coded, statistic="last over Sigma_n") for line in lines]
            published = [
                replace(line, sync_every=5, labelled_tau=tau, draw=draw + i * scale.draws)
                for i, (line, tau) in enumerate(zip(last, TAUS, strict=True))
            ]
            return readings_of(lines, *TEXT)(draw) + published

        return distance_cells(result, scale, curves, ("tau",), "K")

    return [cell for n_clients in grid for cell in at(n_clients)]


def legacy_table(result: str, scale: Scale, lines: Sequence[Curve], named: str) -> list[DistanceCell]:
    """A table that does not state gamma: 1 in the text's setting, offsets of sd 5 in the programs."""

    coded = [replace(line, gamma=5.0) for line in lines]

    def curves(draw: int) -> list[Curve]:
        return readings_of(lines, *TEXT)(draw) + readings_of(coded, LEGACY)(draw)

    return distance_cells(result, scale, curves, (named,), steps=(100, 200, 300))
