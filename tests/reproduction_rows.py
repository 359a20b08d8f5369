"""Rows as a sweep would leave them, made from the printed numbers by a rule that a test chooses."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedgauss.experiments.alarm_rows import DELAY, DETECTED, EARLY, MISS, POWER, PRINTED, TRACE
from fedgauss.experiments.attack_rules import INNOVATION, RIGHT_TUNED, RULES
from fedgauss.experiments.cells import APPROXIMATIONS
from fedgauss.experiments.layouts import panels, printed
from fedgauss.experiments.mnist_rules import MNIST_RULES, WARMED_LONGEST
from fedgauss.experiments.paper import Result, results
from fedgauss.experiments.verdicts import CODED, OPTIMUM, ZERO, paper_runs
from fedgauss.sweep.cell import Row

Rule = Callable[[str, float, float], float]  # (reading, x, printed) -> estimate


def as_printed(reading: str, x: float, value: float) -> float:
    """Wrong from zero, right from the optimum and as coded."""
    return value + 0.3 if reading == ZERO else value


def distance_rows(part: str, rule: Rule = as_printed, draws: int = 1, error: float = 0.01) -> list[Row]:
    """A row for each printed number, reading and draw; draws lie .01 apart around what the rule says."""
    column = next(p.column for name in RESULTS for p in panels(name) if p.part == part)
    return [
        {
            "result": part,
            "reading": reading,
            "draw": draw,
            "curve": curve,
            "x": int(x),
            "n": int(x) if column == "n" else 300,
            "K": int(x) if column == "K" else 10,
            "estimate": rule(reading, float(x), value) + 0.01 * (draw - (draws - 1) / 2),
            "error": error,
            "low": 0.0,
            "high": 1.0,
            "floor": 0.027,
            "half_spaces": 0.5,
            "replicates": paper_runs(part),
        }
        for reading in (ZERO, OPTIMUM, CODED)
        for draw in range(draws)
        for curve, values in printed()[part].items()
        for x, value in values.items()
    ]


def quantile_rows(part: str, curves: tuple[str, ...], gaps: dict[str, float], coded: bool = False) -> list[Row]:
    """Q's and quantiles for each curve; `gaps` says by how much each approximation is off."""
    rows: list[Row] = []
    for reading in (ZERO, OPTIMUM, CODED) if coded else (ZERO, OPTIMUM):
        for curve in curves:
            for name in APPROXIMATIONS:
                size = int(curve.split("=")[1]) if curve.startswith("K=") else 15
                base: Row = {"result": part, "reading": reading, "draw": 0, "curve": curve, "approximation": name}
                base |= {"K": size, "replicates": 500}
                for measure in ("Q", "Q trimmed"):
                    rows.append(base | {"measure": measure, "estimate": gaps[name], "error": 0.02})
                for level in np.round(np.arange(0.02, 0.99, 0.02), 2):
                    q = 1.0 + float(level)
                    estimate = q * (1.0 + gaps[name])
                    rows.append(base | {"measure": "quantile", "x": float(level), "reference": q, "estimate": estimate})
    return rows


# By result: rules, and what its cells say of n, K and t_0.
ATTACKS: dict[str, tuple[tuple[str, ...], Row]] = {
    "attack_shift": (RULES, {"n": 500, "K": 10, "onset": 250, "replicates": 500}),
    "attack_mnist": (MNIST_RULES, {"n": 200, "K": 5, "onset": 50, "replicates": 100}),
}
TRACED = (RIGHT_TUNED, INNOVATION, WARMED_LONGEST)


