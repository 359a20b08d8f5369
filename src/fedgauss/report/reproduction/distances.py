"""Sections of results that are distances to a normal law: Figures 1, 2 and 4 and three tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.paper import Result
from fedgauss.experiments.trends import exponent
from fedgauss.experiments.verdicts import Point, outcomes
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction import findings, tables
from fedgauss.report.reproduction.pictures import Column, comparison_figure
from fedgauss.report.reproduction.section import Section
from fedgauss.report.reproduction.words import SHORT
from fedgauss.report.words import listed, number, with_error
from fedgauss.sweep.cell import Row


def distance_section(result: Result, rows: list[Row], others: Mapping[str, list[Row]]) -> Section:
    """What a distance result shows; `others` are the rows of further results, to compare with."""
    found = outcomes(result.name, rows)
    panels = [(p, points) for outcome in found for p, points in zip(outcome.panels, outcome.points, strict=True)]
    moving = [(panel, findings.trends(panel, points)) for panel, points in panels]
    sentences = [text for outcome in found for text in findings.agreement(outcome)]
    sentences += [findings.trend_sentence(panel, one) for panel, one in moving if one]
    if result.name == "synchronisation":
        sentences.append(_rate(*panels[0], moving[0][1]))
    if result.name == "figure4":
        sentences += findings.against_gamma_1(rows, others.get("figure1_left", []))
    sentences.append(findings.floor_sentence(panels[0][1]))
    symbol = r"$d_c^\dagger$" if result.name == "figure2_phase" else r"$\tilde{d}_c$"
    title = findings.title(moving)
    drawing = Drawing(
        result.name,
        comparison_figure(title, [Column(panel, points) for panel, points in panels], symbol),
        "Filled marks and full lines: measured, the mean over draws of the clients with two Monte-Carlo errors to "
        "either side; a coloured band is the range over draws. Open marks and dashed lines: printed, the same in "
        "every row. The grey band is what a normal law would show at this many runs. Each row has its own scale.",
        f"Line charts of the distance, a row for each reading, with the printed curves in each. {title}.",
    )
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        findings.verdict_words(found),
        findings.summary(found, [(panel, one) for panel, one in moving if one]),
        tuple(sentences),
        (drawing,),
        (
            *(tables.trend_table(panel, one) for panel, one in moving if one),
            *(tables.point_table(panel, points, "Distance") for panel, points in panels),
        ),
        tuple(text for outcome in found for text in EXPLANATIONS[outcome.part].why),
        tuple(found),
    )


def _rate(panel: Panel, points: Sequence[Point], readings: Iterable[str | None]) -> str:
    """The claimed sqrt(tau) beside fitted exponents."""
    fits = [(reading, exponent(panel, points, reading)) for reading in readings]
    each = [
        f"{number(slope, 2)} printed" if reading is None else f"{with_error(slope, error, 2)} {SHORT[reading]}"
        for reading, (slope, error) in fits
    ]
    return f"The claimed rate $√τ$ is an exponent of 0.5; fitted on logarithmic scales it is {listed(each)}."
