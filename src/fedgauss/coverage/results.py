"""Run the cells that a folder's store does not hold yet, and group its rows by federation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedgauss.coverage.cells import METHODS, BootstrapCell, CoverageCell, CoverageRow
from fedgauss.coverage.federation import Federation
from fedgauss.sweep.cell import Cell
from fedgauss.sweep.run import Executor, Summary, run_cells
from fedgauss.sweep.store import Store

STORE = "coverage.sqlite"
# The fields of a federation in words, in the order in which they are shown: n last.
_WORDS = {
    "family": "{}",
    "offsets": "offsets {}",
    "condition": "condition {}",
    "n_clients": "K = {}",
    "sync_every": "tau = {}",
    "network": "{}",
    "beta": "beta = {}",
    "dim": "d = {}",
    "draw": "draw {}",
    "n_steps": "n = {}",
}


@dataclass(frozen=True)
class FederationResult:
    """A federation with the rows of the methods that were tried there, in the order of `METHODS`."""

    federation: Federation
    rows: dict[str, CoverageRow]

    @property
    def without_n(self) -> tuple[object, ...]:
        """What distinguishes it from others, n aside."""
        return tuple(getattr(self.federation, name) for name in _WORDS if name != "n_steps")


Found = Sequence[FederationResult]


@dataclass(frozen=True)
class CoverageResults:
    """Rows of every federation in a folder, and the command that adds to them."""

    rows: list[CoverageRow]
    by_federation: list[FederationResult]
    requested: list[FederationResult]  # by this command
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
) -> CoverageResults:
    """Run the cells of some federations; those that other commands left in the folder are reported as well.

    Parameters
    ----------
    federations : sequence of Federation
        What to run.
    runs, bootstrap_runs : int
        Runs of each federation, and how many of them the bootstrap is tried on; 0 leaves it out.
    seed : int
        Fixes every random number.
    folder : Path
        Where the store is.
    workers, executor
        Who computes; see `fedgauss.sweep.run.run_cells`.
    command : str
        The command, for the page.
    """
    cells: list[Cell] = [CoverageCell(federation, runs, seed=seed) for federation in federations]
    if bootstrap_runs:
        cells += [BootstrapCell(federation, bootstrap_runs, seed=seed) for federation in federations]
    with Store(folder / STORE) as store:
        summary = run_cells(cells, store, workers=workers, executor=executor)
        rows = store.rows(CoverageRow, experiment="coverage")
    every = by_federation(rows)
    return CoverageResults(rows, every, [one for one in every if one.federation in federations], command, summary)


def by_federation(rows: Sequence[CoverageRow]) -> list[FederationResult]:
    """A result for each federation, sorted; of rows for the same method, the one with the most runs counts."""
    found: dict[Federation, dict[str, CoverageRow]] = {}
    for row in sorted(rows, key=lambda row: row.runs):
        found.setdefault(row.federation, {})[row.method] = row
    results = [FederationResult(f, {m: rows[m] for m in METHODS if m in rows}) for f, rows in found.items()]
    return sorted(results, key=lambda result: (*result.without_n, result.federation.n_steps))


def varying(results: Found) -> list[str]:
    """Fields in which these federations differ; n, where they do not."""
    return [name for name in _WORDS if _differ(results, name)] or ["n_steps"]


def common(results: Found) -> str:
    """What these federations share, in words."""
    shared = [name for name in _WORDS if name != "draw" and not _differ(results, name)]
    return label(results[0].federation, shared)


def label(federation: Federation, names: Sequence[str]) -> str:
    """These fields of a federation, in words."""
    words = _WORDS | {"network": "rho = {}"} if federation.network[0] in "0." else _WORDS
    return ", ".join(words[name].format(shown(federation, name)) for name in names)


def shown(federation: Federation, name: str) -> str:
    """The value of a field, as text."""
    value = getattr(federation, name)
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _differ(results: Found, name: str) -> bool:
    return len({getattr(result.federation, name) for result in results}) > 1