def attack_rows(
    shift: Callable[[str], float] = lambda rule: 0.0, cases: tuple[str, ...] = (), result: str = "attack_shift"
) -> list[Row]:
    """The printed numbers under each rule, moved by what `shift` says of it: shares by that, steps by n times it.

    The first of `cases`, all of the table if none are given, is the one without an attack.
    """
    table, shares = printed()[result], (DETECTED, EARLY, POWER)
    listed = cases or tuple(table)
    rules, setting = ATTACKS[result]
    rows: list[Row] = [
        {"result": result, "rule": rule, "measure": measure, "estimate": value, "error": 0.01}
        for rule in rules
        if "scale" in rule
        for measure, value in (("c", 0.3), ("Gaussian false alarms", 0.06))
    ]
    for case in listed:
        values, attacked = table[case], case != listed[0]
        base: Row = {"result": result, "curve": case, "x": float(case.split("=")[1])} | setting
        base |= {} if attacked else {"onset": None}
        for rule in rules:
            own: Row = {
                m: values[m] + shift(rule) * (1 if m == DETECTED else base["n"]) for m in PRINTED if m in values
            }
            own |= {EARLY: 0.1, POWER: 0.8, DELAY: 120.0 - 10 * base["x"], MISS: 20.0} if attacked else {}
            rows += [
                base
                | {"rule": rule, "measure": measure, "estimate": value, "error": 0.001 if measure in shares else 0.5}
                for measure, value in own.items()
            ]
        if case == listed[-1]:
            rows += [row for rule in TRACED if rule in rules for row in _one_run(base | {"rule": rule})]
    return rows


def _one_run(base: Row) -> list[Row]:
    """A statistic that crosses its threshold 50 steps after the attack, ten steps before which it puts the onset."""
    alarm, named = base["onset"] + 50, base["onset"] - 10
    return [
        base | {"measure": TRACE, "step": t, "estimate": t / 100, "threshold": 2.9, "alarm": alarm, "named": named}
        for t in range(20, base["n"] + 1, 20)
    ]


RESULTS = {
    "figure1_left": ("figure1_left",),
    "figure1_right": ("figure1_right",),
    "figure2_phase": ("figure2_phase",),
    "figure4": ("figure4_left", "figure4_right"),
    "heterogeneity": ("heterogeneity",),
    "synchronisation": ("synchronisation",),
    "connection": ("connection",),
}
GAPS = {"Aggr-GA": 0.11, "Client-GA": 0.12, "f-CLT": 0.5}


def rows_of(result: str, draws: int = 2) -> list[Row]:
    """Rows of a whole result of the paper; of quantiles there is one draw."""
    if result == "figure3_qq":
        return quantile_rows(result, ("K=10", "K=25", "K=50"), GAPS, coded=True)
    if result == "ablation_tau":
        return quantile_rows(result, ("tau=5", "tau=10", "tau=15", "tau=50", "tau=100"), GAPS)
    if result in ATTACKS:
        return attack_rows(result=result)
    if result == "ablation_gamma":
        return quantile_rows(result, ("gamma=1", "gamma=5", "gamma=10"), GAPS)
    return [row for part in RESULTS[result] for row in distance_rows(part, draws=draws)]


@dataclass(frozen=True)
class MadeUp:
    """A cell that gives the made-up rows of one reading, and notes in `log` that it ran."""

    result: str
    reading: str
    log: str = field(compare=False)
    seconds: float = field(default=0.0, compare=False)

    def run(self) -> list[Row]:
        with Path(self.log).open("a") as log:
            log.write(f"{self.result} {self.reading}\n")
        time.sleep(self.seconds)
        return [row for row in rows_of(self.result) if row["reading"] == self.reading]


def made_up_results(log: str, seconds: float = 0.0) -> dict[str, Result]:
    """The paper's results with made-up cells, one for each reading; the one as coded takes some seconds."""

    def cells(name: str) -> list[MadeUp]:
        waits = {ZERO: 0.0, OPTIMUM: 0.0, CODED: seconds}
        return [MadeUp(name, reading, log, wait) for reading, wait in waits.items()]

    return {name: replace(one, cells=lambda scale, name=name: cells(name)) for name, one in results().items()}
