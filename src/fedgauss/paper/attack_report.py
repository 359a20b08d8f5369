"""What an attack result shows, in sentences and tables: rules of detection side by side with the paper's numbers.

Printed numbers are judged as elsewhere, with rules of detection in place of readings. The paper leaves c open. Its rule
with c by cross-validation, as it suggests, or without c is a reading of the text, under either scaling; with a c that
was found by trying it is one "as coded". On MNIST, where the warm start is not described, so is the start at the end of
one, or at the optimum. Other rules have nothing to reproduce.
"""

from collections.abc import Sequence
from typing import NamedTuple

from fedgauss.paper.attack import ALARM, DELAY, DETECTED, EARLY, MISS, ONSET, POWER, PRINTED, AttackResult, AttackRow
from fedgauss.paper.attack_rules import CONSTANT, GAUSSIAN_RATE, RIGHT_ZERO, UNDER_FOUND
from fedgauss.paper.comparison import AGREES
from fedgauss.paper.judging import SLACK, Measurement, Outcome, Point, ResultVerdict, agreement_of, best_of, symbol
from fedgauss.report.text import Table, listed, number, numbers, sentence, with_error

_IN_STEPS = (*ONSET, *ALARM, DELAY, MISS)


def shown(rule: str) -> str:
    """The name of a rule, with its formulas."""
    return rule.replace(" c ", " $c$ ").replace(" R", " $R_t$")


class TableColumn(NamedTuple):
    """What the rules of a table are set side by side in.

    x          the case; None for numbers that belong to a rule, whatever the case
    measures   one; or the mean of something with its two percentage points
    digits     of the first measure; points are written in whole steps
    errors     whether the error of the first measure stands beside it
    """

    heading: str
    x: float | None
    measures: tuple[str, ...]
    digits: int = 3
    errors: bool = True


