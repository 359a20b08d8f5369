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

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib import resources
from typing import Any, Literal

import numpy as np
from scipy import special

from fedgauss._types import FloatArray
from fedgauss.paper.readings import CODED, OPTIMUM, READINGS, ZERO

Claim = Literal["falls", "rises", "falls, then rises", "none"]
Printed = Mapping[float | str, Mapping[float, float]]  # by curve and abscissa

_SYMBOLS = {"K0": "K_0", "mu": "μ", "tau": "τ", "gamma": "γ", "rho": "ρ", "beta": "β"}
SLACK = 0.02
SHARE = 0.9
WIDE = 0.5


class ResultVerdict(Enum):
    """What became of a result, in words. Its `role` is the colour of the palette it is written in."""

    REPRODUCED = "reproduced"
    AS_CODED = "reproduced as coded"
    IN_PART = "reproduced in part"
    IN_PART_AS_CODED = "reproduced in part as coded"
    LEFT_OPEN = "left open"
    NOT_REPRODUCED = "not reproduced"
    BEYOND = "beyond the paper"

    @property
    def role(self) -> str:
        """The colour."""
        roles = {ResultVerdict.REPRODUCED: "finite", ResultVerdict.NOT_REPRODUCED: "limit"}
        unjudged = (ResultVerdict.LEFT_OPEN, ResultVerdict.BEYOND)
        return roles.get(self, "muted" if self in unjudged else "exact")

    @classmethod
    def of_parts(cls, parts: Collection[ResultVerdict]) -> ResultVerdict:
        """Theirs, if they agree; else "in part" if any of them is reproduced."""
        if len(set(parts)) == 1:
            return next(iter(parts))
        return cls.IN_PART if {cls.REPRODUCED, cls.AS_CODED} & set(parts) else cls.NOT_REPRODUCED


def error_of_mean(values: Sequence[float] | FloatArray, errors: Sequence[float] | FloatArray) -> float:
    """The standard error of a mean over draws of the clients: max(e, s t / 2) / sqrt(D).

    Each draw has clients and random numbers of its own, so the D values are independent. They spread because clients
    differ and because each value has a Monte-Carlo error: s is their standard deviation, e the root mean square of
    those errors. With t the 97.5 % quantile of Student's law with D - 1 degrees of freedom, two errors to either side
    cover 95 %, however few draws there are. A few values may lie close together by chance, so e bounds the error from
    below. With one draw only e is known, and the error says nothing of other clients.
    """
    count = len(values)
    noise = float(np.sqrt(np.mean(np.square(errors))))
    if count == 1:
        return noise
    spread = float(np.std(values, ddof=1)) * float(special.stdtrit(count - 1, 0.975)) / 2.0
    return max(noise, spread) / float(np.sqrt(count))


@dataclass(frozen=True)
class Panel:
    """One picture of the paper, or one table seen as a picture. Coordinates are columns of the rows, by name.

    across    the coordinate along the axis
    by        the coordinate that tells curves apart
    expected  how the distance moves along the axis, as the paper has it
    printed   the paper's numbers, by curve and abscissa
    only      a coordinate that all points of the panel share, and its value
    side      "left" or "right", where a figure has two panels
    """

    across: str
    by: str
    expected: Claim = "none"
    printed: Printed = field(default_factory=dict)
    only: tuple[str, float] | None = None
    side: str = ""

    @property
    def new_clients(self) -> bool:
        """Whether K may change along the axis: each K has clients of its own, drawn anew."""
        return self.across == "K" or (self.only is not None and self.only[0] == "r")

    @property
    def printed_points(self) -> dict[tuple[str, float], float]:
        """The paper's numbers by place, in the paper's order."""
        return {
            (_series(curve), float(x)): value for curve, values in self.printed.items() for x, value in values.items()
        }

    @property
    def heading(self) -> str:
        """What tells it from the others of its result; "" for one that stands alone."""
        if self.only is not None:
            return f"{symbol(self.only[0])} = {self.only[1]:g}"
        return f"{self.side} panel" if self.side else ""

    def curve_name(self, series: str) -> str:
        """The name of a curve."""
        return series if self.by == "approximation" else f"{symbol(self.by)} = {series}"

    def place(self, row: Any) -> tuple[str, float] | None:
        """The curve of this panel that a row lies on, and its abscissa; None if it lies on another panel."""
        if self.only is not None and getattr(row, self.only[0]) != self.only[1]:
            return None
        return _series(getattr(row, self.by)), float(getattr(row, self.across))


def symbol(name: str) -> str:
    """A coordinate as a formula; a word as it is."""
    return name if name == "approximation" else f"${_SYMBOLS.get(name, name)}$"


