"""Tables of an attack result: a row for each rule, with the printed numbers on top, and a column for each attack."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.alarm_rows import ALARM, DELAY, DETECTED, EARLY, MISS, ONSET, POWER
from fedgauss.experiments.attack_verdicts import AttackTable, Value
from fedgauss.experiments.verdicts import Outcome, Point, paper_runs
from fedgauss.report.reproduction.section import Table
from fedgauss.report.reproduction.tables import AGREES
from fedgauss.report.reproduction.words import number, symbol, with_error


def shown(rule: str) -> str:
    """The name of a rule, with its formulas."""
    return rule.replace(" c ", " $c$ ").replace(" R", " $R_t$")


def attack_tables(table: AttackTable, outcome: Outcome) -> tuple[Table, ...]:
    """What each rule does to honest runs, the paper's columns, and what the paper does not give."""
    t_0 = table.onset
    return (
        _rules_table(table, outcome),
        _printed_table(table, outcome, [DETECTED], "Share of runs with an alarm at any time, as the paper counts"),
        _printed_table(table, outcome, ONSET, "Estimated onset over runs with an alarm: mean; 2.5 to 97.5 % points"),
        _printed_table(table, outcome, ALARM, "Step of the alarm over runs with one: mean; 2.5 to 97.5 % points"),
        _own_table(table, POWER, f"Power: share of runs whose first alarm comes after step {t_0}", 3),
        _own_table(table, DELAY, f"Mean delay in steps, over runs whose first alarm comes after step {t_0}", 1),
        _own_table(table, MISS, f"Mean distance of the estimated onset from {t_0} in steps, over the same runs", 1),
    )


def _rules_table(table: AttackTable, outcome: Outcome) -> Table:
    """How often honest runs alarm; the paper has one number for it."""
    honest, some = table.honest[0], table.attacked[0]
    point = next(point for point in outcome.points[0] if (point.series, point.x) == (DETECTED, honest))

    def constant(rule: str) -> str:
        value = table.fact(rule, "c")
        return "" if value is None else number(value.estimate)

    def cell(value: Value | None) -> str:
        return "" if value is None else with_error(*value)

    rows = [("printed", "", "" if point.printed is None else number(point.printed), "", "")]
    rows += [
        (
            shown(rule),
            constant(rule),
            _share([point], rule, outcome),
            cell(table.fact(rule, "Gaussian false alarms")),
            cell(table.value(rule, some, EARLY)),
        )
        for rule in table.rules
    ]
    return Table(
        ("rule", "$c$", "false alarms", "Gaussian paths", f"by step {table.onset}"),
        tuple(rows),
        f"False alarms at a nominal 0.05: share of honest runs with an alarm in {table.n_steps} steps; of honest "
        f"Gaussian paths; of runs with an alarm before the attack (errors in brackets; {AGREES} where the paper’s rule "
        "and the printed number agree)",
    )


def _printed_table(table: AttackTable, outcome: Outcome, measures: Sequence[str], caption: str) -> Table:
    """`measures` is a share, or a mean with its two percentage points."""
    points = {(point.series, point.x): point for point in outcome.points[0]}
    cells = {x: [points[measure, x] for measure in measures] for x in table.attacked}
    write = _share if len(measures) == 1 else _interval

    def printed(own: Sequence[Point]) -> str:
        values = [point.printed for point in own if point.printed is not None]
        if len(values) < len(measures):
            return ""
        return number(values[0]) if len(values) == 1 else _written(values)

    rows = [("printed", *(printed(own) for own in cells.values()))]
    rows += [(shown(rule), *(write(own, rule, outcome) for own in cells.values())) for rule in table.rules]
    what = "the printed number" if len(measures) == 1 else "all three printed numbers"
    return _by_case(table, rows, f"{caption} ({AGREES} where one of the paper’s rules agrees with {what})")


def _own_table(table: AttackTable, measure: str, caption: str, digits: int) -> Table:
    def cell(rule: str, x: float) -> str:
        value = table.value(rule, x, measure)
        return "" if value is None else with_error(*value, digits)

    rows = [(shown(rule), *(cell(rule, x) for x in table.attacked)) for rule in table.rules]
    return _by_case(table, rows, f"{caption} (Monte-Carlo errors in brackets)")


def _by_case(table: AttackTable, rows: Sequence[tuple[str, ...]], caption: str) -> Table:
    return Table((symbol(table.across), *(f"{x:g}" for x in table.attacked)), tuple(rows), caption)


def _share(points: Sequence[Point], rule: str, outcome: Outcome) -> str:
    """0.123 ✓ (0.004)."""
    ours = points[0].ours.get(rule)
    return "" if ours is None else f"{number(ours.mean)}{_mark(points, rule, outcome)} ({number(ours.error)})"


def _interval(points: Sequence[Point], rule: str, outcome: Outcome) -> str:
    """201 ✓; 59–291."""
    if any(rule not in point.ours for point in points):
        return ""
    return _written([point.ours[rule].mean for point in points], _mark(points, rule, outcome))


def _written(values: Sequence[float], mark: str = "") -> str:
    """Whole steps, so that six attacks fit into a terminal."""
    mean, low, high = (number(value, 0) for value in values)
    return f"{mean}{mark}; {low}–{high}"


def _mark(points: Sequence[Point], rule: str, outcome: Outcome) -> str:
    """Behind what agrees, of rules that are compared."""
    runs = paper_runs(outcome.part)
    agree = [point.printed is not None and point.ours[rule].agrees(point.printed, runs) for point in points]
    return f" {AGREES}" if outcome.agreement(rule) is not None and all(agree) else ""