class AttackReport:
    """The rows of an attack result by rule, case and measure, and what they say.

    rules      those that were run, in the order of tables
    honest     the case without an attack
    attacked   the others, from the smallest attack to the largest
    onset      t_0
    symbol     of the size of an attack
    outcome    how printed numbers and ours compare
    """

    def __init__(self, result: AttackResult, rows: Sequence[AttackRow]) -> None:
        self.result = result
        computed = {row.rule for row in rows}
        self.rules = [rule for rule in (*result.papers, *result.others) if rule in computed]
        (self.honest,) = {float(row.x) for row in rows if row.x is not None and row.onset is None}
        self.attacked = sorted({float(row.x) for row in rows if row.x is not None and row.onset is not None})
        self.onset = next(row.onset for row in rows if row.onset is not None)
        self.n_steps = next(row.n for row in rows if row.n is not None)
        self.runs = next(row.replicates for row in rows if row.replicates is not None)
        self._values = {
            (row.rule, row.x, row.measure): Measurement((row.estimate,), (row.error,), self.runs, unit=self._unit(row))
            for row in rows
            if row.error is not None
        }
        (self._panel,) = result.part.panels
        self.symbol = symbol(self._panel.across)
        self.outcome = self._judged()

    def _unit(self, row: AttackRow) -> float:
        return float(self.n_steps) if row.measure in _IN_STEPS else 1.0

    def _judged(self) -> Outcome:
        """Every printed number beside ours under each rule, and what follows for the paper's."""
        points = tuple(
            Point(measure, x, self.printed(measure, x), self._of_each_rule(self.rules, x, measure))
            for measure in PRINTED
            for x in (self.honest, *self.attacked)
        )
        part, papers = self.result.part, [rule for rule in self.rules if rule in self.result.papers]
        agreements = tuple(agreement_of(rule, points, part.runs) for rule in papers)
        verdict, rule = best_of(agreements, set(papers) - {UNDER_FOUND}, coded=UNDER_FOUND)
        return Outcome(part, (points,), agreements, verdict, rule)

    def value(self, rule: str, x: float | None, measure: str) -> Measurement | None:
        """A number of one case, or for None of the rule whatever the case; None if there were too few alarms for it."""
        return self._values.get((rule, x, measure))

    def printed(self, measure: str, x: float | None) -> float | None:
        """The paper's number of one case; None if it prints none."""
        return None if x is None else self._panel.printed_points.get((measure, x))

    def case(self, x: float) -> str:
        """A case in words."""
        return f"{self.symbol} = {x:g}"

    @property
    def middle(self) -> float:
        """The second attack, or the only one: small enough that rules differ in their delay."""
        return self.attacked[min(1, len(self.attacked) - 1)]

    def summary(self) -> str:
        """One line: what agrees, why not more, and what the rules do."""
        part, best = self.result.part, self.outcome.agreement(self.outcome.reading)
        if best is None:
            first = f"{part.reason}. Of {self.outcome.compared} numbers these agree: {self._agreeing()}."
        else:
            wide = " within wide margins" if best.wide else ""
            setting = f" ({part.coded})" if self.outcome.verdict is ResultVerdict.AS_CODED else ""
            first = f"{best.agree} of {best.compared} numbers agree{wide} with {shown(best.reading)}{setting}."
        without_c = self.value(RIGHT_ZERO, self.honest, DETECTED)
        alarms = "none" if without_c is None else with_error(without_c.mean, without_c.error)
        return (
            f"{sentence(first)} Without $c$ the paper’s rule alarms in {alarms} of honest runs. "
            f"{self._power_of_smallest()}"
        )

    def findings(self) -> tuple[str, ...]:
        """How printed numbers compare, what honest runs do, and power, delay and onset of the rules."""
        compared = self.result.compared
        outcome, with_zero = self.outcome, (RIGHT_ZERO, *compared)
        return (
            f"Printed numbers are judged by the rule above, with rules of detection in place of readings. Of a number "
            f"of steps the {SLACK:g} is a part of the run, {SLACK * self.n_steps:g} steps. Of {outcome.compared} "
            f"printed numbers these agree: {self._agreeing()}. The root mean square difference, with steps as parts of "
            f"the run, is {numbers(a.rms for a in outcome.agreements)}.",
            f"A level of 0.05 is meant for the whole run. Of {self.runs:,} honest runs of {self.n_steps} steps, these "
            f"shares alarm: {self._each(with_zero, self.honest, DETECTED)}.",
            "The paper’s probability of detection counts every run with an alarm, whenever it comes. One at or before "
            f"step {self.onset} cannot be due to the attack, and power leaves it out. These shares of runs have one: "
            f"{self._each(with_zero, self.attacked[0], EARLY)}.",
            self._power_of_smallest(),
            f"Mean delay in steps at {self.case(self.middle)}: {self._each(compared, self.middle, DELAY, 1)}.",
            self._onsets(self.attacked[len(self.attacked) // 2]),
            *self._trends(),
            f"{self.result.shared_runs.format(runs=f'{self.runs:,}')} Errors do not count that thresholds of $R_t$ "
            "come from a finite number of Gaussian paths.",
        )

    def _power_of_smallest(self) -> str:
        small = self.attacked[0]
        return f"Power at {self.case(small)}: {self._each(self.result.compared, small, POWER)}."

    def _onsets(self, x: float) -> str:
        """Means of the estimated onset beside means of its distance from the true one."""
        printed = self.printed(ONSET[0], x)
        beside = "" if printed is None else f"; printed: {number(printed, 1)}"
        means, misses = (self._each(self.result.compared, x, measure, 1) for measure in (ONSET[0], MISS))
        return (
            f"Mean of the estimated onset at {self.case(x)}: {means}{beside}. Its mean distance from {self.onset}, in "
            f"steps: {misses}."
        )

    def _trends(self) -> list[str]:
        """Whether larger attacks are seen more often and sooner, by more than two errors between the two ends."""
        if len(self.attacked) < 2:
            return []
        more = [shown(rule) for rule in self.rules if self._moves(rule, DETECTED) > 2.0]
        sooner = [shown(rule) for rule in self.rules if self._moves(rule, DELAY) < -2.0]
        return [
            f"From {self.case(self.attacked[0])} to {self.attacked[-1]:g} the share of runs with an alarm rises under "
            f"{self._whose(more)}, and the mean delay falls under {self._whose(sooner)}, by more than two errors."
        ]

    def _moves(self, rule: str, measure: str) -> float:
        """The change from the smallest to the largest attack, in errors."""
        first, last = (self.value(rule, self.attacked[end], measure) for end in (0, -1))
        if first is None or last is None:
            return 0.0
        error = (first.error**2 + last.error**2) ** 0.5
        return (last.mean - first.mean) / error if error else 0.0

    def _whose(self, rules: Sequence[str]) -> str:
        every = len(self.rules)
        return "every rule" if len(rules) == every else f"{len(rules)} of {every} rules ({listed(rules) or 'none'})"

    def _agreeing(self) -> str:
        return "; ".join(f"{shown(a.reading)}: {a.agree}" for a in self.outcome.agreements)

    def _each(self, rules: Sequence[str], x: float, measure: str, digits: int = 3) -> str:
        values = self._of_each_rule(rules, x, measure).items()
        return "; ".join(f"{shown(rule)}: {with_error(one.mean, one.error, digits)}" for rule, one in values)

    def _of_each_rule(self, rules: Sequence[str], x: float, measure: str) -> dict[str, Measurement]:
        """The number of one case under each of these rules that has it."""
        values = {rule: self.value(rule, x, measure) for rule in rules}
        return {rule: value for rule, value in values.items() if value is not None}

    def tables(self) -> tuple[Table, ...]:
        """What each rule does to honest runs, the paper's columns, and what the paper does not give.

        There is a table for each measure with a column for each attack, or, of one attack alone, a column for each
        measure.
        """
        t_0 = self.onset
        honest = self._table(
            "rule",
            [
                TableColumn("$c$", None, (CONSTANT,), errors=False),
                TableColumn("false alarms", self.honest, (DETECTED,)),
                TableColumn("Gaussian paths", None, (GAUSSIAN_RATE,)),
                TableColumn(f"by step {t_0}", self.attacked[0], (EARLY,)),
            ],
            f"False alarms at a nominal 0.05: share of honest runs with an alarm in {self.n_steps} steps; of honest "
            f"Gaussian paths; of runs with an alarm before the attack (errors in brackets; {AGREES} where the paper’s "
            "rule and the printed number agree)",
        )
        if len(self.attacked) == 1:
            return honest, *self._tables_of_one_attack()
        agrees = f"{AGREES} where one of the paper’s rules agrees with"
        points = f"mean; 2.5 to 97.5 % points ({agrees} all three printed numbers)"
        after, errors = f"whose first alarm comes after step {t_0}", "(Monte-Carlo errors in brackets)"
        shares = f"Share of runs with an alarm at any time, as the paper counts ({agrees} the printed number)"
        misses = f"Mean distance of the estimated onset from {t_0} in steps, over the same runs {errors}"
        return (
            honest,
            self._by_case((DETECTED,), 3, shares),
            self._by_case(ONSET, 0, f"Estimated onset over runs with an alarm: {points}"),
            self._by_case(ALARM, 0, f"Step of the alarm over runs with one: {points}"),
            self._by_case((POWER,), 3, f"Power: share of runs {after} {errors}"),
            self._by_case((DELAY,), 1, f"Mean delay in steps, over runs {after} {errors}"),
            self._by_case((MISS,), 1, misses),
        )

    def _tables_of_one_attack(self) -> tuple[Table, Table]:
        """The paper's columns, and what it does not give."""
        (x,), t_0 = self.attacked, self.onset
        return (
            self._table(
                "rule",
                [
                    TableColumn("alarms", x, (DETECTED,)),
                    TableColumn("estimated onset", x, ONSET, 1),
                    TableColumn("step of the alarm", x, ALARM, 1),
                ],
                f"With {self.case(x)}: share of runs with an alarm at any time, as the paper counts; onset and step "
                f"over these, mean; 2.5 to 97.5 % points (errors in brackets; {AGREES} where one of the paper’s rules "
                "agrees with all printed numbers of a cell)",
            ),
            self._table(
                "rule",
                [
                    TableColumn("power", x, (POWER,)),
                    TableColumn("delay", x, (DELAY,), 1),
                    TableColumn("miss of the onset", x, (MISS,), 1),
                ],
                f"With {self.case(x)}: share of runs whose first alarm comes after step {t_0}; over these, mean delay "
                f"and mean distance of the estimated onset from {t_0}, in steps (errors in brackets)",
            ),
        )

    def _by_case(self, measures: tuple[str, ...], digits: int, caption: str) -> Table:
        """A column for each attack; a mean with its points has whole steps, so that six fit into a terminal."""
        columns = [TableColumn(f"{x:g}", x, measures, digits, errors=digits > 0) for x in self.attacked]
        return self._table(self.symbol, columns, caption)

    def _table(self, corner: str, columns: Sequence[TableColumn], caption: str) -> Table:
        """A row for each rule, under the printed numbers if there are any."""
        rows = [(shown(rule), *(self._entry(rule, column) for column in columns)) for rule in self.rules]
        printed = [_written([self.printed(name, one.x) for name in one.measures], one.digits) for one in columns]
        if any(printed):
            rows.insert(0, ("printed", *printed))
        return Table((corner, *(column.heading for column in columns)), tuple(rows), caption)

    def _entry(self, rule: str, column: TableColumn) -> str:
        """0.123 ✓ (0.004), where the mark says that the printed number agrees; nothing where there is none."""
        values = [self.value(rule, column.x, measure) for measure in column.measures]
        printed = [self.printed(measure, column.x) for measure in column.measures]
        pairs = zip(values, printed, strict=True)
        agree = all(one is not None and one.agrees(theirs, self.result.part.runs) for one, theirs in pairs)
        mark = f" {AGREES}" if agree and rule in self.result.papers else ""
        error = f" ({number(values[0].error, column.digits)})" if column.errors and values[0] is not None else ""
        return _written([None if one is None else one.mean for one in values], column.digits, mark + error)


def _written(values: Sequence[float | None], digits: int, beside: str = "") -> str:
    """0.123, or of a mean with its points 201.2; 59–291; with `beside` after the first. Nothing if one is missing."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ""
    points = f"; {number(known[1], 0)}–{number(known[2], 0)}" if len(known) > 1 else ""
    return f"{number(known[0], digits)}{beside}{points}"
