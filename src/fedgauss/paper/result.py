"""A result of the paper: where it stands, what it claims, its cells, and the section that shows what came out.

Results are run into a folder: what its store does not hold yet is computed, then rows, verdicts, figures and the page
are written.

A result is one module under `results` that ends in `RESULT = ...`. A result of your own may stand in any file:
`fedgauss reproduce my_result.py` runs it.
"""

from __future__ import annotations

import abc
import difflib
import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedgauss import __version__, _checks
from fedgauss._files import write_whole
from fedgauss._progress import Tick
from fedgauss.paper.judging import Outcome, ResultVerdict
from fedgauss.report.output import Drawing, rows_csv, save
from fedgauss.report.text import Table
from fedgauss.sweep.cell import Cell, cell_key
from fedgauss.sweep.run import Executor, Summary, run_cells
from fedgauss.sweep.store import Store

STORE, VERDICTS, PAGE = "results.sqlite", "results.json", "report.html"
_DERIVED = ("mean", "low", "high", "draws", "error", "mean_error")  # of an estimate
_SIMILAR = 0.4  # of difflib's ratio: below that a hint would only puzzle


@dataclass(frozen=True)
class Scale:
    """How much to compute.

    factor    replicates over the paper's, for each draw of the clients
    draws     draws of the clients (beta, sigma) under each reading
    thinned   whether long grids are: each number of clients is a program to compile, which takes a second or two
    fewest    the least number of replicates
    """

    name: str
    factor: float
    draws: int
    thinned: bool = False
    fewest: int = 100

    def grid(self, full: Sequence[int], some: Sequence[int]) -> tuple[int, ...]:
        """The full grid, or some of it."""
        return tuple(some if self.thinned else full)

    def replicates(self, paper: int) -> int:
        """How many runs, where the paper has this many."""
        return max(self.fewest, round(paper * self.factor))


QUICK = Scale("quick", factor=0.4, draws=1, thinned=True, fewest=400)
PAPER = Scale("paper", factor=1.0, draws=4)
LARGE = Scale("large", factor=12.5, draws=8)  # 100 times the paper's runs
SCALES = {scale.name: scale for scale in (QUICK, PAPER, LARGE)}


OtherRows = Mapping[str, Sequence[Any]]  # of every result of a run, by name


@dataclass(frozen=True)
class Section:
    """A result as a reader meets it, on the page and in the terminal.

    verdict   knows its colour; `words` says it in other words, where it has several parts or goes beyond the paper
    summary   one line, for the terminal and for the table at the top of the page
    findings  sentences for the page: what was measured
    drawings  figures, saved under their names
    why       sentences for the page: why that differs from the claim
    outcomes  how printed numbers and ours compare, for results that print any
    """

    result: Result
    verdict: ResultVerdict
    summary: str
    findings: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    tables: tuple[Table, ...]
    why: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    words: str = ""

    @property
    def verdict_words(self) -> str:
        """The verdict as it is written."""
        return self.words or self.verdict.value


@dataclass(frozen=True)
class Result(abc.ABC):
    """A table or figure of the paper, or a result that goes beyond it.

    name     what it is asked for by, and the name of its CSV file
    title    of its section
    where    its place in the paper
    claim    what the paper concludes from it
    cells    the cells it needs at a scale; their rows are of the type `row`
    beyond   whether it goes beyond the paper: it has words of its own for a verdict
    quick    whether a thinned-out run that names nothing includes it
    """

    row: ClassVar[Callable[..., Any]]

    name: str
    title: str
    where: str
    claim: str
    cells: Callable[[Scale], Sequence[Cell]]

    beyond: ClassVar[bool] = False
    quick: ClassVar[bool] = True

    @abc.abstractmethod
    def section(self, rows: Sequence[Any], others: OtherRows) -> Section:
        """What the rows show; `others` are those of all results of the run, by name."""


def catalogue() -> dict[str, Result]:
    """Every result by name: the paper's in its order, then those that go beyond it."""
    from fedgauss.paper import results

    return {name: importlib.import_module(f"{results.__name__}.{name}").RESULT for name in results.ORDER}


def chosen(names: Sequence[str], scale: Scale | None = None) -> list[Result]:
    """The results with these names, in letters of any case, each once and in the paper's order.

    A name that ends in .py is a file of your own, and stands for the results in it. Without names, all of them; at a
    scale that thins out, only those that are quick.
    """
    known = catalogue()
    if not names:
        return [result for result in known.values() if result.quick or scale is None or not scale.thinned]
    files = [name for name in names if name.endswith(".py")]
    asked = {name.lower() for name in names if name not in files}
    for name in sorted(asked - set(known)):
        raise ValueError(
            f"a name must be one of {', '.join(known)}; got {name!r}.{_hint(name, known)} "
            "fedgauss reproduce --list says what each is."
        )
    return [known[name] for name in known if name in asked] + [one for name in files for one in _in_file(Path(name))]


def _in_file(path: Path) -> list[Result]:
    """The results in a file, imported under its own name so that worker processes can import it too."""
    if not path.is_file():
        raise ValueError(f"a result must be a name or a Python file; there is no file {path}.")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.import_module(path.stem)
    found = [value for value in vars(module).values() if isinstance(value, Result)]
    if not found:
        raise ValueError(f"a file of results must hold a Result; {path} holds none. Add RESULT = ... to it.")
    return found


