"""From results to a folder: run what its store does not hold yet, then write rows, verdicts, figures and the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedgauss import __version__
from fedgauss._progress import Tick
from fedgauss.paper.judging import Estimate, Outcome
from fedgauss.paper.result import Result, Scale, Section, catalogue
from fedgauss.sweep.cell import cell_key
from fedgauss.sweep.run import Executor, Summary, run_cells
from fedgauss.sweep.store import Store

STORE, VERDICTS, PAGE = "results.sqlite", "results.json", "report.html"


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
        summary = run_cells(cells, store, workers=workers, executor=executor)
        shown = {result.name: result for result in results}
        if len(store) > len(cells):
            for name, other in catalogue().items():
                keys.setdefault(name, [cell_key(cell) for cell in other.cells(scale)])
                if store.finished(keys[name]) == set(keys[name]):
                    shown[name] = other
        order = [name for name in (*catalogue(), *shown) if name in shown]
        rows = {name: store.rows(shown[name].row, keys[name]) for name in dict.fromkeys(order)}
    return Reproduction(tuple(shown[name] for name in rows), scale, rows, command, summary)


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


def write_reproduction(
    found: Reproduction, folder: Path, tick: Tick = lambda what, done, total: None
) -> tuple[list[Section], Path]:
    """Write rows first, then verdicts, each figure, and last the page; give the sections and the page's place."""
    from fedgauss.paper.page import reproduction_page
    from fedgauss.report.drawing import save
    from fedgauss.report.output import rows_csv, write_whole

    for name, rows in found.rows.items():
        write_whole(folder / f"{name}.csv", rows_csv(rows))
    total = len(found.results) + 1
    sections: list[Section] = []
    images: dict[str, bytes] = {}
    for done, result in enumerate(found.results):
        tick("drawing", done, total)
        sections.append(result.section(found.rows[result.name], found.rows))
        images |= {drawing.name: save(drawing, folder) for drawing in sections[-1].drawings}
    write_whole(folder / VERDICTS, verdicts_json(found, sections))
    tick("drawing", total - 1, total)
    start = _start(sections)
    if start is not None:
        images[start[0].name] = save(start[0], folder)
    write_whole(folder / PAGE, reproduction_page(found, sections, start, images).html().encode())
    tick("drawing", total, total)
    return sections, folder / PAGE


def _start(sections: Sequence[Section]) -> tuple[Any, list[str]] | None:
    """What the start does to distances, as a drawing and in words, where there are at least two to set side by side."""
    if sum(len(section.outcomes) for section in sections) < 2:
        return None
    from fedgauss.paper.start import distance_outcomes, start_drawing, start_sentences

    outcomes = distance_outcomes(sections)
    return (start_drawing(outcomes), start_sentences(outcomes)) if len(outcomes) > 1 else None


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
                reading: _numbers(ours) | {"agrees": ours.agrees(point.printed, part.runs)}
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


def _numbers(ours: Estimate) -> dict[str, Any]:
    """Values by draw, and what is derived from them."""
    names = ("mean", "low", "high", "draws", "error", "mean_error")
    return asdict(ours) | {name: getattr(ours, name) for name in names}
