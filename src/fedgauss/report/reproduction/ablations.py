"""Sections of the two tables of quantile gaps Q, over tau and over gamma."""

from __future__ import annotations

from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.gaps import orders
from fedgauss.experiments.layouts import panels
from fedgauss.experiments.paper import Result
from fedgauss.experiments.verdicts import outcomes, points_of
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction import findings, tables
from fedgauss.report.reproduction.order import order_sentences
from fedgauss.report.reproduction.pictures import Column, comparison_figure
from fedgauss.report.reproduction.section import Section
from fedgauss.sweep.cell import Row


def ablation_section(result: Result, rows: list[Row]) -> Section:
    """Printed Q beside ours, and Q trimmed to levels 5 to 95 %, which chance moves less."""
    found, (panel,) = outcomes(result.name, rows), panels(result.name)
    whole, trimmed = points_of(panel, rows, "Q"), points_of(panel, rows, "Q trimmed")
    moving = findings.trends(panel, trimmed)
    title = findings.title([(panel, moving)], "trimmed $Q$")
    sentences = [
        *findings.agreement(found[0]),
        "What follows is for $Q$ trimmed to levels 5 to 95 %, which chance moves less, averaged over approximations. "
        + findings.trend_sentence(panel, moving),
        *order_sentences(orders(trimmed)),
    ]
    drawing = Drawing(
        result.name,
        comparison_figure(title, [Column(panel, whole, "all levels"), Column(panel, trimmed, "5 to 95 %")], "$Q$"),
        "Left: $Q$ over all levels with two Monte-Carlo errors of the mean to either side (filled), beside the "
        "printed numbers (open, dashed). Right: the same with the maximum taken over levels 5 to 95 %, for which "
        "nothing is printed.",
        f"Line charts of quantile gaps, a row for each reading. {title}.",
    )
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        findings.verdict_words(found),
        findings.summary(found, [(panel, moving)]),
        tuple(sentences),
        (drawing,),
        (
            tables.trend_table(panel, moving),
            tables.point_table(panel, whole, "$Q$ over all levels"),
            tables.point_table(panel, trimmed, "$Q$ over levels 5 to 95 %"),
        ),
        EXPLANATIONS[result.name].why,
        tuple(found),
    )
