"""What no detector can do in the table of `rival_table.py`: bounds of `told_onset.py` for its runs.

The first table bounds the delay of rules that hardly alarm up to step 240, where silent runs alarm at step 260. The
second asks for the least level of a rule that has the best figures of any detector in several columns at once, and is
told t_0 in each. A level above .05 would prove that no rule has all of them; one below it proves nothing, since nobody
is told t_0. Noise after the change is taken to be as before; in the runs its variance is up to 1.1 (mu = 1) and 1.4
times (mu = 2) as large. The rule of each bound is also tried on runs.

    python benchmarks/rival_bounds.py [--grid 0.02]

Takes about a minute of one core; the packages of rivals are not needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rival_data as data
from rich.console import Console
from rich.progress import track
from rich.table import Table
from told_onset import Array, Told, least_delay, least_level

import fedgauss as fg

RECORD = Path(__file__).parent / "recorded" / "rival_table-2026-11-18.json"
EARLY = (0.0002, 0.0004, 0.001)


class Model(NamedTuple):
    """What runs of `rival_data` are taken to be."""

    ends: Array
    precision: Array
    size: float  # |theta| at mu = 1
    size_error: float
    attacked: Array  # values of runs with mu = 1 after step 100

    def told(self, after: int, shifts: Sequence[float], last: int, grid: float) -> Told:
        """Rules that see rounds until `last`, where they alarm for free unless the run ends there."""
        seen = self.ends < last if last < data.N_STEPS else self.ends <= last
        return Told(self.ends[seen], self.precision[seen], after, [self.size * mu for mu in shifts], last, grid)


def measured(runs: int, seed: int) -> Model:
    """From honest runs, and from runs with mu = 1 after step 100."""
    honest = data.whitened(data.simulate(0.0, 0, runs, seed), data.SYNC_EVERY)
    moved = data.whitened(data.simulate(1.0, 100, runs, seed + 1), data.SYNC_EVERY)
    late = honest.ends > 100
    gaps = moved.values[:, late].mean(axis=1) - honest.values[:, late].mean(axis=1)
    error = float(np.sqrt(gaps.var(axis=0).mean() / runs))
    precision = 1.0 / honest.values.var(axis=0).mean(axis=1)
    return Model(honest.ends, precision, float(np.linalg.norm(gaps.mean(axis=0))), error, moved.values)


def delays(model: Model, grid: float) -> list[dict[str, float]]:
    """Bounds on the delay at mu = 1 after step 100 of rules with few alarms up to step 240, and what their rules do."""
    told, finer = (model.told(100, (1.0,), 260, g) for g in (grid, grid / 2))
    rows = []
    for early in EARLY:
        bound, rule = least_delay(told, early)
        over = told.evidence(model.attacked[:, : len(told.ends)]) > rule.bounds
        took = (
            np.append(told.ends[told.first :], 260)[np.where(over.any(axis=1), over.argmax(axis=1), over.shape[1])]
            - 100
        )
        rows.append(
            {
                "early": early,
                "delay at least": bound,
                "with half the grid": least_delay(finer, early)[0],
                "its rule in runs": float(took.mean()),
                "se": float(took.std() / np.sqrt(len(took))),
            }
        )
    return rows


def best_figures(record: dict[str, Any]) -> dict[tuple[int, float], Array]:
    """By t_0 and mu: the smallest share missed and the shortest delay of any detector; (1, 2).

    Where a rival missed none of N runs a rule is level by two standard errors with 4 / N.
    """
    found = {}
    for label, column in record["columns"].items():
        if label.startswith("mu"):
            mu, after = (float(part.split(" = ")[1]) for part in label.split(", "))
            figures = [entry["figures"] for entry in column.values()]
            missed = max(1.0 - max(f["power"]["mean"] for f in figures), 4 / record["runs"])
            found[int(after), mu] = np.array([[missed, min(f["delay"]["mean"] for f in figures)]])
    return found


def level_of(model: Model, wanted: dict[tuple[int, float], Array], grid: float) -> tuple[float, float]:
    """`least_level` for figures by t_0 and mu."""
    told, figures = [], []
    for after in sorted({after for after, _ in wanted}):
        shifts = sorted(mu for t_0, mu in wanted if t_0 == after)
        told.append(model.told(after, shifts, data.N_STEPS, grid))
        figures.append(np.concatenate([wanted[after, mu] for mu in shifts]))
    return least_level(told, figures)


def name_of(column: tuple[int, float]) -> str:
    """As in the table of rivals."""
    return f"mu = {column[1]:g}, t_0 = {column[0]}"


def levels(model: Model, grid: float) -> dict[str, tuple[float, float]]:
    """For every column, for the pairs of columns, and for all at once."""
    wanted = best_figures(json.loads(RECORD.read_text()))
    columns = sorted(wanted)
    sets = [*combinations(columns, 1), *combinations(columns, 2), tuple(columns)]
    return {
        " and ".join(map(name_of, each)) if len(each) < 3 else "all": level_of(
            model, {c: wanted[c] for c in each}, grid
        )
        for each in track(sets, "columns", transient=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=float, default=0.02, help="of the first table; the second has twice that")
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=3100)
    parser.add_argument("--out", type=Path, default=Path("build/rival_bounds.json"))
    options = parser.parse_args()
    console, model = Console(width=120), measured(options.runs, options.seed)
    console.print(
        f"|theta| at mu = 1: {model.size:.3f} ({model.size_error:.3f}), noise {model.precision.mean() ** -0.5:.3f}"
    )
    first, second = delays(model, options.grid), levels(model, 2 * options.grid)
    table = Table(title="delay at mu = 1, t_0 = 100 of a rule told t_0, by its alarms in honest runs up to step 240")
    for name in first[0]:
        table.add_column(name, justify="right")
    for row in first:
        table.add_row(*(f"{value:.4g}" for value in row.values()))
    console.print(table)
    table = Table("columns whose best figures are reached", "level at least", "reached by mixtures, told t_0")
    pairs = sorted((name for name in second if " and " in name), key=lambda name: -second[name][0])
    for name in [name for name in second if " and " not in name and name != "all"] + pairs[:8] + ["all"]:
        table.add_row(name, *(f"{value:.4f}" for value in second[name]))
    console.print(table)
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"fedgauss": fg.__version__, "numpy": np.__version__},
        "runs": options.runs,
        "seed": options.seed,
        "grid": options.grid,
        "size at mu = 1": [model.size, model.size_error],
        "delay at mu = 1, t_0 = 100": first,
        "least level": second,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    console.print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
