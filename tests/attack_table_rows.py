"""Rows of attack results as a sweep would leave them, made from the printed numbers by a rule that a test chooses."""

from collections.abc import Callable
from functools import partial

from fedgauss.paper.attack import DELAY, DETECTED, EARLY, MISS, POWER, PRINTED, TRACE, AttackResult, AttackRow
from fedgauss.paper.attack_rules import CONSTANT, GAUSSIAN_RATE, RIGHT_TUNED
from fedgauss.paper.mnist import FlipAttack
from fedgauss.paper.results import attack_mnist, attack_shift
from fedgauss.paper.results.attack_shift import ShiftAttack

SHIFT, MNIST = attack_shift.RESULT, attack_mnist.RESULT
SETTINGS = {SHIFT.name: ShiftAttack(), MNIST.name: FlipAttack()}


def attack_rows(
    shift: Callable[[str], float] = lambda rule: 0.0, cases: tuple[float, ...] = (), result: AttackResult = SHIFT
) -> list[AttackRow]:
    """The printed numbers under each rule, moved by what `shift` says of it: shares by that, steps by n times it.

    The first of `cases`, all of the table if none are given, is the one without an attack.
    """
    (panel,), setting = result.part.panels, SETTINGS[result.name]
    listed = cases or setting.cases
    rules = (*result.papers, *result.others)
    rows = [
        AttackRow(result.name, rule, measure, value, 0.01)
        for rule in rules
        if "scale" in rule
        for measure, value in ((CONSTANT, 0.3), (GAUSSIAN_RATE, 0.06))
    ]
    for x in listed:
        onset = None if x == listed[0] else setting.onset
        row = partial(
            AttackRow,
            result.name,
            curve=f"{panel.across}={x:g}",
            x=x,
            n=setting.n_steps,
            K=setting.n_clients,
            onset=onset,
            replicates=result.part.runs,
        )
        for rule in rules:
            values = {
                measure: panel.printed[measure][x] + shift(rule) * (1 if measure == DETECTED else setting.n_steps)
                for measure in PRINTED
                if x in panel.printed[measure]
            }
            if onset is not None:
                values |= {EARLY: 0.1, POWER: 0.8, DELAY: 120.0 - 10 * x, MISS: 20.0}
            rows += [
                row(rule, measure, value, 0.001 if measure in (DETECTED, EARLY, POWER) else 0.5)
                for measure, value in values.items()
            ]
    # A statistic that crosses its threshold 50 steps after the attack, ten steps before which it puts the onset.
    run = partial(row, threshold=2.9, alarm=setting.onset + 50, named=setting.onset - 10)
    steps = range(20, setting.n_steps + 1, 20)
    return rows + [run(rule, TRACE, t / 100, step=t) for rule in (RIGHT_TUNED, result.default) for t in steps]
