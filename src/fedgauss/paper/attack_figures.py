"""Figures of attack results: one run over time, and how rules compare as the attack grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedgauss.paper.attack import ALARM, DELAY, DETECTED, POWER, TRACE, AttackRow
from fedgauss.paper.attack_report import AttackReport, shown
from fedgauss.paper.attack_rules import (
    E_PROCESS,
    INNOVATION,
    OPEN_ENDED,
    RIGHT_TUNED,
    RIGHT_ZERO,
    STUDENTISED,
    UNDER_FOUND,
    UNDER_TUNED,
)
from fedgauss.report.drawing import Drawing
from fedgauss.report.palette import LIGHT
from fedgauss.report.reproduction.panels import stacked
from fedgauss.report.style import styled
from fedgauss.report.words import number

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


class TracedPanel(NamedTuple):
    """One run under one rule over time; `whose` is the rule in a sentence, `symbol` that of its statistic."""

    whose: str
    heading: str
    symbol: str
    rows: list[AttackRow]

    @property
    def sentence(self) -> str:
        """When it alarms."""
        alarm = self.rows[0].alarm
        return f"{self.whose} alarms at step {alarm}" if alarm else f"{self.whose} does not alarm"


def drawings(report: AttackReport, rows: Sequence[AttackRow]) -> tuple[Drawing, ...]:
    """One run over time; and curves, where attacks of several sizes were run."""
    traces = [row for row in rows if row.measure == TRACE]
    found = [_trace_drawing(report, traces)] if traces else []
    if len(report.attacked) > 1:
        found += [_power_drawing(report), _delay_drawing(report)]
    return tuple(found)


def _trace_drawing(report: AttackReport, traces: Sequence[AttackRow]) -> Drawing:
    result = report.result
    paper, default = ([row for row in traces if row.rule == rule] for rule in (RIGHT_TUNED, result.default))
    panels = [
        TracedPanel("the paper’s rule", "The paper’s rule, rightly scaled, $c$ tuned", "$R_t$", paper),
        TracedPanel("the default", result.heading, "largest $T$", default),
    ]
    shown_panels = [panel for panel in panels if panel.rows]
    alarms = [panel.sentence for panel in shown_panels]
    case = report.case(next(row.x for row in traces if row.x is not None))
    title = f"One run, attacked after step {report.onset} with {case}: {' and '.join(alarms)}"
    return Drawing(
        f"{result.name}_run",
        trace_figure(title, shown_panels, report.onset),
        "The first simulated run with this attack, not a chosen one. Above: $R_t$ after every step, with the paper’s "
        "threshold. Below: the statistic of the default after each synchronisation, with its constant threshold.",
        "Two line charts over the steps of a run: a statistic that crosses its threshold after the attack. "
        f"{'; '.join(alarms)}.",
    )


def _power_drawing(report: AttackReport) -> Drawing:
    honest, small = report.honest, report.attacked[0]
    default, paper = _default_and_papers(report, small, POWER, 2)
    title = f"Of attacks with {report.case(small)} the default sees {default}, and the paper’s rule {paper}"
    lines, apart = _lines(report, report.attacked, POWER), _lines(report, [honest], DETECTED)
    printed = _printed(report, DETECTED)
    return Drawing(
        f"{report.result.name}_power",
        rules_figure(title, lines, printed, (f"attack {report.symbol}", "power"), apart),
        f"Power: the share of runs whose first alarm comes after step {report.onset}. At {report.case(honest)} it is "
        "the share of honest runs with an alarm at any time, which should be 0.05. Bars are two Monte-Carlo errors to "
        "either side. Printed numbers count alarms before the attack too.",
        f"Lines of power against the size of the attack, one for each rule. {title}.",
    )


def _delay_drawing(report: AttackReport) -> Drawing:
    onset, middle = report.onset, report.middle
    default, paper = _default_and_papers(report, middle, DELAY, 0)
    title = f"At {report.case(middle)} the default takes {default} steps on average, and the paper’s rule {paper}"
    lines = _lines(report, report.attacked, DELAY)
    printed = [(x, step - onset) for x, step in _printed(report, ALARM[0])]
    return Drawing(
        f"{report.result.name}_delay",
        rules_figure(title, lines, printed, (f"attack {report.symbol}", "mean delay, steps")),
        f"Mean delay over runs whose first alarm comes after step {onset}, with two Monte-Carlo errors to either "
        f"side. Printed: the mean step of the alarm less {onset}; it includes alarms before the attack.",
        f"Lines of mean delay against the size of the attack, one for each rule. {title}.",
    )


def _default_and_papers(report: AttackReport, x: float, measure: str, digits: int) -> list[str]:
    """A number of the default and of the paper's rule, in words."""
    values = [report.value(rule, x, measure) for rule in (report.result.default, RIGHT_TUNED)]
    return ["none" if value is None else number(value.mean, digits) for value in values]


def _lines(report: AttackReport, cases: Sequence[float], measure: str) -> dict[str, Points]:
    """A measure over these cases, by rule."""
    values = {rule: [(x, report.value(rule, x, measure)) for x in cases] for rule in report.rules}
    return {
        rule: [(x, value.mean, value.error) for x, value in points if value is not None]
        for rule, points in values.items()
    }


def _printed(report: AttackReport, measure: str) -> list[tuple[float, float]]:
    """The paper's numbers of the cases that were run."""
    values = [(x, report.printed(measure, x)) for x in (report.honest, *report.attacked)]
    return [(x, value) for x, value in values if value is not None]


@styled
def trace_figure(title: str, panels: Sequence[TracedPanel], onset: int) -> Figure:
    """A panel for each rule: statistic and threshold, the alarm, and the true and the estimated onset."""
    legend = [
        Line2D([], [], color=LIGHT["exact"], label="statistic"),
        Line2D([], [], color=LIGHT["limit"], ls=_DASHED, label="threshold"),
        Line2D([], [], color=LIGHT["limit"], ls="", marker="o", ms=6, label="alarm"),
        Line2D([], [], color=LIGHT["ink"], lw=1.0, label="true onset"),
        Line2D([], [], color=LIGHT["finite"], ls=_DOTTED, lw=1.8, label="estimated onset"),
    ]
    figure, grid = stacked(title, len(panels), legend, height=1.55, head=0.28)
    for panel, (axes,) in zip(panels, grid, strict=True):
        steps, statistic = zip(*((row.step, row.estimate) for row in panel.rows), strict=True)
        limits = [np.nan if row.threshold is None else row.threshold for row in panel.rows]
        alarm, named = panel.rows[0].alarm, panel.rows[0].named
        axes.plot(steps, statistic, color=LIGHT["exact"])
        axes.plot(steps, limits, color=LIGHT["limit"], ls=_DASHED, lw=1.2)
        axes.axvline(onset, color=LIGHT["ink"], lw=1.0, zorder=0)
        if alarm:
            axes.axvline(named, color=LIGHT["finite"], ls=_DOTTED, lw=1.8, zorder=1)
            axes.plot(alarm, statistic[steps.index(alarm)], "o", ms=6, color=LIGHT["limit"], zorder=3)
        axes.set_title(panel.heading, fontsize=10.5, color=LIGHT["muted"], pad=4)
        axes.set_ylabel(panel.symbol)
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(0.0, max(steps))
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
