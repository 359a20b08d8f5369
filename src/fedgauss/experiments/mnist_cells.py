"""Runs on MNIST, honest and with flipped labels, and the first alarms on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedgauss.experiments.alarm_rows import alarm_rows
from fedgauss.experiments.attack_cells import trace_rows
from fedgauss.experiments.attack_rules import Judged
from fedgauss.experiments.mnist_rules import judged_by_default, papers_rules
from fedgauss.experiments.mnist_setting import FlipAttack
from fedgauss.sweep.cell import Row

# In draws, like the cost of other cells: a report of A and V and a watched run; R_t of a path in 40 dimensions.
_WATCHED_COST, _PATH_COST, _THRESHOLD_COST = 2e5, 6e4, 3e7


@dataclass(frozen=True)
class WarmUpCell:
    """The default rule with A and V from a warm-up of so many steps, one for each run.

    Cells with one seed and warm-up see the same runs. Honest and attacked runs differ by the attack alone.
    """

    result: str
    warm_up: int
    replicates: int
    seed: int = 1
    attack: FlipAttack = field(default_factory=FlipAttack)

    def __str__(self) -> str:
        return f"{self.result}, the default after a warm-up of {self.warm_up} steps"

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws."""
        return _THRESHOLD_COST + _WATCHED_COST * self.replicates

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs."""
        return f"mnist, default {self.replicates}"

    def judged(self) -> list[Judged]:
        """What the rule says of honest runs, and of runs with an attack."""
        attack, clients = self.attack, self.attack.clients()
        starts = attack.starts(clients, self.warm_up, self.replicates, self.seed)
        cases = [attack.paths(clients, starts, k, self.seed, attack.sync_every) for k in (0, attack.attackers)]
        return judged_by_default(attack, clients, self.warm_up, starts, cases, self.seed)

    def run(self) -> list[Row]:
        """What became of both cases, and one attacked run over time."""
        return _rows(self, self.judged())


@dataclass(frozen=True)
class PapersRuleCell:
    """The paper's rule on runs from the end of a warm start of so many steps, or for None from the optimum.

    It is told A and V exactly, at the mean of the starts. `bootstraps` is the number of Gaussian paths behind a
    threshold.
    """

    result: str
    warm_up: int | None
    replicates: int
    bootstraps: int
    seed: int = 1
    attack: FlipAttack = field(default_factory=FlipAttack)

    def __str__(self) -> str:
        start = "from the optimum" if self.warm_up is None else f"after a warm start of {self.warm_up} steps"
        return f"{self.result}, the paper’s rule {start}"

    @property
    def experiment(self) -> str:
        """The result that the rows belong to."""
        return self.result

    @property
    def cost(self) -> float:
        """In draws; R_t takes longer than a run."""
        return _PATH_COST * 2.0 * (self.replicates + self.bootstraps)

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs."""
        return f"mnist, paper {self.replicates}"

    def run(self) -> list[Row]:
        """What is known of each rule, what became of both cases, and one attacked run over time."""
        attack, clients = self.attack, self.attack.clients()
        starts = attack.starts(clients, self.warm_up, self.replicates, self.seed)
        lin = attack.known(clients, starts.mean(axis=0))
        facts, judge = papers_rules(attack, lin, self.bootstraps, from_optimum=self.warm_up is None)
        rows: list[Row] = [{"result": self.result, **fact._asdict()} for fact in facts]
        cases = (attack.paths(clients, starts, k, self.seed) for k in (0, attack.attackers))
        return rows + _rows(self, map(judge, cases))


def _rows(cell: WarmUpCell | PapersRuleCell, judged: Iterable[Judged]) -> list[Row]:
    """Of honest runs first, then of attacked ones; of the first of these, its statistic over time."""
    attack, rows = cell.attack, list[Row]()
    for flipping, one in zip((0, attack.attackers), judged, strict=True):
        onset = attack.onset if flipping else None
        base: Row = {
            "result": cell.result,
            "curve": f"K0={flipping}",
            "x": flipping,
            "n": attack.n_steps,
            "K": attack.n_clients,
            "onset": onset,
            "replicates": cell.replicates,
        }
        for rule, alarms in one.alarms.items():
            rows += alarm_rows(base | {"rule": rule}, alarms, onset)
        if flipping:
            rows += trace_rows(base, one)
    return rows
