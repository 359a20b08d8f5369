"""From results to rows: run what the store in a folder does not hold yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgauss.experiments.cell import Row, cell_key
from fedgauss.experiments.outcome import Summary
from fedgauss.experiments.paper import Result, Scale
from fedgauss.experiments.runner import run_cells
from fedgauss.experiments.store import Store

STORE = "results.sqlite"


@dataclass(frozen=True)
class Measured:
    """Results with their rows, by name, and the command that gives them again."""

    results: tuple[Result, ...]
    scale: Scale
    rows: dict[str, list[Row]]
    command: str
    summary: Summary


def measure(results: Sequence[Result], scale: Scale, folder: Path, workers: int | None, command: str) -> Measured:
    """Run the cells of these results and read their rows. Cells that an earlier run finished are not run again."""
    cells = {result.name: result.cells(scale) for result in results}
    with Store(folder / STORE) as store:
        summary = run_cells([cell for own in cells.values() for cell in own], store, workers=workers)
        rows = {name: store.rows([cell_key(cell) for cell in own]) for name, own in cells.items()}
    return Measured(tuple(results), scale, rows, command, summary)
