"""Tables of a result: every point, printed and under each reading, and how the points move along the axis."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.trends import Trend
from fedgauss.experiments.verdicts import READINGS, Point, paper_runs
from fedgauss.report.reproduction.words import SHORT, errors_shown, heading, over_draws, symbol
from fedgauss.report.table import Table
from fedgauss.report.text import number, signed

AGREES = "✓"


def point_table(panel: Panel, points: Sequence[Point], what: str) -> Table:
    """A row for each point: printed, and ours with its error or range over draws, marked where they agree."""
    readings = [reading for reading in READINGS if any(reading in point.ours for point in points)]
    name, ours = heading(panel), [estimate for point in points for estimate in point.ours.values()]
    return Table(
        (symbol(panel.by), symbol(panel.across), "printed", *(SHORT[reading] for reading in readings)),
        tuple(
            (
                point.series,
                f"{point.x:g}",
                "" if point.printed is None else number(point.printed),
                *(_cell(panel, point, reading) for reading in readings),
            )
            for point in points
        ),
        f"{what}{', ' + name if name else ''}: printed, and measured ({errors_shown(ours)}); {AGREES} where they agree",
    )


def trend_table(panel: Panel, trends: dict[str | None, Trend]) -> Table:
    """A row for the printed numbers (None) and for each reading: both ends and the fitted change."""
    axis, name = symbol(panel.across), heading(panel)
    some = next(iter(trends.values()))
    return Table(
        ("", f"{axis} = {some.x_first:g}", f"{axis} = {some.x_last:g}", "change", "direction"),
        tuple(
            (
                "printed" if reading is None else SHORT[reading],
                number(found.first),
                number(found.last),
                signed(found.change) + ("" if reading is None else f" ({number(found.error)})"),
                "" if reading is None else found.direction,
            )
            for reading, found in trends.items()
        ),
        f"Along {axis}{', ' + name if name else ''}: means over curves and draws at both ends, and the change of a "
        "fitted line with its error",
    )


def _cell(panel: Panel, point: Point, reading: str) -> str:
    ours = point.ours.get(reading)
    if ours is None:
        return ""
    agrees = point.printed is not None and ours.agrees(point.printed, paper_runs(panel.part))
    value, *beside = over_draws(ours).split(" ", 1)
    return " ".join([value, *beside, *([AGREES] if agrees else [])])
