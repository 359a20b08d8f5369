"""The paper's results on detecting when an attack starts, as data in the same way as its other results."""

from __future__ import annotations

from fedgauss.experiments.attack_cells import ShiftCell
from fedgauss.experiments.attack_rules import FamilyName
from fedgauss.experiments.mnist_cells import PapersRuleCell, WarmUpCell
from fedgauss.experiments.mnist_rules import WARM_UPS
from fedgauss.experiments.paper import Result, Scale
from fedgauss.sweep.cell import Cell

_SHIFTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_TRACED = 1.5  # large enough that every rule alarms, small enough that it takes a while
_FAMILIES: tuple[FamilyName, ...] = ("paper", "studentised", "innovation")
_MNIST_RUNS, _MANY_MNIST_RUNS = 100, 2000  # the paper does not say how many it had


def attack_results() -> dict[str, Result]:
    """By name, in the paper's order."""
    listed = [
        Result(
            "attack_shift",
            "When an attack started",
            "Appendix G.2, table",
            "false alarms stay near .05, larger attacks are seen more often and sooner, and the onset is found",
            _shift,
        ),
        Result(
            "attack_mnist",
            "Flipped labels on MNIST",
            "Appendix G.2.1, table",
            "the level is about kept, and nine of ten attacks are seen, 46 steps after their start on average",
            _mnist,
        ),
    ]
    return {result.name: result for result in listed}


def _shift(scale: Scale) -> list[ShiftCell]:
    runs = scale.replicates(500)
    return [ShiftCell("attack_shift", name, _SHIFTS, _TRACED, runs, bootstraps=2 * runs) for name in _FAMILIES]


def _mnist(scale: Scale) -> list[Cell]:
    """The default for each warm-up, and the paper's rule from the end of the longest one and from the optimum."""
    runs = _MANY_MNIST_RUNS if scale.factor > 1.0 else _MNIST_RUNS
    default = [WarmUpCell("attack_mnist", steps, runs) for steps in WARM_UPS]
    return default + [
        PapersRuleCell("attack_mnist", start, runs, bootstraps=2 * runs) for start in (WARM_UPS[-1], None)
    ]
