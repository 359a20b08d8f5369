"""From federations to rows: run what the store in a folder does not hold yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgauss.coverage.cells import BootstrapCell, CoverageCell
from fedgauss.coverage.federation import Federation
from fedgauss.coverage.lines import Line, lines_of
from fedgauss.sweep.cell import Cell, Row
from fedgauss.sweep.outcome import Summary
from fedgauss.sweep.run import Executor, run_cells
from fedgauss.sweep.store import Store

STORE = "coverage.sqlite"


@dataclass(frozen=True)
class Measured:
    """Rows of every federation in a folder, the lines of the tables they make, and the command that adds to them."""

    rows: list[Row]
    lines: list[Line]
    asked: list[Line]  # those of them that this command asked for
    command: str
    summary: Summary


def measure(
    federations: Sequence[Federation],
    runs: int,
    bootstrap_runs: int,
    seed: int,
    folder: Path,
    workers: int | None,
    command: str,
    executor: Executor | None = None,
) -> Measured:
    """Run the cells of these federations. Those that other commands left in the folder are reported as well."""
    cells: list[Cell] = [CoverageCell(federation, runs, seed) for federation in federations]
    if bootstrap_runs:
        cells += [BootstrapCell(federation, bootstrap_runs, seed=seed) for federation in federations]
    with Store(folder / STORE) as store:
        summary = run_cells(cells, store, workers=workers, executor=executor)
        rows = store.rows(experiment="coverage")
    lines, wanted = lines_of(rows), set(federations)
    return Measured(rows, lines, [line for line in lines if line.federation in wanted], command, summary)
