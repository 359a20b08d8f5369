"""Results that are distances of local SGD to its Gaussian law: their cells, and the section that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedgauss.paper import wording
from fedgauss.paper.judging import Outcome, Part, Point, Verdict, outcome
from fedgauss.paper.result import Result, Scale, Section
from fedgauss.paper.setting import FROM_OPTIMUM, FROM_ZERO, LEGACY, READINGS, SHORT, Curve, Reading
from fedgauss.paper.trends import trends
from fedgauss.report.text import listed, number

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.engine.simulate import Runs

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
class DistanceCell:
    """Runs of some curves with K clients, and the ball distance of each after each of the listed steps.

    They see the same random numbers, which are drawn once.

    column   what the abscissa is: n, the listed steps, or K
    named    the coordinates that tell the curves apart
    lanes    settings that one program runs; spare ones repeat the last curve and are dropped
    watched  steps that the program looks at, if more than are listed: cells that watch as many share a program
    """

    result: str
    curves: tuple[Curve, ...]
    column: Literal["n", "K"]
    named: tuple[str, ...]
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
    def n_clients(self) -> int:
        """K, the same for every curve."""
        return self.curves[0].n_clients

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

    def run(self) -> list[DistanceRow]:
        """A row for each curve and listed step."""
        from fedgauss.engine.observers import Average, Last, at
        from fedgauss.engine.simulate import simulate_together
        from fedgauss.problems.linearize import linearize

        watch = (at(self._seen, Average()), at(self._seen, Last()))
        settings = [curve.setting(watch) for curve in filled(self.curves, self.lanes)]
        together = simulate_together(
            settings, max(self._seen), replicates=self.replicates, seed=self.seed, progress=False
        )
        rows: list[DistanceRow] = []
        for curve, setting, runs in zip(self.curves, settings, together, strict=False):
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
            half = half_space_distance(y, lin.optimum, cov, n**0.5, directions=8)
            coordinates = curve.coordinates
            rows.append(
                DistanceRow(
                    self.result,
                    curve.reading.name,
                    curve.draw,
                    self.seed,
                    " ".join(f"{name}={coordinates[name]:g}" for name in self.named),
                    n if self.column == "n" else self.n_clients,
                    n,
                    self.n_clients,
                    ball.estimate,
                    ball.standard_error,
                    *ball.interval,
                    ball.floor,
                    half.estimate,
                    self.replicates,
                    **coordinates,
                )
            )
        return rows


def filled(curves: Sequence[Curve], lanes: int) -> list[Curve]:
    """`curves`, and the last again for every lane that is left."""
    return [*curves, *(curves[-1] for _ in range(lanes - len(curves)))]


# --- cells of a result -----------------------------------------------------------------------------------------------


def readings_of(lines: Iterable[Curve], coded: Reading | None, draw: int) -> list[Curve]:
    """Every line under each reading, for one draw of the clients. Clients that are known are drawn once."""
    readings = [FROM_ZERO, FROM_OPTIMUM]
    if coded is not None and not (coded.fixed_vars and draw > 0):
        readings.append(coded)
    return [replace(line, reading=reading, draw=draw) for reading in readings for line in lines]


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
        size = scale.replicates(replicates)
        cells.append(DistanceCell(result, lines, column, named, steps, size, lanes, draw, watched))
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
            return readings_of(lines, None, draw) + published

        return distance_cells(result, scale, curves, ("tau",), "K")

    return [cell for n_clients in grid for cell in at(n_clients)]


def legacy_table(result: str, scale: Scale, lines: Sequence[Curve], named: str) -> list[DistanceCell]:
    """A table that does not state gamma: 1 in the text's setting, offsets of sd 5 in the programs."""

    def curves(draw: int) -> list[Curve]:
        read = readings_of(lines, LEGACY, draw)
        return [replace(curve, gamma=5.0) if curve.reading is LEGACY else curve for curve in read]

    return distance_cells(result, scale, curves, (named,), steps=(100, 200, 300))


# --- the section -----------------------------------------------------------------------------------------------------


def nothing_more(outcomes: Sequence[Outcome], others: Mapping[str, Sequence[DistanceRow]]) -> list[str]:
    """No further sentences."""
    return []


@dataclass(frozen=True)
class DistanceResult(Result):
    """A figure or table of distances.

    parts    what is judged, each by itself
    symbol   of the distance
    more     further sentences on the rows, given the outcomes and the rows of other results
    """

    row = DistanceRow

    parts: tuple[Part, ...] = ()
    symbol: str = r"$\tilde{d}_c$"
    more: Callable[[Sequence[Outcome], Mapping[str, Sequence[DistanceRow]]], list[str]] = nothing_more

    def section(self, rows: Sequence[DistanceRow], others: Mapping[str, Sequence[DistanceRow]]) -> Section:
        """What a distance result shows."""
        from fedgauss.paper.figures import Column, comparison_figure
        from fedgauss.report.drawing import Drawing

        outcomes = [outcome(part, rows) for part in self.parts]
        panels = [
            (panel, points, one.part.runs)
            for one in outcomes
            for panel, points in zip(one.part.panels, one.points, strict=True)
        ]
        moving = [(panel, found) for panel, points, _ in panels if (found := trends(panel, points))]
        title = wording.title(moving)
        drawing = Drawing(
            self.name,
            comparison_figure(title, [Column(panel, points) for panel, points, _ in panels], self.symbol),
            "Filled marks and full lines: measured, the mean over draws of the clients with two Monte-Carlo errors to "
            "either side; a coloured band is the range over draws. Open marks and dashed lines: printed, the same in "
            "every row. The grey band is what a normal law would show at this many runs. Each row has its own scale.",
            f"Line charts of the distance, a row for each reading, with the printed curves in each. {title}.",
        )
        return Section(
            self,
            Verdict.of_parts([one.verdict for one in outcomes]),
            wording.summary(outcomes, moving),
            (
                *(text for one in outcomes for text in wording.agreement(one)),
                *(wording.trend_sentence(panel, found) for panel, found in moving),
                *self.more(outcomes, others),
                _half_spaces(rows),
                _floor(panels[0][1]),
            ),
            (drawing,),
            (
                *(wording.trend_table(panel, found) for panel, found in moving),
                *(wording.point_table(panel, points, "Distance", runs) for panel, points, runs in panels),
            ),
            tuple(text for part in self.parts for text in part.why),
            tuple(outcomes),
            wording.verdict_words(outcomes),
        )


def _floor(points: Sequence[Point]) -> str:
    """What a normal law would show at this many runs."""
    some = next(iter(points[0].ours.values()))
    assert some.floor is not None  # every distance has one
    return (
        f"Each draw of the clients has {some.runs:,} runs; with as many, a law that is exactly normal would show a "
        f"distance of {number(some.floor)} on average."
    )


def _half_spaces(rows: Sequence[DistanceRow]) -> str:
    """Whether the choice of sets matters: distances over half-spaces beside those over balls."""
    each = []
    for reading in READINGS:
        own = [row for row in rows if row.reading == reading]
        if own:
            half = float(np.mean([row.half_spaces for row in own]))
            ball = float(np.mean([row.estimate for row in own]))
            each.append(f"{number(half)} ({number(ball)}) {SHORT[reading]}")
    return f"Over half-spaces in eight directions the mean distance is {listed(each)}; over balls it is in brackets."