def _series(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def printed(name: str) -> Printed:
    """The numbers of a table or figure of the paper, as printed.json has them."""
    text = resources.files("fedgauss.paper").joinpath("printed.json").read_text()
    table = json.loads(text)[name]
    rows = {curve: zip(table["columns"], values, strict=True) for curve, *values in table["rows"]}
    return {curve: {x: y for x, y in row if y is not None} for curve, row in rows.items()}


@dataclass(frozen=True)
class Part:
    """A part of a result with a verdict of its own; figure 4 has two parts, the others one.

    name     the name its rows go by
    short    in the chart of starts
    coded    the setting of the reading "as coded", for a line; "" where there is no such reading
    reason   why the text's setting does not give the printed numbers, for a line
    why      the longer story; formulas stand between dollar signs
    runs     Monte-Carlo runs behind a printed number, R_p
    """

    name: str
    panels: tuple[Panel, ...]
    reason: str
    why: tuple[str, ...]
    coded: str = ""
    runs: int = 1000
    short: str = ""

    @property
    def side(self) -> str:
        """Left or right, of a figure with two parts."""
        return self.panels[0].side


@dataclass(frozen=True)
class Measurement:
    """Our value of one point under one reading.

    values   one for each draw of the clients, in the order of draws; draws are independent of each other
    errors   the Monte-Carlo standard error of each
    runs     behind each value
    floor    what a Gaussian law would show at this many runs; None where that has no meaning
    unit     what the .02 is a part of: 1 for distances and shares, the length of the run for steps
    """

    values: tuple[float, ...]
    errors: tuple[float, ...]
    runs: int
    floor: float | None = None
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

    def agrees(self, value: float | None, runs_of_paper: int) -> bool:
        """low - m <= value <= high + m; a number that is not printed agrees with nothing."""
        margin = self.margin(runs_of_paper)
        return value is not None and self.low - margin <= value <= self.high + margin


@dataclass(frozen=True)
class Point:
    """A place on a panel: the printed number, None where the paper has none, and ours by reading."""

    series: str
    x: float
    printed: float | None
    ours: Mapping[str, Measurement]


Points = Sequence[Point]


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
    def share(self) -> float:
        """Of the points that agree."""
        return self.agree / self.compared

    @property
    def one_draw_short(self) -> bool:
        """More than half of the points agree, with one draw of the clients behind each."""
        return self.draws == 1 and self.agree > 0.5 * self.compared


@dataclass(frozen=True)
class Outcome:
    """What became of one part of a result.

    points    for each of its panels
    reading   the one that the verdict rests on, None if there is none
    """

    part: Part
    points: tuple[tuple[Point, ...], ...]
    agreements: tuple[Agreement, ...]
    verdict: ResultVerdict
    reading: str | None

    @property
    def flat(self) -> list[Point]:
        """The points of all panels."""
        return [point for of_panel in self.points for point in of_panel]

    @property
    def n_printed(self) -> int:
        """Numbers that the paper prints; a quick run computes fewer."""
        return sum(len(panel.printed_points) for panel in self.part.panels)

    @property
    def compared(self) -> int:
        """Printed numbers that were computed too."""
        return max((a.compared for a in self.agreements), default=0)

    def agreement(self, reading: str | None) -> Agreement | None:
        """How this reading does; None if it was not computed."""
        return next((a for a in self.agreements if a.reading == reading), None)


Outcomes = Sequence[Outcome]


def outcome(part: Part, rows: Iterable[Any]) -> Outcome:
    """What becomes of a part. Its rows have `result`, `reading`, `draw`, `estimate`, `error`, `replicates`."""
    own = [row for row in rows if row.result == part.name]
    points = tuple(points_of(panel, own) for panel in part.panels)
    flat = [point for of_panel in points for point in of_panel]
    computed = {row.reading for row in own}
    agreements = tuple(agreement_of(r, flat, part.runs) for r in READINGS if r in computed)
    verdict, reading = best_of(agreements, (ZERO, OPTIMUM), CODED)
    new_clients = all(panel.new_clients for panel in part.panels)
    short = [a for a in agreements if new_clients and a.one_draw_short]
    if reading is None and short:
        verdict, reading = ResultVerdict.LEFT_OPEN, max(short, key=lambda a: a.share).reading
    return Outcome(part, points, agreements, verdict, reading)


def points_of(panel: Panel, rows: Iterable[Any], compared: bool = True) -> tuple[Point, ...]:
    """Every computed point of a panel, printed or not, ordered by curve as in the paper and then by abscissa.

    compared   whether the rows hold what the paper prints, and not another measure at the same places
    """
    found: dict[tuple[str, float], dict[str, list[Any]]] = {}
    for row in rows:
        if (place := panel.place(row)) is not None:
            found.setdefault(place, {}).setdefault(row.reading, []).append(row)
    printed = panel.printed_points
    curves = list(dict.fromkeys(series for series, _ in [*printed, *sorted(found)]))
    return tuple(
        Point(
            *place,
            printed.get(place) if compared else None,
            {name: _estimate(own) for name, own in found[place].items()},
        )
        for place in sorted(found, key=lambda place: (curves.index(place[0]), place[1]))
    )


def _estimate(rows: Sequence[Any]) -> Measurement:
    by_draw = sorted(rows, key=lambda row: row.draw)
    return Measurement(
        tuple(row.estimate for row in by_draw),
        tuple(row.error for row in by_draw),
        rows[0].replicates,
        getattr(rows[0], "floor", None),
    )


def agreement_of(reading: str, points: Points, runs_of_paper: int) -> Agreement:
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


def best_of(agreements: Iterable[Agreement], text: Collection[str], coded: str) -> tuple[ResultVerdict, str | None]:
    """The verdict, and what it rests on: the text comes first; of two readings, the one that agrees in more points."""
    able = {a.reading: a for a in agreements if a.reproduces}
    by_text = [a for reading, a in able.items() if reading in text]
    if by_text:
        return ResultVerdict.REPRODUCED, max(by_text, key=lambda a: a.share).reading
    return (ResultVerdict.AS_CODED, coded) if coded in able else (ResultVerdict.NOT_REPRODUCED, None)
