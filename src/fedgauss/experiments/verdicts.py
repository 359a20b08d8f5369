r"""From rows to a verdict: whether the paper's numbers come out again, and under which reading.

Under one reading, each printed number p is set beside our values v_1, ..., v_D, one for each draw of the clients. Let e
be the Monte-Carlo standard error of one of them, from R runs, where the paper had R_p. The point agrees when

    min v - m <= p <= max v + m,    m = .02 + 2 e sqrt(1 + R / R_p).

The root counts the error of the printed number beside our own; with as many runs as the paper m = .02 + 2 sqrt(2) e.
The .02 is for values read off pictures and for other draws of the clients; of a number of steps it is a part of the
run. A reading reproduces a result when at least 90 % of its points agree. The verdict is "reproduced" if a reading of
the text does, else "reproduced as coded" if that reading does, else "not reproduced".

Where K changes along the axis each point has clients of its own. Drawn once, they leave no range from min v to max v,
and a point that is off may be the draw. So there, if a reading agrees in more than half of its points and in fewer than
90 %, the verdict is "left open": more draws decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgauss.experiments.draws import error_of_mean
from fedgauss.experiments.layouts import Panel, panels, placed_rows, printed_points
from fedgauss.sweep.cell import Row

Verdict = Literal["reproduced", "reproduced as coded", "left open", "not reproduced"]

ZERO, OPTIMUM, CODED = "text, start at zero", "text, start at optimum", "as coded"
READINGS = (ZERO, OPTIMUM, CODED)
SLACK = 0.02
SHARE = 0.9
WIDE = 0.5
_PAPER_RUNS = dict.fromkeys(("heterogeneity", "figure3_qq", "ablation_tau", "ablation_gamma", "attack_shift"), 500)
_PAPER_RUNS["attack_mnist"] = 100  # not stated; shares of two digits would be of so many runs, or of half as many


def paper_runs(part: str) -> int:
    """Monte-Carlo runs behind a printed number, R_p: 500 where the paper says so, 100 on MNIST, else 1000."""
    return _PAPER_RUNS.get(part, 1000)


@dataclass(frozen=True)
class Estimate:
    """Our value of one point under one reading.

    values   one for each draw of the clients, in the order of draws; draws are independent of each other
    errors   the Monte-Carlo standard error of each
    runs     behind each value
    floor    what a Gaussian law would show at this many runs; 0 where that has no meaning
    unit     what the .02 is a part of: 1 for distances and shares, the length of the run for steps
    """

    values: tuple[float, ...]
    errors: tuple[float, ...]
    runs: int
    floor: float = 0.0
    unit: float = 1.0

    @property
    def draws(self) -> int:
        """D, the number of draws."""
        return len(self.values)

    @property
    def mean(self) -> float:
        """Over draws."""
        return float(np.mean(self.values))

    @property
    def low(self) -> float:
        """The smallest value."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest value."""
        return max(self.values)

    @property
    def error(self) -> float:
        """e, the Monte-Carlo standard error of one draw: the root mean square over draws."""
        return float(np.sqrt(np.mean(np.square(self.errors))))

    @property
    def noise(self) -> float:
        """e / sqrt(D), the Monte-Carlo standard error of the mean for these clients."""
        return self.error / float(np.sqrt(self.draws))

    @property
    def mean_error(self) -> float:
        """The standard error of the mean with other clients in mind; see `error_of_mean`."""
        return error_of_mean(self.values, self.errors)

    def margin(self, runs_of_paper: int) -> float:
        """m = .02 + 2 e sqrt(1 + R / R_p), the .02 in units."""
        return float(SLACK * self.unit + 2.0 * self.error * np.sqrt(1.0 + self.runs / runs_of_paper))

    def agrees(self, value: float, runs_of_paper: int) -> bool:
        """low - m <= value <= high + m."""
        margin = self.margin(runs_of_paper)
        return self.low - margin <= value <= self.high + margin


@dataclass(frozen=True)
class Point:
    """A place on a panel: the printed number, None where the paper has none, and ours by reading."""

    series: str
    x: float
    printed: float | None
    ours: Mapping[str, Estimate]


@dataclass(frozen=True)
class Agreement:
    """How one reading does.

    agree, compared   points that agree, of those compared
    rms               sqrt(mean (ours - printed)^2), ours being the mean over draws, in units
    draws             draws of the clients behind a point
    wide              whether margins are wide: their median is more than half the median printed number, so that
                      agreement says little
    """

    reading: str
    agree: int
    compared: int
    rms: float
    draws: int
    wide: bool

    @property
    def reproduces(self) -> bool:
        """At least 90 % of the points agree."""
        return self.compared > 0 and self.agree >= SHARE * self.compared

    @property
    def one_draw_short(self) -> bool:
        """More than half of the points agree, with one draw of the clients behind each."""
        return self.draws == 1 and self.agree > 0.5 * self.compared


