"""The section of Figure 3, QQ plots of U_n: no printed numbers, so the claim itself is judged."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.cells import APPROXIMATIONS
from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.gaps import (
    QuantileCurve,
    clt_verdict,
    orders,
    quantile_curves,
    trimmed_points,
)
from fedgauss.experiments.paper import Result
from fedgauss.experiments.verdicts import OPTIMUM, READINGS, Point
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction.order import order_sentences
from fedgauss.report.reproduction.pictures import quantile_figure
from fedgauss.report.reproduction.section import Section
from fedgauss.report.reproduction.words import SHORT, errors_shown, over_draws
from fedgauss.report.table import Table
from fedgauss.report.words import listed
from fedgauss.sweep.cell import Row


def quantile_section(result: Result, rows: list[Row]) -> Section:
    """How far quantiles are apart, and which approximation is the worst."""
    curves, trimmed = quantile_curves(rows), trimmed_points(rows)
    ranked = orders(trimmed)
    verdict, reading = clt_verdict(ranked)
    order = "that Aggr-GA comes before Client-GA cannot be, for they have one law"
    words: str = verdict
    if reading is None:
        summary = f"The functional CLT is not clearly the worst under any reading; {order}."
    else:
        words = "reproduced in part" + (" as coded" if verdict == "reproduced as coded" else "")
        summary = f"That the functional CLT is worst is reproduced ({reading}); {order}."
    readings = [r for r in READINGS if any(curve.reading == r for curve in curves)]
    title = _title(OPTIMUM if OPTIMUM in readings else readings[0], curves)
    drawing = Drawing(
        result.name,
        quantile_figure(title, curves),
        "Quantiles of the three approximations at levels 2 to 98 % against those of $U_n$, all over the median of "
        "$U_n$. On the dashed line they agree.",
        f"A grid of QQ plots, a row for each reading and a column for each number of clients. {title}.",
    )
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        words,
        summary,
        (*(_within(r, curves) for r in readings), *order_sentences(ranked)),
        (drawing,),
        (_gap_table(readings, curves), _trimmed_table(readings, trimmed)),
        EXPLANATIONS[result.name].why,
    )


def _gap(reading: str, name: str, curves: Sequence[QuantileCurve], n_clients: int | None = None) -> str:
    """The largest gap at levels 10 to 95 %, over all K or at one, in per cent."""
    own = [c for c in curves if (c.reading, c.approximation) == (reading, name) and n_clients in (None, c.n_clients)]
    return f"{100 * max(curve.gap for curve in own):.0f} %"


def _title(reading: str, curves: Sequence[QuantileCurve]) -> str:
    aggr, client, clt = (_gap(reading, name, curves) for name in APPROXIMATIONS)
    return (
        f"{SHORT[reading].capitalize()}, quantiles are within {aggr} (Aggr-GA), {client} (Client-GA) and {clt} (f-CLT) "
        "of those of $U_n$"
    )


def _within(reading: str, curves: Sequence[QuantileCurve]) -> str:
    each = [f"{_gap(reading, name, curves)} ({name})" for name in APPROXIMATIONS]
    return (
        f"{SHORT[reading].capitalize()}, quantiles at levels 10 to 95 % lie within {listed(each)} of those of $U_n$, "
        "over all $K$."
    )


def _gap_table(readings: Sequence[str], curves: Sequence[QuantileCurve]) -> Table:
    sizes = sorted({curve.n_clients for curve in curves})
    return Table(
        ("setting", *APPROXIMATIONS),
        tuple(
            (f"{SHORT[r]}, $K$ = {size}", *(_gap(r, name, curves, size) for name in APPROXIMATIONS))
            for r in readings
            for size in sizes
        ),
        "The largest relative difference between quantiles of an approximation and of $U_n$, at levels 10 to 95 %",
    )


def _trimmed_table(readings: Sequence[str], points: Sequence[Point]) -> Table:
    by_place = {(point.series, point.x): point for point in points}
    sizes = sorted({point.x for point in points})
    rows = []
    for reading in readings:
        for size in sizes:
            ours = [by_place[name, size].ours[reading] for name in APPROXIMATIONS]
            rows.append((f"{SHORT[reading]}, $K$ = {size:g}", *(over_draws(q, 2) for q in ours)))
    shown = [estimate for point in points for estimate in point.ours.values()]
    return Table(("setting", *APPROXIMATIONS), tuple(rows), f"$Q$ over levels 5 to 95 % ({errors_shown(shown)})")
