"""From results to rows: run what the store in a folder does not hold yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgauss.experiments.catalogue import catalogue
from fedgauss.experiments.paper import Result, Scale
from fedgauss.sweep.cell import Row, cell_key
from fedgauss.sweep.outcome import Summary
from fedgauss.sweep.run import Executor, run_cells
from fedgauss.sweep.store import Store

STORE = "results.sqlite"
VERDICTS = "results.json"


@dataclass(frozen=True)
class Measured:
    """Results with their rows, by name, and the command that gives them again."""

    results: tuple[Result, ...]
    scale: Scale
    rows: dict[str, list[Row]]
    command: str
    summary: Summary


def measure(
    results: Sequence[Result],
    scale: Scale,
    folder: Path,
    workers: int | None,
    command: str,
    executor: Executor | None = None,
) -> Measured:
    """Run the cells of these results and read their rows. Cells that an earlier run finished are not run again.

    Other results whose cells are all finished come too, so that results run one by one add up to one report.
    """
    refuse_other_scale(folder, scale)
    asked = {result.name for result in results}
    with Store(folder / STORE) as store:
        cells = [cell for result in results for cell in result.cells(scale)]
        summary = run_cells(cells, store, workers=workers, executor=executor)
        rows: dict[str, list[Row]] = {}
        shown = []
        for result in catalogue().values():
            keys = [cell_key(cell) for cell in result.cells(scale)]
            if result.name in asked or store.finished(keys) == set(keys):
                shown.append(result)
                rows[result.name] = store.rows(keys)
    return Measured(tuple(shown), scale, rows, command, summary)


def refuse_other_scale(folder: Path, scale: Scale) -> None:
    """A folder holds one scale: a report of another would be lost."""
    try:
        held = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))["scale"]
    except (OSError, ValueError, LookupError, TypeError):
        return  # there is no report, or none that could be read
    if held != scale.name:
        raise ValueError(
            f"a folder holds results of one scale; {folder} has a report of scale {held}, and {scale.name} was asked "
            "for. Use another --out."
        )
