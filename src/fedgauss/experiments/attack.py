"""The paper's results on detecting when an attack starts, as data in the same way as its other results."""

from __future__ import annotations

from fedgauss.experiments.attack_cells import ShiftCell
from fedgauss.experiments.attack_rules import FamilyName
from fedgauss.experiments.paper import Result, Scale

_SHIFTS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
_TRACED = 1.5  # large enough that every rule alarms, small enough that it takes a while
_FAMILIES: tuple[FamilyName, ...] = ("paper", "studentised", "innovation")


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
    ]
    return {result.name: result for result in listed}


def _shift(scale: Scale) -> list[ShiftCell]:
    runs = scale.replicates(500)
    return [ShiftCell("attack_shift", name, _SHIFTS, _TRACED, runs, bootstraps=2 * runs) for name in _FAMILIES]
