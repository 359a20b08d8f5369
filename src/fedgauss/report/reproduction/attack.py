"""The section of an attack table: rules of detection side by side with the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.alarm_rows import ALARM, DELAY, DETECTED, POWER, TRACE
from fedgauss.experiments.attack_rules import INNOVATION, RIGHT_TUNED
from fedgauss.experiments.attack_verdicts import AttackTable, Value, attack_outcome
from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.mnist_rules import WARMED_LONGEST
from fedgauss.experiments.paper import Result
from fedgauss.experiments.verdicts import Outcome
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction.attack_findings import findings, summary
from fedgauss.report.reproduction.attack_pictures import Points, TracedRun, rules_figure, trace_figure
from fedgauss.report.reproduction.attack_tables import attack_tables
from fedgauss.report.reproduction.section import Section
from fedgauss.report.reproduction.words import symbol
from fedgauss.report.words import number
from fedgauss.sweep.cell import Row

# Of rules that show a run: who alarms, the heading of the panel and the statistic.
_TRACED = {
    RIGHT_TUNED: ("the paper’s rule", "The paper’s rule, rightly scaled, $c$ tuned", "$R_t$"),
    INNOVATION: ("the default", "Innovation, the default", "largest $T$"),
    WARMED_LONGEST: ("the default", "Innovation, the default, after a warm-up", "largest $T$"),
}


def attack_section(result: Result, rows: list[Row]) -> Section:
    """What became of an attack table. Curves are drawn where attacks of several sizes were run."""
    traces, table = [row for row in rows if row["measure"] == TRACE], AttackTable(rows)
    outcome = attack_outcome(result.name, table)
    drawings = [_trace_drawing(result.name, traces, table)] if traces else []
    if len(table.attacked) > 1:
        drawings += [_power_drawing(result.name, table, outcome), _delay_drawing(result.name, table, outcome)]
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        outcome.verdict,
        summary(table, outcome),
        findings(table, outcome),
        tuple(drawings),
        attack_tables(table, outcome),
        EXPLANATIONS[result.name].why,
        (outcome,),
    )


def _trace_drawing(name: str, rows: Sequence[Row], table: AttackTable) -> Drawing:
    shown = {row["rule"] for row in rows}
    runs = {rule: _traced(rule, [row for row in rows if row["rule"] == rule]) for rule in _TRACED if rule in shown}
    said = [
        f"{_TRACED[rule][0]} alarms at step {run.alarm}" if run.alarm else f"{_TRACED[rule][0]} does not alarm"
        for rule, run in runs.items()
    ]
    x = f"{symbol(table.across)} = {float(rows[0]['x'] or 0.0):g}"
    title = f"One run, attacked after step {table.onset} with {x}: {' and '.join(said)}"
    return Drawing(
        f"{name}_run",
        trace_figure(title, list(runs.values()), table.onset),
        "The first simulated run with this attack, not a chosen one. Above: $R_t$ after every step, with the paper’s "
        "threshold. Below: the statistic of the default after each synchronisation, with its constant threshold.",
        "Two line charts over the steps of a run: a statistic that crosses its threshold after the attack. "
        + "; ".join(said)
        + ".",
    )


def _traced(rule: str, rows: Sequence[Row]) -> TracedRun:
    _, heading, axis = _TRACED[rule]
    steps, statistic, threshold = (
        [float(row[column] or 0.0) for row in rows] for column in ("step", "estimate", "threshold")
    )
    return TracedRun(heading, axis, steps, statistic, threshold, int(rows[0]["alarm"] or 0), int(rows[0]["named"] or 0))


def _power_drawing(name: str, table: AttackTable, outcome: Outcome) -> Drawing:
    honest, small = table.honest[0], table.attacked[0]
    lines = {rule: _points([(x, table.value(rule, x, POWER)) for x in table.attacked]) for rule in table.rules}
    honestly = {rule: _points([(honest, table.value(rule, honest, DETECTED))]) for rule in table.rules}
    default, paper = (table.value(rule, small, POWER) for rule in (INNOVATION, RIGHT_TUNED))
    title = (
        f"Of attacks with {symbol(table.across)} = {small:g} the default sees {_said(default, 2)}, and the paper’s "
        f"rule {_said(paper, 2)}"
    )
    return Drawing(
        f"{name}_power",
        rules_figure(title, lines, _printed(outcome, DETECTED), (f"attack {symbol(table.across)}", "power"), honestly),
        f"Power: the share of runs whose first alarm comes after step {table.onset}. At {symbol(table.across)} = "
        f"{honest:g} it is the share of honest runs with an alarm at any time, which should be 0.05. Bars are two "
        "Monte-Carlo errors to either side. Printed numbers count alarms before the attack too.",
        f"Lines of power against the size of the attack, one for each rule. {title}.",
    )


def _delay_drawing(name: str, table: AttackTable, outcome: Outcome) -> Drawing:
    lines = {rule: _points([(x, table.value(rule, x, DELAY)) for x in table.attacked]) for rule in table.rules}
    middle = table.attacked[min(1, len(table.attacked) - 1)]
    default, paper = (table.value(rule, middle, DELAY) for rule in (INNOVATION, RIGHT_TUNED))
    title = (
        f"At {symbol(table.across)} = {middle:g} the default takes {_said(default, 0)} steps on average, and the "
        f"paper’s rule {_said(paper, 0)}"
    )
    printed = [(x, value - table.onset) for x, value in _printed(outcome, ALARM[0])]
    return Drawing(
        f"{name}_delay",
        rules_figure(title, lines, printed, (f"attack {symbol(table.across)}", "mean delay, steps")),
        f"Mean delay over runs whose first alarm comes after step {table.onset}, with two Monte-Carlo errors to either "
        f"side. Printed: the mean step of the alarm less {table.onset}; it includes alarms before the attack.",
        f"Lines of mean delay against the size of the attack, one for each rule. {title}.",
    )


def _printed(outcome: Outcome, measure: str) -> list[tuple[float, float]]:
    return [(p.x, p.printed) for p in outcome.points[0] if p.series == measure and p.printed is not None]


def _points(values: Sequence[tuple[float, Value | None]]) -> Points:
    return [(x, *value) for x, value in values if value is not None]


def _said(value: Value | None, digits: int) -> str:
    return "none" if value is None else number(value.estimate, digits)