@dataclass(frozen=True)
class Outcome:
    """What became of one part of a result; figure 4 has two parts, the others one.

    n_printed   numbers that the paper prints; a quick run computes fewer
    reading     the one that the verdict rests on, None if there is none
    """

    part: str
    panels: tuple[Panel, ...]
    points: tuple[tuple[Point, ...], ...]  # for each panel
    agreements: tuple[Agreement, ...]
    n_printed: int
    verdict: Verdict
    reading: str | None

    @property
    def compared(self) -> int:
        """Printed numbers that were computed too."""
        return max((a.compared for a in self.agreements), default=0)

    def agreement(self, reading: str) -> Agreement | None:
        """How this reading does; None if it was not computed."""
        return next((a for a in self.agreements if a.reading == reading), None)


def outcomes(result: str, rows: list[Row]) -> list[Outcome]:
    """The outcome of each part of a result that the paper prints numbers for."""
    by_part: dict[str, list[Panel]] = {}
    for panel in panels(result):
        by_part.setdefault(panel.part, []).append(panel)
    return [_outcome(part, tuple(of_part), rows) for part, of_part in by_part.items()]


def points_of(panel: Panel, rows: list[Row], measure: str = "Q") -> tuple[Point, ...]:
    """Every computed point of a panel, printed or not, ordered by curve as in the paper and then by abscissa."""
    printed = printed_points(panel) if measure == "Q" else {}
    found: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for series, x, row in placed_rows(panel, rows, measure):
        found.setdefault((series, x), {}).setdefault(str(row["reading"]), []).append(row)
    curves = list(dict.fromkeys(series for series, _ in [*printed_points(panel), *sorted(found)]))
    return tuple(
        Point(*place, printed.get(place), {name: _estimate(own) for name, own in found[place].items()})
        for place in sorted(found, key=lambda place: (curves.index(place[0]), place[1]))
    )


def _outcome(part: str, its_panels: tuple[Panel, ...], rows: list[Row]) -> Outcome:
    own = [row for row in rows if row["result"] == part]
    points = tuple(points_of(panel, own) for panel in its_panels)
    flat = [point for of_panel in points for point in of_panel]
    agreements = tuple(agreement_of(reading, flat, paper_runs(part)) for reading in readings_in(own))
    verdict, reading = _verdict(agreements, new_clients=all(panel.new_clients for panel in its_panels))
    n_printed = sum(len(printed_points(panel)) for panel in its_panels)
    return Outcome(part, its_panels, points, agreements, n_printed, verdict, reading)


def _estimate(rows: Sequence[Row]) -> Estimate:
    by_draw = sorted(rows, key=lambda row: int(row["draw"] or 0))
    return Estimate(
        tuple(float(row["estimate"] or 0.0) for row in by_draw),
        tuple(float(row["error"] or 0.0) for row in by_draw),
        int(rows[0]["replicates"] or 0),
        float(rows[0].get("floor") or 0.0),
    )


def agreement_of(reading: str, points: Sequence[Point], runs_of_paper: int) -> Agreement:
    """How a reading, or a rule in its place, does at these points."""
    pairs = [
        (point.ours[reading], point.printed) for point in points if point.printed is not None and reading in point.ours
    ]
    if not pairs:
        return Agreement(reading, 0, 0, float("nan"), 0, wide=False)
    return Agreement(
        reading,
        sum(ours.agrees(printed, runs_of_paper) for ours, printed in pairs),
        len(pairs),
        float(np.sqrt(np.mean([((ours.mean - printed) / ours.unit) ** 2 for ours, printed in pairs]))),
        min(ours.draws for ours, _ in pairs),
        wide=bool(
            np.median([ours.margin(runs_of_paper) / ours.unit for ours, _ in pairs])
            > WIDE * np.median([abs(printed) / ours.unit for ours, printed in pairs])
        ),
    )


def _verdict(agreements: Sequence[Agreement], new_clients: bool) -> tuple[Verdict, str | None]:
    """The text's readings come first; of two that reproduce, the one that agrees in more points."""
    able = {a.reading: a for a in agreements if a.reproduces}
    text = [able[reading] for reading in (ZERO, OPTIMUM) if reading in able]
    if text:
        return "reproduced", max(text, key=lambda a: a.agree / a.compared).reading
    if CODED in able:
        return "reproduced as coded", CODED
    short = [a for a in agreements if new_clients and a.one_draw_short]
    return ("left open", max(short, key=lambda a: a.agree / a.compared).reading) if short else ("not reproduced", None)


def readings_in(rows: list[Row]) -> list[str]:
    """The readings that occur, in their usual order."""
    occurring = {str(row["reading"]) for row in rows}
    return [reading for reading in READINGS if reading in occurring]
