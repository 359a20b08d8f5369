"""What the runs of an attack table show, in sentences computed from its rows."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.alarm_rows import DELAY, DETECTED, EARLY, MISS, ONSET, POWER
from fedgauss.experiments.attack_rules import INNOVATION, RIGHT_TUNED, RIGHT_ZERO, STUDENTISED
from fedgauss.experiments.attack_verdicts import AttackTable
from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.mnist_rules import RIGHT_AT_OPTIMUM, WARMED_RULES
from fedgauss.experiments.verdicts import SLACK, Outcome
from fedgauss.report.reproduction.attack_tables import shown
from fedgauss.report.reproduction.words import symbol
from fedgauss.report.text import listed, number, sentence, with_error

_COMPARED = (RIGHT_TUNED, RIGHT_AT_OPTIMUM, STUDENTISED, INNOVATION, *WARMED_RULES)  # where a table has them
_SHARED = {
    "attack_shift": "All rules see the same {runs} runs of each case.",
    "attack_mnist": "Rules see {runs} runs of each case, the same ones where their starts are the same. How many the "
    "paper had is not stated; 100 are supposed in judging its numbers. Thresholds of the default are simulated for the "
    "first four runs of each warm-up, and every run takes one of these in turn: they differ by a per cent or so.",
}


def summary(table: AttackTable, outcome: Outcome) -> str:
    """One line: what agrees, why not more, and what the rules do."""
    words, best = EXPLANATIONS[outcome.part], outcome.agreement(outcome.reading or "")
    if best is None:
        first = f"{words.reason}. Of {outcome.compared} numbers these agree: {_agreeing(outcome)}."
    else:
        wide = " within wide margins" if best.wide else ""
        setting = f" ({words.coded})" if outcome.verdict == "reproduced as coded" else ""
        first = f"{best.agree} of {best.compared} numbers agree{wide} with {shown(best.reading)}{setting}."
    small = table.attacked[0]
    return " ".join(
        [
            sentence(first),
            f"Without $c$ the paper’s rule alarms in {_cell(table, RIGHT_ZERO, table.honest[0], DETECTED)} of honest "
            "runs.",
            f"Power at {_case(table, small)}: {_each(table, _COMPARED, small, POWER)}.",
        ]
    )


def findings(table: AttackTable, outcome: Outcome) -> tuple[str, ...]:
    """How printed numbers compare, what honest runs do, and power, delay and onset of the rules."""
    t_0, honest, small = table.onset, table.honest[0], table.attacked[0]
    middle = table.attacked[min(1, len(table.attacked) - 1)]
    return (
        f"Printed numbers are judged by the rule above, with rules of detection in place of readings. Of a number of "
        f"steps the {SLACK:g} is a part of the run, {SLACK * table.n_steps:g} steps. Of {outcome.compared} printed "
        f"numbers these agree: {_agreeing(outcome)}. The root mean square difference, with steps as parts of the run, "
        f"is {listed([number(a.rms) for a in outcome.agreements])}.",
        f"A level of 0.05 is meant for the whole run. Of {table.runs:,} honest runs of {table.n_steps} steps, these "
        f"shares alarm: {_each(table, (RIGHT_ZERO, *_COMPARED), honest, DETECTED)}.",
        "The paper’s probability of detection counts every run with an alarm, whenever it comes. One at or before step "
        f"{t_0} cannot be due to the attack, and power leaves it out. These shares of runs have one: "
        f"{_each(table, (RIGHT_ZERO, *_COMPARED), small, EARLY)}.",
        f"Power at {_case(table, small)}: {_each(table, _COMPARED, small, POWER)}.",
        f"Mean delay in steps at {_case(table, middle)}: {_each(table, _COMPARED, middle, DELAY, 1)}.",
        _onsets(table, outcome, table.attacked[len(table.attacked) // 2]),
        *_trends(table),
        f"{_SHARED[outcome.part].format(runs=f'{table.runs:,}')} Errors do not count that thresholds of $R_t$ come "
        "from a finite number of Gaussian paths.",
    )


def _onsets(table: AttackTable, outcome: Outcome, x: float) -> str:
    """Means of the estimated onset beside means of its distance from the true one."""
    printed = next(p.printed for p in outcome.points[0] if (p.series, p.x) == (ONSET[0], x))
    said = "" if printed is None else f"; printed: {number(printed, 1)}"
    means, misses = (_each(table, _COMPARED, x, measure, 1) for measure in (ONSET[0], MISS))
    return (
        f"Mean of the estimated onset at {_case(table, x)}: {means}{said}. Its mean distance from {table.onset}, in "
        f"steps: {misses}."
    )


def _trends(table: AttackTable) -> list[str]:
    """Whether larger attacks are seen more often and sooner, by more than two errors between the two ends."""
    if len(table.attacked) < 2:
        return []
    more = [shown(rule) for rule in table.rules if _moves(table, rule, DETECTED) > 2.0]
    sooner = [shown(rule) for rule in table.rules if _moves(table, rule, DELAY) < -2.0]
    every = len(table.rules)

    def whose(rules: Sequence[str]) -> str:
        return "every rule" if len(rules) == every else f"{len(rules)} of {every} rules ({listed(rules) or 'none'})"

    low, high = table.attacked[0], table.attacked[-1]
    return [
        f"From {_case(table, low)} to {high:g} the share of runs with an alarm rises under {whose(more)}, and the mean "
        f"delay falls under {whose(sooner)}, by more than two errors."
    ]


def _moves(table: AttackTable, rule: str, measure: str) -> float:
    """The change from the smallest to the largest attack, in errors."""
    first, last = (table.value(rule, table.attacked[end], measure) for end in (0, -1))
    if first is None or last is None:
        return 0.0
    error = (first.error**2 + last.error**2) ** 0.5
    return (last.estimate - first.estimate) / error if error else 0.0


def _agreeing(outcome: Outcome) -> str:
    return "; ".join(f"{shown(a.reading)}: {a.agree}" for a in outcome.agreements)


def _each(table: AttackTable, rules: Sequence[str], x: float, measure: str, digits: int = 3) -> str:
    own = [rule for rule in rules if table.value(rule, x, measure) is not None]
    return "; ".join(f"{shown(rule)}: {_cell(table, rule, x, measure, digits)}" for rule in own)


def _cell(table: AttackTable, rule: str, x: float, measure: str, digits: int = 3) -> str:
    value = table.value(rule, x, measure)
    return "none" if value is None else with_error(*value, digits)


def _case(table: AttackTable, x: float) -> str:
    return f"{symbol(table.across)} = {x:g}"
