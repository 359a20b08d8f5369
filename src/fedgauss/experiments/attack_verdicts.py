"""From rows of an attack table to a verdict, by the rule of `verdicts` with rules of detection in place of readings.

The paper leaves c open. Its rule with c by cross-validation, as it suggests, or without c is a reading of the text,
under either scaling; with a c that was found by trying it is one "as coded". On MNIST, where the warm start is not
described, so is the start at the end of one, or at the optimum. Other rules have nothing to reproduce.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedgauss.experiments.alarm_rows import DETECTED, POWER, PRINTED, TRACE
from fedgauss.experiments.attack_rules import PAPER_RULES, RULES, UNDER_FOUND
from fedgauss.experiments.layouts import Panel, printed_points
from fedgauss.experiments.mnist_rules import OPTIMUM_RULES, WARMED_RULES
from fedgauss.experiments.verdicts import Agreement, Estimate, Outcome, Point, Verdict, agreement_of, paper_runs
from fedgauss.sweep.cell import Row

_PAPERS = (*PAPER_RULES, *OPTIMUM_RULES)
_ORDER = (*_PAPERS, *(rule for rule in RULES if rule not in PAPER_RULES), *WARMED_RULES)


class Value(NamedTuple):
    """A measured number and its Monte-Carlo error."""

    estimate: float
    error: float


class AttackTable:
    """The rows of an attack table by rule, case and measure; a case is known by its x, mu or K_0.

    across     what x is
    honest     the cases without an attack
    attacked   the others
    onset      t_0
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        own = [row for row in rows if "x" in row and row["measure"] != TRACE]
        self.rules = [rule for rule in _ORDER if any(row["rule"] == rule for row in own)]
        self.across = str(own[0]["curve"]).split("=")[0]
        self.attacked = sorted({float(row["x"] or 0.0) for row in own if row["measure"] == POWER})
        self.honest = sorted({float(row["x"] or 0.0) for row in own} - set(self.attacked))
        self.onset = next(int(row["onset"]) for row in own if row["onset"])
        self.n_steps, self.runs = int(own[0]["n"] or 0), int(own[0]["replicates"] or 0)
        self._values = {(row["rule"], row["x"], row["measure"]): _value(row) for row in own}
        self._facts = {(row["rule"], row["measure"]): _value(row) for row in rows if "x" not in row}

    def value(self, rule: str, x: float, measure: str) -> Value | None:
        """A number of one case; None where there were too few alarms for it."""
        return self._values.get((rule, x, measure))

    def fact(self, rule: str, measure: str) -> Value | None:
        """A number of a rule, whatever the case; None if it has none."""
        return self._facts.get((rule, measure))


def attack_outcome(part: str, table: AttackTable) -> Outcome:
    """Every printed number beside ours under each of the paper's rules, and what follows."""
    panel = Panel(part, "measure", table.across, "measure", "none")
    printed = printed_points(panel)
    points = tuple(
        Point(measure, x, printed.get((measure, x)), _estimates(table, x, measure))
        for measure in PRINTED
        for x in [*table.honest, *table.attacked]
    )
    rules = [rule for rule in table.rules if rule in _PAPERS]
    agreements = tuple(agreement_of(rule, points, paper_runs(part)) for rule in rules)
    verdict, rule = _verdict(agreements)
    return Outcome(part, (panel,), (points,), agreements, len(printed), verdict, rule)


def _estimates(table: AttackTable, x: float, measure: str) -> dict[str, Estimate]:
    unit = 1.0 if measure == DETECTED else float(table.n_steps)
    found = {rule: table.value(rule, x, measure) for rule in table.rules}
    return {
        rule: Estimate((value.estimate,), (value.error,), table.runs, unit=unit)
        for rule, value in found.items()
        if value is not None
    }


def _verdict(agreements: Sequence[Agreement]) -> tuple[Verdict, str | None]:
    able = {a.reading: a for a in agreements if a.reproduces}
    text = [a for rule, a in able.items() if rule != UNDER_FOUND]
    if text:
        return "reproduced", max(text, key=lambda a: a.agree / a.compared).reading
    return ("reproduced as coded", UNDER_FOUND) if able else ("not reproduced", None)


def _value(row: Row) -> Value:
    return Value(float(row["estimate"] or 0.0), float(row["error"] or 0.0))
