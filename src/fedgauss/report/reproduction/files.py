"""Everything a reproduction leaves in its folder: rows, verdicts, figures and the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedgauss import __version__
from fedgauss.experiments.verdicts import Estimate, Outcome, paper_runs
from fedgauss.report.drawing import save
from fedgauss.report.output import rows_csv, write_whole
from fedgauss.report.reproduction.section import Section
from fedgauss.report.reproduction.sections import section
from fedgauss.report.reproduction.start import distance_outcomes, start_drawing, worth_showing
from fedgauss.report.reproduction.story import reproduction_page
from fedgauss.report.reproduction.sweep import VERDICTS, Measured

Tick = Callable[[str, int, int], None]
PAGE = "report.html"


def write_reproduction(
    measured: Measured, folder: Path, tick: Tick = lambda what, done, total: None
) -> tuple[list[Section], Path]:
    """Write rows first, then verdicts, each figure, and last the page; give the sections and the page's place."""
    for name, rows in measured.rows.items():
        write_whole(folder / f"{name}.csv", rows_csv(rows))
    total = len(measured.results) + 1
    sections: list[Section] = []
    embedded: dict[str, bytes] = {}
    for done, result in enumerate(measured.results):
        tick("drawing", done, total)
        sections.append(section(result, measured.rows[result.name], measured.rows))
        for drawing in sections[-1].drawings:
            embedded[drawing.name] = save(drawing, folder)
    write_whole(folder / VERDICTS, verdicts_json(measured, sections))
    tick("drawing", total - 1, total)
    start = start_drawing(distance_outcomes(sections)) if worth_showing(measured.results) else None
    if start is not None:
        embedded[start.name] = save(start, folder)
    write_whole(folder / PAGE, reproduction_page(measured, sections, start, embedded).html().encode())
    tick("drawing", total, total)
    return sections, folder / PAGE


def verdicts_json(measured: Measured, sections: Sequence[Section]) -> bytes:
    """Verdicts and findings of every result, with every point of those that the paper prints numbers for."""
    listed = [
        {
            "name": s.name,
            "title": s.title,
            "where": s.where,
            "claim": s.claim,
            "verdict": s.verdict,
            "summary": s.summary,
            "findings": s.findings,
            "parts": [_part(outcome) for outcome in s.outcomes],
            "tables": [asdict(table) for table in s.tables],
        }
        for s in sections
    ]
    whole = {"fedgauss": __version__, "scale": measured.scale.name, "command": measured.command, "results": listed}
    return (json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _part(outcome: Outcome) -> dict[str, Any]:
    points = [
        {
            "panel": None if panel.only is None else "=".join(panel.only),
            panel.by: point.series,
            panel.across: point.x,
            "printed": point.printed,
            "ours": {
                reading: _numbers(ours)
                | {"agrees": point.printed is not None and ours.agrees(point.printed, paper_runs(outcome.part))}
                for reading, ours in point.ours.items()
            },
        }
        for panel, of_panel in zip(outcome.panels, outcome.points, strict=True)
        for point in of_panel
    ]
    return {
        "part": outcome.part,
        "verdict": outcome.verdict,
        "reading": outcome.reading,
        "printed_points": outcome.n_printed,
        "agreements": [asdict(agreement) for agreement in outcome.agreements],
        "points": points,
    }


def _numbers(ours: Estimate) -> dict[str, Any]:
    """Values by draw, and what is derived from them."""
    names = ("mean", "low", "high", "draws", "error", "mean_error")
    return asdict(ours) | {name: getattr(ours, name) for name in names}
