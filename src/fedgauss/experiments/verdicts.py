r"""From rows to a verdict: whether the paper's numbers come out again, and under which reading.

Under one reading, each printed number p is set beside our values v_1, ..., v_D, one for each draw of the clients. Let e
be the Monte-Carlo standard error of one of them, from R runs, where the paper had R_p. The point agrees when

    min v - m <= p <= max v + m,    m = .02 + 2 e sqrt(1 + R / R_p).

The root counts the error of the printed number beside our own; with as many runs as the paper m = .02 + 2 sqrt(2) e.
The .02 is for values read off pictures and for other draws of the clients. A reading reproduces a result when at least
90 % of its points agree. The verdict is "reproduced" if a reading of the text does, else "reproduced as coded" if that
reading does, else "not reproduced".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedgauss.experiments.cell import Row
from fedgauss.experiments.layouts import Panel, panels, placed_rows, printed_points

Verdict = Literal["reproduced", "reproduced as coded", "not reproduced"]

ZERO, OPTIMUM, CODED = "text, start at zero", "text, start at optimum", "as coded"
READINGS = (ZERO, OPTIMUM, CODED)
SLACK = 0.02
SHARE = 0.9
_PAPER_RUNS = {"heterogeneity": 500, "figure3_qq": 500, "ablation_tau": 500, "ablation_gamma": 500}


def paper_runs(part: str) -> int:
    """Monte-Carlo runs behind a printed number, R_p: 500 where the paper says so, else 1000."""
    return _PAPER_RUNS.get(part, 1000)


@dataclass(frozen=True)
class Estimate:
    """Our value of one point under one reading.

    mean, low, high   over draws of the clients
    spread            their standard deviation over draws; 0 if there is one
    error             Monte-Carlo standard error of one draw, the root mean square over draws. Draws share their random
                      numbers, so that averaging them may not make it smaller, and the mean is given the same error.
    floor             what a Gaussian law would show at this many runs; 0 where that has no meaning
    """

    mean: float
    error: float
    low: float
    high: float
    draws: int
    runs: int
    floor: float = 0.0
    spread: float = 0.0

    def margin(self, runs_of_paper: int) -> float:
        """m = .02 + 2 e sqrt(1 + R / R_p)."""
        return float(SLACK + 2.0 * self.error * np.sqrt(1.0 + self.runs / runs_of_paper))

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
    """How one reading does: points that agree of those compared, and sqrt(mean (ours - printed)^2)."""

    reading: str
    agree: int
    compared: int
    rms: float

    @property
    def reproduces(self) -> bool:
        """At least 90 % of the points agree."""
        return self.compared > 0 and self.agree >= SHARE * self.compared


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
    agreements = tuple(_agreement(reading, flat, paper_runs(part)) for reading in readings_in(own))
    verdict, reading = _verdict(agreements)
    n_printed = sum(len(printed_points(panel)) for panel in its_panels)
    return Outcome(part, its_panels, points, agreements, n_printed, verdict, reading)


def _estimate(rows: Sequence[Row]) -> Estimate:
    values, errors = (np.array([row[name] for row in rows], dtype=float) for name in ("estimate", "error"))
    return Estimate(
        mean=float(values.mean()),
        error=float(np.sqrt(np.mean(errors**2))),
        low=float(values.min()),
        high=float(values.max()),
        draws=len(rows),
        runs=int(rows[0]["replicates"] or 0),
        floor=float(rows[0].get("floor") or 0.0),
        spread=float(values.std(ddof=1)) if len(rows) > 1 else 0.0,
    )


def _agreement(reading: str, points: list[Point], runs_of_paper: int) -> Agreement:
    pairs = [
        (point.ours[reading], point.printed) for point in points if point.printed is not None and reading in point.ours
    ]
    agree = sum(ours.agrees(printed, runs_of_paper) for ours, printed in pairs)
    squares = [(ours.mean - printed) ** 2 for ours, printed in pairs]
    return Agreement(reading, agree, len(pairs), float(np.sqrt(np.mean(squares))) if squares else float("nan"))


def _verdict(agreements: Sequence[Agreement]) -> tuple[Verdict, str | None]:
    """The text's readings come first; of two that reproduce, the one that agrees in more points."""
    able = {a.reading: a for a in agreements if a.reproduces}
    text = [able[reading] for reading in (ZERO, OPTIMUM) if reading in able]
    if text:
        return "reproduced", max(text, key=lambda a: a.agree / a.compared).reading
    return ("reproduced as coded", CODED) if CODED in able else ("not reproduced", None)


def readings_in(rows: list[Row]) -> list[str]:
    """The readings that occur, in their usual order."""
    occurring = {str(row["reading"]) for row in rows}
    return [reading for reading in READINGS if reading in occurring]
