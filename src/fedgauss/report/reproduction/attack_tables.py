"""Tables of an attack result: a row for each rule, with the printed numbers on top.

There is a table for each measure with a column for each attack, or, of one attack alone, a column for each measure.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.alarm_rows import ALARM, DELAY, DETECTED, EARLY, MISS, ONSET, POWER
from fedgauss.experiments.attack_verdicts import AttackTable, Value
from fedgauss.experiments.verdicts import Outcome, Point, paper_runs
from fedgauss.report.reproduction.tables import AGREES
from fedgauss.report.reproduction.words import symbol
from fedgauss.report.table import Table
from fedgauss.report.text import number, with_error


def shown(rule: str) -> str:
    """The name of a rule, with its formulas."""
    return rule.replace(" c ", " $c$ ").replace(" R", " $R_t$")


def attack_tables(table: AttackTable, outcome: Outcome) -> tuple[Table, ...]:
    """What each rule does to honest runs, the paper's columns, and what the paper does not give."""
    t_0, rules = table.onset, _rules_table(table, outcome)
    if len(table.attacked) == 1:
        return rules, *_tables_of_one_attack(table, outcome)
    return (
        rules,
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

    rows = [("printed", "", "" if point.printed is None else number(point.printed), "", "")]
    rows += [
        (
            shown(rule),
            constant(rule),
            _share([point], rule, outcome),
            _cell(table.fact(rule, "Gaussian false alarms")),
            _cell(table.value(rule, some, EARLY)),
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


def _tables_of_one_attack(table: AttackTable, outcome: Outcome) -> tuple[Table, Table]:
    """The paper's columns, and what it does not give."""
    (x,), t_0 = table.attacked, table.onset
    points = {point.series: point for point in outcome.points[0] if point.x == x}
    shares, onsets, alarms = ([points[name] for name in names] for names in ((DETECTED,), ONSET, ALARM))
    beside = [("printed", *(_printed(own, digits=1) for own in (shares, onsets, alarms)))]
    beside += [
        (shown(rule), _share(shares, rule, outcome), *(_interval(own, rule, outcome, 1) for own in (onsets, alarms)))
        for rule in table.rules
    ]
    own = [
        (
            shown(rule),
            *(_cell(table.value(rule, x, name), digits) for name, digits in ((POWER, 3), (DELAY, 1), (MISS, 1))),
        )
        for rule in table.rules
    ]
    case = f"{symbol(table.across)} = {x:g}"
    return (
        Table(
            ("rule", "alarms", "estimated onset", "step of the alarm"),
            tuple(beside),
            f"With {case}: share of runs with an alarm at any time, as the paper counts; onset and step over these, "
            f"mean; 2.5 to 97.5 % points (errors in brackets; {AGREES} where one of the paper’s rules agrees with all "
            "printed numbers of a cell)",
        ),
        Table(
            ("rule", "power", "delay", "miss of the onset"),
            tuple(own),
            f"With {case}: share of runs whose first alarm comes after step {t_0}; over these, mean delay and mean "
            f"distance of the estimated onset from {t_0}, in steps (errors in brackets)",
        ),
    )


def _printed_table(table: AttackTable, outcome: Outcome, measures: Sequence[str], caption: str) -> Table:
    """`measures` is a share, or a mean with its two percentage points."""
    points = {(point.series, point.x): point for point in outcome.points[0]}
    cells = {x: [points[measure, x] for measure in measures] for x in table.attacked}
    write = _share if len(measures) == 1 else _interval

    rows = [("printed", *(_printed(own) for own in cells.values()))]
    rows += [(shown(rule), *(write(own, rule, outcome) for own in cells.values())) for rule in table.rules]
    what = "the printed number" if len(measures) == 1 else "all three printed numbers"
    return _by_case(table, rows, f"{caption} ({AGREES} where one of the paper’s rules agrees with {what})")


def _own_table(table: AttackTable, measure: str, caption: str, digits: int) -> Table:
    rows = [
        (shown(rule), *(_cell(table.value(rule, x, measure), digits) for x in table.attacked)) for rule in table.rules
    ]
    return _by_case(table, rows, f"{caption} (Monte-Carlo errors in brackets)")


def _by_case(table: AttackTable, rows: Sequence[tuple[str, ...]], caption: str) -> Table:
    return Table((symbol(table.across), *(f"{x:g}" for x in table.attacked)), tuple(rows), caption)


def _cell(value: Value | None, digits: int = 3) -> str:
    """0.123 (0.004); nothing where there is none."""
    return "" if value is None else with_error(*value, digits)


def _printed(points: Sequence[Point], digits: int = 0) -> str:
    """0.123, or 201; 59–291; nothing where the paper has none."""
    values = [point.printed for point in points if point.printed is not None]
    if len(values) < len(points):
        return ""
    return number(values[0]) if len(values) == 1 else _written(values, digits)


def _share(points: Sequence[Point], rule: str, outcome: Outcome) -> str:
    """0.123 ✓ (0.004)."""
    ours = points[0].ours.get(rule)
    return "" if ours is None else f"{number(ours.mean)}{_mark(points, rule, outcome)} ({number(ours.error)})"


def _interval(points: Sequence[Point], rule: str, outcome: Outcome, digits: int = 0) -> str:
    """201 ✓; 59–291 in whole steps, so that six attacks fit into a terminal; with digits 201.2 ✓ (0.8); 59–291."""
    if any(rule not in point.ours for point in points):
        return ""
    own = [point.ours[rule] for point in points]
    error = f" ({number(own[0].error, digits)})" if digits else ""
    return _written([one.mean for one in own], digits, f"{_mark(points, rule, outcome)}{error}")


def _written(values: Sequence[float], digits: int = 0, mark: str = "") -> str:
    mean, low, high = values
    return f"{number(mean, digits)}{mark}; {number(low, 0)}–{number(high, 0)}"


def _mark(points: Sequence[Point], rule: str, outcome: Outcome) -> str:
    """Behind what agrees, of rules that are compared."""
    runs = paper_runs(outcome.part)
    agree = [point.printed is not None and point.ours[rule].agrees(point.printed, runs) for point in points]
    return f" {AGREES}" if outcome.agreement(rule) is not None and all(agree) else ""
