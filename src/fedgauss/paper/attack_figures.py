"""Figures of attack results: one run over time, and how rules compare as the attack grows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedgauss._figures import LIGHT, styled
from fedgauss.paper import attack_rules as rules
from fedgauss.paper.attack import ALARM, DELAY, DETECTED, POWER, TRACE, AttackRow
from fedgauss.paper.attack_report import AttackReport, shown
from fedgauss.report.output import Drawing, few_ticks, key, stacked
from fedgauss.report.text import number

_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.5))
# Colour, line and mark of each rule: one colour for the paper's, one for the default's.
_LOOKS: dict[str, tuple[str, Any, str]] = {
    rules.UNDER_FOUND: ("limit", _DOTTED, "o"),
    rules.UNDER_TUNED: ("limit", _DASHED, "v"),
    rules.RIGHT_TUNED: ("limit", "-", "s"),
    rules.RIGHT_ZERO: ("muted", _DOTTED, "x"),
    rules.STUDENTISED: ("simulated", "-", "D"),
    rules.INNOVATION: ("exact", "-", "o"),
    rules.OPEN_ENDED: ("exact", _DASHED, "^"),
    rules.E_PROCESS: ("finite", "-", "p"),
}


def drawings(report: AttackReport, rows: Sequence[AttackRow]) -> tuple[Drawing, ...]:
    """One run over time; and curves, where attacks of several sizes were run."""
    traces = [row for row in rows if row.measure == TRACE]
    found = [_run_drawing(report, traces)] if traces else []
    if len(report.attacked) > 1:
        found += [_power_drawing(report), _delay_drawing(report)]
    return tuple(found)


def _run_drawing(report: AttackReport, traces: Sequence[AttackRow]) -> Drawing:
    result = report.result
    listed = (
        (rules.RIGHT_TUNED, "the paper’s rule", "The paper’s rule, rightly scaled, $c$ tuned", "$R_t$"),
        (result.default, "the default", result.heading, "largest $T$"),
    )
    panels, alarms = [], []
    for rule, whose, heading, statistic in listed:
        if run := [row for row in traces if row.rule == rule]:
            panels.append((heading, statistic, run))
            alarms.append(f"{whose} alarms at step {run[0].alarm}" if run[0].alarm else f"{whose} does not alarm")
    case = report.case(next(row.x for row in traces if row.x is not None))
    title = f"One run, attacked after step {report.onset} with {case}: {' and '.join(alarms)}"
    return Drawing(
        f"{result.name}_run",
        _run_figure(title, panels, report.onset),
        "The first simulated run with this attack, not a chosen one. Above: $R_t$ after every step, with the paper’s "
        "threshold. Below: the statistic of the default after each synchronisation, with its constant threshold.",
        "Two line charts over the steps of a run: a statistic that crosses its threshold after the attack. "
        f"{'; '.join(alarms)}.",
    )


@styled
def _run_figure(title: str, panels: Sequence[tuple[str, str, list[AttackRow]]], onset: int) -> Figure:
    """A panel for each rule: statistic and threshold, the alarm, and the true and the estimated onset."""
    legend = [
        key("statistic", "exact"),
        key("threshold", "limit", ls=_DASHED),
        key("alarm", "limit", ls="", marker="o", ms=6),
        key("true onset", lw=1.0),
        key("estimated onset", "finite", ls=_DOTTED, lw=1.8),
    ]
    figure, grid = stacked(title, len(panels), legend, height=1.55, head=0.28)
    for (heading, symbol, run), (axes,) in zip(panels, grid, strict=True):
        steps, statistic = [row.step for row in run], [row.estimate for row in run]
        threshold = [np.nan if row.threshold is None else row.threshold for row in run]
        alarm, named = run[0].alarm, run[0].named
        axes.plot(steps, statistic, color=LIGHT["exact"])
        axes.plot(steps, threshold, color=LIGHT["limit"], ls=_DASHED, lw=1.2)
        axes.axvline(onset, color=LIGHT["ink"], lw=1.0, zorder=0)
        if alarm:
            axes.axvline(named, color=LIGHT["finite"], ls=_DOTTED, lw=1.8, zorder=1)
            axes.plot(alarm, statistic[steps.index(alarm)], "o", ms=6, color=LIGHT["limit"], zorder=3)
        axes.set_title(heading, fontsize=10.5, color=LIGHT["muted"], pad=4)
        axes.set_ylim(bottom=0.0)
        axes.set(ylabel=symbol, xlim=(0.0, steps[-1]))
        few_ticks(axes.yaxis, 5)
    grid[-1][0].set_xlabel("step $t$")
    return figure


def _power_drawing(report: AttackReport) -> Drawing:
    honest, small = report.case(report.honest), report.attacked[0]
    default, paper = _default_and_papers(report, small, POWER, 2)
    title = f"Of attacks with {report.case(small)} the default sees {default}, and the paper’s rule {paper}"
    printed = {x: report.printed(DETECTED, x) for x in (report.honest, *report.attacked)}
    return Drawing(
        f"{report.result.name}_power",
        _curves(report, title, "power", {POWER: report.attacked, DETECTED: [report.honest]}, printed),
        f"Power: the share of runs whose first alarm comes after step {report.onset}. At {honest} it is the share of "
        "honest runs with an alarm at any time, which should be 0.05. Bars are two Monte-Carlo errors to either side. "
        "Printed numbers count alarms before the attack too.",
        f"Lines of power against the size of the attack, one for each rule. {title}.",
    )


def _delay_drawing(report: AttackReport) -> Drawing:
    onset, middle = report.onset, report.middle
    default, paper = _default_and_papers(report, middle, DELAY, 0)
    title = f"At {report.case(middle)} the default takes {default} steps on average, and the paper’s rule {paper}"
    steps = {x: report.printed(ALARM[0], x) for x in report.attacked}
    printed = {x: None if step is None else step - onset for x, step in steps.items()}
    return Drawing(
        f"{report.result.name}_delay",
        _curves(report, title, "mean delay, steps", {DELAY: report.attacked}, printed),
        f"Mean delay over runs whose first alarm comes after step {onset}, with two Monte-Carlo errors to either "
        f"side. Printed: the mean step of the alarm less {onset}; it includes alarms before the attack.",
        f"Lines of mean delay against the size of the attack, one for each rule. {title}.",
    )


def _default_and_papers(report: AttackReport, x: float, measure: str, digits: int) -> list[str]:
    """A number of the default and of the paper's rule, in words."""
    values = [report.value(rule, x, measure) for rule in (report.result.default, rules.RIGHT_TUNED)]
    return ["none" if value is None else number(value.mean, digits) for value in values]


