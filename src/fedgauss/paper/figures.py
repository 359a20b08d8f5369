"""Pictures of results: ours beside the printed curve, a row for each reading and a column for each panel.

The layout is given in inches, because finding one that fits takes longer than drawing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedgauss.paper.curves import CODED, OPTIMUM, READINGS, SHORT, ZERO
from fedgauss.paper.judging import Estimate, Panel, Point, symbol
from fedgauss.paper.quantile import APPROXIMATIONS
from fedgauss.report.output import WIDTH, few_ticks, key, log_ticks, named_rows, styled
from fedgauss.report.page import LIGHT

if TYPE_CHECKING:
    from fedgauss.paper.results.figure3_qq import QuantileCurve

_ROLES = ("exact", "limit", "finite")
_MARKERS = ("o", "s", "^")
_ORDER = {"Aggr-GA": 0, "f-CLT": 1, "Client-GA": 2}  # the functional CLT in the colour that stands out
_LEFT, _RIGHT, _GAP = 0.62, 0.12, 0.22
_LABEL, _LINE = 0.50, 0.21  # below the last row, a line of text
_CAPITAL = {reading: name[0].upper() + name[1:] for reading, name in SHORT.items()}


@dataclass(frozen=True)
class Column:
    """The points of a panel; `title` says what tells it from the other columns."""

    panel: Panel
    points: Sequence[Point]
    title: str = ""


@dataclass(frozen=True)
class Level:
    """The mean distance of one part over all its points: printed, and by reading."""

    name: str
    printed: float
    ours: Mapping[str, float]


@styled
def comparison_figure(title: str, columns: Sequence[Column], y_label: str) -> Figure:
    """Filled marks: ours with two Monte-Carlo errors to either side. Open marks, dashed: printed. Band: the floor."""
    readings = [r for r in READINGS if any(r in point.ours for column in columns for point in column.points)]
    series = list(dict.fromkeys(point.series for column in columns for point in column.points))
    legend = _legend(columns[0].panel, series, columns)
    figure, grid = _grid(title, len(readings), len(columns), legend, height=1.6)
    for reading, line in zip(readings, grid, strict=True):
        for column, axes in zip(columns, line, strict=True):
            name = column.title or column.panel.heading
            axes.set_title(
                _CAPITAL[reading] + (f", {name}" if name else ""), y=1.0, pad=7, fontsize=10.5, color=LIGHT["muted"]
            )
            for i, one in enumerate(series):
                _draw_curve(axes, [p for p in column.points if p.series == one], reading, i, len(series))
            _mark_floor(axes, column.points, reading)
            _x_axis(axes, sorted({point.x for point in column.points}))
        line[0].set_ylim(bottom=0.0)
        line[0].set_ylabel(y_label)
        few_ticks(line[0].yaxis, 5)
    for column, axes in zip(columns, grid[-1], strict=True):
        axes.set_xlabel(symbol(column.panel.across))
    return figure


@styled
def quantile_figure(title: str, curves: Sequence[QuantileCurve]) -> Figure:
    """Quantiles of the approximations against those of U_n, both over the median of U_n; on the diagonal they agree."""
    readings = [r for r in READINGS if any(c.reading == r for c in curves)]
    sizes = sorted({c.n_clients for c in curves})
    legend = [_key(name, _ORDER[name]) for name in APPROXIMATIONS]
    legend.append(key("agreement", lw=0.8, ls=(0, (4, 3))))
    figure, grid = _grid(title, len(readings), len(sizes), legend, height=1.35, head=0.46)
    for reading, line in zip(readings, grid, strict=True):
        for n_clients, axes in zip(sizes, line, strict=True):
            own = [c for c in curves if (c.reading, c.n_clients) == (reading, n_clients)]
            for c in sorted(own, key=lambda c: _ORDER[c.approximation]):
                median = float(np.interp(0.5, c.level, c.reference))
                x, y = np.array(c.reference) / median, np.array(c.quantile) / median
                axes.plot(x, y, _MARKERS[_ORDER[c.approximation]], ms=2.2, mew=0, color=_colour(c.approximation, 0))
            axes.axline((1.0, 1.0), slope=1.0, color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)), zorder=0)
            axes.set_title(f"{_CAPITAL[reading]}\n$K$ = {n_clients}", y=1.0, pad=4, fontsize=10, color=LIGHT["muted"])
            few_ticks(axes.xaxis, 3)
            few_ticks(axes.yaxis, 3)
        line[0].set_ylabel("approximation")
    for axes in grid[-1]:
        axes.set_xlabel("$U_n$ / median")
    return figure


@styled
def level_figure(title: str, levels: Sequence[Level]) -> Figure:
    """A line for each part: where its distances lie on average, printed and under each reading."""
    looks: dict[str | None, tuple[str, str, str]] = {
        ZERO: ("s", "limit", "from zero"),
        OPTIMUM: ("o", "finite", "from the optimum"),
        CODED: ("^", "exact", "as coded"),
        None: ("D", "ink", "printed"),
    }
    legend = [
        key(name, role, ls="", marker=mark, mfc=_inside(reading, role), ms=5.5)
        for reading, (mark, role, name) in looks.items()
    ]
    figure, ((axes,),) = _grid(title, 1, 1, legend, height=0.3 * len(levels), head=0.05, left=1.55)
    named_rows(axes, [level.name for level in levels])
    for row, level in enumerate(reversed(levels)):
        for reading, (mark, role, _) in looks.items():
            value = level.printed if reading is None else level.ours.get(reading)
            if value is not None:
                axes.plot(value, row, mark, color=LIGHT[role], mfc=_inside(reading, role), ms=5.5, clip_on=False)
    axes.set(xlim=(0.0, 1.0), xlabel="mean distance to the normal law")
    return figure


def stacked(
    title: str,
    rows: int,
    legend: Sequence[Any],
    height: float,
    head: float = 0.06,
    left: float = _LEFT,
    columns: int = 3,
) -> tuple[Figure, Any]:
    """Panels above each other; `columns` is how many entries of the legend stand in a line."""
    return _framed(title, (rows, 1), legend, height, head, left, 0.32, columns)


def _grid(
    title: str,
    rows: int,
    columns: int,
    legend: Sequence[Any],
    height: float,
    head: float = 0.30,
    left: float = _LEFT,
) -> tuple[Figure, Any]:
    """Panels in rows and columns, which share their axes."""
    per_line = 3 if len(legend) != 4 else 2
    return _framed(title, (rows, columns), legend, height, head, left, 0.06, per_line, sharex="col", sharey="row")


def _framed(
    title: str,
    shape: tuple[int, int],
    legend: Sequence[Any],
    height: float,
    head: float,
    left: float,
    between: float,
    per_line: int,
    **shared: Any,
) -> tuple[Figure, Any]:
    """Panels of this height in inches with a heading above each, under a title and over a legend."""
    rows, columns = shape
    lines = textwrap.wrap(title, 68)
    top, bottom = 0.10 + _LINE * len(lines), _LABEL + _LINE * -(-len(legend) // per_line)
    total = top + rows * (head + height) + bottom + (rows - 1) * between
    figure = Figure(figsize=(WIDTH, total))
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": left / WIDTH,
            "right": 1.0 - _RIGHT / WIDTH,
            "top": 1.0 - (top + head) / total,
            "bottom": bottom / total,
            "wspace": _GAP * columns / (WIDTH - left - _RIGHT - _GAP * (columns - 1)),
            "hspace": (head + between) / height,
        },
        **shared,
    )
    figure.text(0.01, 1.0 - 0.06 / total, "\n".join(lines), va="top", fontsize=11.5, linespacing=1.2)
    figure.legend(
        handles=legend, loc="lower center", ncols=per_line, handlelength=1.8, columnspacing=1.2, borderaxespad=0.15
    )
    return figure, grid


def _legend(panel: Panel, series: Sequence[str], columns: Sequence[Column]) -> list[Any]:
    keys: list[Any] = [_key(panel.curve_name(one), _ORDER.get(one, i)) for i, one in enumerate(series)]
    keys.append(key("printed", lw=0.9, ls=(0, (3, 2)), marker="o", mfc="none"))
    ours = [one for column in columns for point in column.points for one in point.ours.values()]
    if any(one.floor is not None for one in ours):
        keys.append(Patch(color=LIGHT["faint"], label="noise floor"))
    if any(one.draws > 1 for one in ours):
        keys.append(Patch(color=LIGHT["exact"], alpha=0.15, lw=0, label="range over draws"))
    return keys


def _key(label: str, i: int) -> Any:
    return key(label, _ROLES[i], marker=_MARKERS[i], ms=4)


def _colour(series: str, i: int) -> str:
    return LIGHT[_ROLES[_ORDER.get(series, i)]]


def _draw_curve(axes: Any, points: Sequence[Point], reading: str, i: int, count: int) -> None:
    points = [point for point in points if reading in point.ours]
    if not points:
        return
    mark, colour = _MARKERS[_ORDER.get(points[0].series, i)], _colour(points[0].series, i)
    x = np.array([point.x for point in points])
    # A little apart, so that error bars of curves that coincide can be told from each other.
    x = x + 0.012 * (x.max() - x.min()) * (i - (count - 1) / 2)
    ours: list[Estimate] = [point.ours[reading] for point in points]
    if any(estimate.draws > 1 for estimate in ours):
        low, high = [e.low for e in ours], [e.high for e in ours]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    mean, error = [e.mean for e in ours], [2 * e.noise for e in ours]
    axes.errorbar(x, mean, error, color=colour, marker=mark, ms=3.5, lw=1.2, elinewidth=0.8)
    printed = [(place, point.printed) for place, point in zip(x, points, strict=True) if point.printed is not None]
    if printed:
        axes.plot(
            *zip(*printed, strict=True), color=colour, marker=mark, ms=4.5, mfc="none", mew=0.9, lw=0.9, ls=(0, (3, 2))
        )


def _mark_floor(axes: Any, points: Sequence[Point], reading: str) -> None:
    ours = [point.ours[reading] for point in points if reading in point.ours]
    floors = [one.floor for one in ours if one.floor is not None]
    if floors:
        axes.axhspan(0.0, max(floors), color=LIGHT["faint"], lw=0, zorder=0)


def _x_axis(axes: Any, places: Sequence[float]) -> None:
    """Marks at the places, but none where it would touch another; logarithmic where places lie close together."""
    width = places[-1] - places[0]
    if len(places) > 2 and min(np.diff(places)) < 0.06 * width:
        log_ticks(axes, "x", places)
        return
    shown = [places[0]]
    for x in places[1:]:
        if x - shown[-1] > 0.14 * width:
            shown.append(x)
    axes.set_xticks(shown, [f"{x:g}" for x in shown])


def _inside(key: str | None, role: str) -> str:
    return LIGHT["paper"] if key is None else LIGHT[role]