def _hint(name: str, known: Mapping[str, Result]) -> str:
    """Spaces for commas; or the first name that begins like this one, or else one that is similar, if there is any."""
    if "," in name:
        return f" Put spaces between names: {' '.join(name.replace(',', ' ').split())}."
    near = [other for other in known if other.startswith(name)] or difflib.get_close_matches(name, known, 1, _SIMILAR)
    return f" Did you mean {near[0]}?" if near else ""


def scale_named(name: str) -> Scale:
    """The scale with this name, in letters of any case."""
    return SCALES[_checks.one_of("scale", name.lower(), SCALES)]


# --- from results to a folder ---


@dataclass(frozen=True)
class Reproduction:
    """Results with their rows, by name, and the command that gives them again."""

    results: tuple[Result, ...]
    scale: Scale
    rows: dict[str, list[Any]]
    command: str
    summary: Summary


def measure(
    results: Sequence[Result],
    scale: Scale,
    folder: Path,
    workers: int | None,
    command: str,
    executor: Executor | None = None,
) -> Reproduction:
    """Run the cells of these results and read their rows. Cells that an earlier run finished are not run again.

    Other results whose cells are all finished come too, so that results run one by one add up to one report.
    """
    refuse_other_scale(folder, scale)
    keys = {result.name: [cell_key(cell) for cell in result.cells(scale)] for result in results}
    with Store(folder / STORE) as store:
        cells = [cell for result in results for cell in result.cells(scale)]
        summary = run_cells(cells, store, workers=workers, executor=executor, on_tick=_load_drawing)
        shown = {result.name: result for result in results}
        if len(store) > len(cells):
            for name, other in catalogue().items():
                keys.setdefault(name, [cell_key(cell) for cell in other.cells(scale)])
                if store.finished(keys[name]) == set(keys[name]):
                    shown[name] = other
        order = [name for name in (*catalogue(), *shown) if name in shown]
        rows = {name: store.rows(shown[name].row, keys[name]) for name in dict.fromkeys(order)}
    return Reproduction(tuple(shown[name] for name in rows), scale, rows, command, summary)


def _load_drawing(_: Summary) -> None:
    """Import what figures need while workers are still starting, rather than after the last cell."""
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401 - `savefig` would import both


def refuse_other_scale(folder: Path, scale: Scale) -> None:
    """A folder holds one scale: a report of another would be lost."""
    try:
        held = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))["scale"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return  # there is no report, or none that could be read
    if held != scale.name:
        raise ValueError(
            f"a folder holds results of one scale; {folder} has a report of scale {held}, and {scale.name} was asked "
            "for. Use another --out."
        )


def write_reproduction(
    found: Reproduction, folder: Path, tick: Tick = lambda what, done, total: None
) -> tuple[list[Section], Path]:
    """Write rows first, then verdicts, each figure, and last the page; give the sections and the page's place."""
    from fedgauss.paper.page import reproduction_page, start_shown

    for name, rows in found.rows.items():
        write_whole(folder / f"{name}.csv", rows_csv(rows), public=True)
    total = len(found.results) + 1
    sections: list[Section] = []
    images: dict[str, bytes] = {}
    for done, result in enumerate(found.results):
        tick("drawing", done, total)
        sections.append(result.section(found.rows[result.name], found.rows))
        images |= {drawing.name: save(drawing, folder) for drawing in sections[-1].drawings}
    write_whole(folder / VERDICTS, verdicts_json(found, sections), public=True)
    tick("drawing", total - 1, total)
    start = start_shown(sections)
    if start is not None:
        images[start[0].name] = save(start[0], folder)
    write_whole(folder / PAGE, reproduction_page(found, sections, start, images).html().encode(), public=True)
    tick("drawing", total, total)
    return sections, folder / PAGE


def verdicts_json(found: Reproduction, sections: Sequence[Section]) -> bytes:
    """Verdicts and findings of every result, with every point of those that the paper prints numbers for."""
    listed = [
        {
            "name": s.result.name,
            "title": s.result.title,
            "where": s.result.where,
            "claim": s.result.claim,
            "verdict": s.verdict_words,
            "summary": s.summary,
            "findings": s.findings,
            "parts": [_part(outcome) for outcome in s.outcomes],
            "tables": [asdict(table) for table in s.tables],
        }
        for s in sections
    ]
    document = {"fedgauss": __version__, "scale": found.scale.name, "command": found.command, "results": listed}
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _part(outcome: Outcome) -> dict[str, Any]:
    part = outcome.part
    points = [
        {
            "panel": None if panel.only is None else f"{panel.only[0]}={panel.only[1]:g}",
            panel.by: point.series,
            panel.across: point.x,
            "printed": point.printed,
            "ours": {
                reading: asdict(ours)
                | {name: getattr(ours, name) for name in _DERIVED}
                | {"agrees": ours.agrees(point.printed, part.runs)}
                for reading, ours in point.ours.items()
            },
        }
        for panel, of_panel in zip(part.panels, outcome.points, strict=True)
        for point in of_panel
    ]
    return {
        "part": part.name,
        "verdict": outcome.verdict.value,
        "reading": outcome.reading,
        "printed_points": outcome.n_printed,
        "agreements": [asdict(agreement) for agreement in outcome.agreements],
        "points": points,
    }