@styled
def _curves(
    report: AttackReport,
    title: str,
    label: str,
    measures: dict[str, list[float]],
    printed: dict[float, float | None],
) -> Figure:
    """A line for each rule with two Monte-Carlo errors to either side, and open marks for printed numbers.

    measures   the cases that each is drawn for; each has lines of its own
    """
    drawn = {rule: look for rule, look in _LOOKS.items() if rule in report.rules}
    legend = [key(shown(rule), role, ls=line, marker=mark, ms=4) for rule, (role, line, mark) in drawn.items()]
    legend.append(key("printed", ls="", marker="D", mfc="none", ms=6))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.5, columns=2)
    for rule, (role, line, mark) in drawn.items():
        for measure, cases in measures.items():
            values = [(x, report.value(rule, x, measure)) for x in cases]
            points = [(x, value.mean, 2 * value.error) for x, value in values if value is not None]
            look = {"color": LIGHT[role], "ls": line if len(cases) > 1 else "", "marker": mark, "ms": 3.5}
            if points:
                axes.errorbar(*zip(*points, strict=True), lw=1.2, elinewidth=0.8, clip_on=False, **look)
    for x, value in printed.items():
        if value is not None:
            axes.plot(x, value, "D", color=LIGHT["ink"], mfc="none", mew=0.9, ms=6, clip_on=False, zorder=4)
    axes.set_ylim(bottom=0.0)
    axes.set(xlabel=f"attack {report.symbol}", ylabel=label)
    few_ticks(axes.yaxis)
    return figure
