"""Runs under attacks of several sizes, and the first alarms of a family of rules."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedgauss.experiments.alarm_rows import TRACE, alarm_rows
from fedgauss.experiments.attack_rules import FamilyName, Judged, Known, family
from fedgauss.experiments.attack_setting import ShiftAttack
from fedgauss.sweep.cell import Row

_PATH_COST = 7e4  # R_t of one path takes as long as this many draws


@dataclass(frozen=True)
class ShiftCell:
    """The rules of one family on runs under each shift; the first run of the shift `traced` is kept over time.

    Cells with one seed see the same runs, so that families can be compared, and runs differ between shifts by the
    attack alone. `bootstraps` is the number of Gaussian paths behind a threshold.
    """

    result: str
    rules: FamilyName
    shifts: tuple[float, ...]
    traced: float
    replicates: int
    bootstraps: int
    seed: int = 1
    attack: ShiftAttack = field(default_factory=ShiftAttack)

    def __str__(self) -> str:
        return f"{self.result}, rules of the kind {self.rules}"

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws; R_t takes longer than a run."""
        runs = len(self.shifts) * self.replicates
        simulated = float(runs * self.attack.n_steps * self.attack.n_clients)
        return simulated if self.rules == "innovation" else simulated + _PATH_COST * (runs + 2 * self.bootstraps)

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs."""
        return f"attack {self.replicates}"

    def run(self) -> list[Row]:
        """What is known of each rule, what became of each shift under it, and one run over time."""
        from fedgauss.problems.linearize import linearize

        attack = self.attack
        known = Known(
            linearize(attack.clients()),
            attack.schedule,
            attack.n_steps,
            attack.sync_every,
            bootstraps=self.bootstraps,
        )
        facts, judge = family(self.rules, known)
        rows: list[Row] = [{"result": self.result, **fact._asdict()} for fact in facts]
        for shift in self.shifts:
            base: Row = {
                "result": self.result,
                "curve": f"mu={shift:g}",
                "x": shift,
                "n": attack.n_steps,
                "K": attack.n_clients,
                "onset": attack.onset if shift else None,
                "replicates": self.replicates,
            }
            judged = judge(attack.paths(shift, self.replicates, self.seed))
            for rule, alarms in judged.alarms.items():
                rows += alarm_rows(base | {"rule": rule}, alarms, attack.onset if shift else None)
            if shift == self.traced:
                rows += trace_rows(base, judged)
        return rows


def trace_rows(base: Row, judged: Judged) -> list[Row]:
    """The first run over time: its statistic and threshold, and on every row its alarm and the onset that names."""
    if judged.trace is None:
        return []
    rule = judged.trace.rule
    step, named = (int(values[0]) for values in judged.alarms[rule])
    return [
        base
        | {"rule": rule, "measure": TRACE, "step": int(t), "estimate": float(value), "alarm": step, "named": named}
        | {"threshold": float(limit) if np.isfinite(limit) else None}
        for t, value, limit in zip(*judged.trace[1:], strict=True)
    ]
