"""The tolerance of a feature of clients: how many honest runs alarm, and how much attacks are seen, by it alone.

    PYTHONPATH=src python benchmarks/watch_calibration.py fedgauss.detect.clients.features.length:Length
    PYTHONPATH=src python benchmarks/watch_calibration.py my_feature:Mine --runs 20 --cell "nearly alike, full batches"

The feature is judged alone, at all of alpha, in cells of `watch_settings.py` where values barely vary or are bounded,
and under attack. The tolerance to write into the class is the least with which at most alpha of honest runs alarm.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parent), "."]

from watch_levels import ALPHA, outcomes, row_of, sentence  # noqa: E402
from watch_settings import Cell, cells  # noqa: E402

from fedgauss.detect.clients.features import FEATURES, Feature  # noqa: E402

TOLERANCES = (0.001, 0.01, 0.03, 0.1, 0.3)
CELLS = (
    "plain",
    "nearly alike, full batches",
    "full batches, network, Dirichlet inf",
    "clip 1.1, cosine rate",
    "signs, cosine rate",
    "plain: flip, 2",
    "plain: scale by 5, 2",
)
STAGE = 2  # seeds of its own


class Level(NamedTuple):
    """Honest runs with a false alarm, with one tolerance."""

    tolerance: float
    alarms: int
    runs: int


def alone(feature: Feature, tolerance: float) -> tuple[Feature, ...]:
    """That feature as the only one, with another tolerance."""
    changed = type(type(feature).__name__, (type(feature),), {"tolerance": tolerance, "share": 0.0})
    return (changed(),)


def calibrated(
    feature: Feature, chosen: Sequence[Cell], tolerances: Sequence[float] = TOLERANCES, n_runs: int = 20
) -> Iterator[tuple[Level, list[str]]]:
    """For each tolerance the false alarms, and a sentence for each cell."""
    for tolerance in tolerances:
        alarms = honest = 0
        words = []
        for cell in chosen:
            found = outcomes(cell, 0, n_runs, STAGE, alone(feature, tolerance))
            words.append(sentence(row_of(cell, found), 0.0))
            if not cell.attack.bad:
                honest, alarms = honest + n_runs, alarms + sum(o.alarm > 0 for o in found)
        yield Level(tolerance, alarms, honest), words


def least(levels: Sequence[Level]) -> float | None:
    """The least tolerance with which the level holds from there on; None if it never does."""
    good = None
    for level in sorted(levels, reverse=True):
        if level.alarms > ALPHA * level.runs:
            break
        good = level.tolerance
    return good


def main() -> None:
    """The table, and the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("feature", help="module:Class")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cell", action="append")
    given = parser.parse_args()
    module, name = given.feature.split(":")
    feature = getattr(importlib.import_module(module), name)()
    chosen = [cell for cell in cells() if cell.name in (given.cell or CELLS)]
    levels = []
    for level, words in calibrated(feature, chosen, n_runs=given.runs):
        levels.append(level)
        print(f"tolerance {level.tolerance}: {level.alarms} of {level.runs} honest runs alarm", *words, sep="\n  ")
    here = next((one.tolerance for one in FEATURES if type(one) is type(feature)), feature.tolerance)
    print(f"Least tolerance at which alpha holds: {least(levels)}; the class has {here}.")


if __name__ == "__main__":
    main()
