"""Pictures of attack tables: one run over time, and how rules compare as the attack grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedgauss.experiments.attack_rules import (
    E_PROCESS,
    INNOVATION,
    OPEN_ENDED,
    RIGHT_TUNED,
    RIGHT_ZERO,
    STUDENTISED,
    UNDER_FOUND,
    UNDER_TUNED,
)
from fedgauss.report.drawing import styled
from fedgauss.report.palette import LIGHT
from fedgauss.report.reproduction.attack_tables import shown
from fedgauss.report.reproduction.panels import stacked

Points = Sequence[tuple[float, float, float]]  # x, value, error

_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))
# Colour, line and mark of each rule: one colour for the paper's, one for the default's.
_LOOKS: dict[str, tuple[str, Any, str]] = {
    UNDER_FOUND: ("limit", _DOTTED, "o"),
    UNDER_TUNED: ("limit", _DASHED, "v"),
    RIGHT_TUNED: ("limit", "-", "s"),
    RIGHT_ZERO: ("muted", _DOTTED, "x"),
    STUDENTISED: ("simulated", "-", "D"),
    INNOVATION: ("exact", "-", "o"),
    OPEN_ENDED: ("exact", _DASHED, "^"),
    E_PROCESS: ("finite", "-", "p"),
}


@dataclass(frozen=True)
class TracedRun:
    """A statistic and its threshold over the steps of one run; `alarm` and `named` are 0 where there was none."""

    heading: str
    symbol: str
    steps: Sequence[float]
    statistic: Sequence[float]
    threshold: Sequence[float]
    alarm: int
    named: int


@styled
def trace_figure(title: str, traces: Sequence[TracedRun], onset: int) -> Figure:
    """A panel for each rule: statistic and threshold, the alarm, and the true and the estimated onset."""
    legend = [
        Line2D([], [], color=LIGHT["exact"], label="statistic"),
        Line2D([], [], color=LIGHT["limit"], ls=_DASHED, label="threshold"),
        Line2D([], [], color=LIGHT["limit"], ls="", marker="o", ms=6, label="alarm"),
        Line2D([], [], color=LIGHT["ink"], lw=1.0, label="true onset"),
        Line2D([], [], color=LIGHT["finite"], ls=_DOTTED, lw=1.8, label="estimated onset"),
    ]
    figure, grid = stacked(title, len(traces), legend, height=1.55, head=0.28)
    for trace, (axes,) in zip(traces, grid, strict=True):
        axes.plot(trace.steps, trace.statistic, color=LIGHT["exact"])
        axes.plot(trace.steps, trace.threshold, color=LIGHT["limit"], ls=_DASHED, lw=1.2)
        axes.axvline(onset, color=LIGHT["ink"], lw=1.0, zorder=0)
        if trace.alarm:
            axes.axvline(trace.named, color=LIGHT["finite"], ls=_DOTTED, lw=1.8, zorder=1)
            height = trace.statistic[list(trace.steps).index(trace.alarm)]
            axes.plot(trace.alarm, height, "o", ms=6, color=LIGHT["limit"], zorder=3)
        axes.set_title(trace.heading, fontsize=10.5, color=LIGHT["muted"], pad=4)
        axes.set_ylabel(trace.symbol)
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(0.0, max(trace.steps))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    grid[-1][0].set_xlabel("step $t$")
    return figure


@styled
def rules_figure(
    title: str,
    lines: Mapping[str, Points],
    printed: Sequence[tuple[float, float]],
    labels: tuple[str, str],
    apart: Mapping[str, Points] | None = None,
) -> Figure:
    """A line for each rule with two Monte-Carlo errors to either side, and open marks for printed numbers.

    `labels` are those of the axes; points `apart` are joined to nothing.
    """
    legend = [
        Line2D([], [], color=LIGHT[role], ls=line, marker=mark, ms=4, label=shown(rule))
        for rule, (role, line, mark) in _LOOKS.items()
        if rule in lines
    ]
    legend.append(Line2D([], [], color=LIGHT["ink"], ls="", marker="D", mfc="none", ms=6, label="printed"))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.5, columns=2)
    for rule, points in lines.items():
        role, line, mark = _LOOKS[rule]
        _draw(axes, points, color=LIGHT[role], ls=line, marker=mark)
        _draw(axes, (apart or {}).get(rule, ()), color=LIGHT[role], ls="", marker=mark)
    for x, value in printed:
        axes.plot(x, value, "D", color=LIGHT["ink"], mfc="none", mew=0.9, ms=6, clip_on=False, zorder=4)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel=labels[0], ylabel=labels[1])
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    return figure


def _draw(axes: Any, points: Points, **look: Any) -> None:
    if points:
        x, y, error = zip(*points, strict=True)
        axes.errorbar(x, y, [2 * one for one in error], ms=3.5, lw=1.2, elinewidth=0.8, clip_on=False, **look)
