"""Meta-analyses one below the other: as text, in HTML and as a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgauss._shown import html_table
from fedgauss.inference.coefficient_table import number, pandas_frame
from fedgauss.inference.meta import MetaAnalysis

_HEADS = ("fixed", "random", "[low", "high]", "tau2", "I2", "P(Q)")
_COLUMNS = (10, 10, 10, 10, 10, 8, 8)  # characters: with names of 12 the width of a summary


def _cells(found: MetaAnalysis) -> list[str]:
    """What a table says of a meta-analysis."""
    mean = found.random
    parts = (found.fixed.estimate, mean.estimate, mean.low, mean.high, found.tau2)
    mark = "" if found.tau2_method == "REML" else "*"
    return [*map(_short, parts), f"{100 * found.i2:.1f} %", f"{found.q.p_value:.3f}{mark}"]


def _short(value: float) -> str:
    """A number that leaves a space before it in its column: a small negative one has a digit less."""
    text = number(value).strip()
    return text if len(text) < _COLUMNS[0] else f"{value:.2e}"


def _footnotes(rows: Mapping[str, MetaAnalysis]) -> list[str]:
    by_moments = any(found.tau2_method != "REML" for found in rows.values())
    return ["* REML did not converge: tau2 by DerSimonian and Laird"] if by_moments else []


def meta_lines(title: str, corner: str, rows: Mapping[str, MetaAnalysis]) -> list[str]:
    """A meta-analysis a line."""
    first = max([12, len(corner), *map(len, rows)])
    rule = "-" * (first + sum(_COLUMNS))
    table = {corner: list(_HEADS), **{label: _cells(found) for label, found in rows.items()}}
    lines = [
        label.ljust(first) + "".join(cell.rjust(width) for cell, width in zip(cells, _COLUMNS, strict=True))
        for label, cells in table.items()
    ]
    return [title, rule, *lines, rule, *_footnotes(rows)]


def meta_html(title: str, rows: Mapping[str, MetaAnalysis]) -> str:
    """The same as a table in HTML."""
    notes = "".join(f"<p>{note}</p>" for note in _footnotes(rows))
    return html_table(["", *_HEADS], ([label, *_cells(found)] for label, found in rows.items()), title) + notes


def _row(found: MetaAnalysis) -> dict[str, float]:
    """A row of a frame."""
    low, high = found.prediction or (np.nan, np.nan)
    return {
        "estimate": found.random.estimate, "std_error": found.random.std_error, "low": found.random.low,
        "high": found.random.high, "prediction_low": low, "prediction_high": high, "fixed": found.fixed.estimate,
        "fixed_std_error": found.fixed.std_error, "tau2": found.tau2, "i2": found.i2, "q": found.q.statistic,
        "q_p": found.q.p_value, "sites": len(found.sites),
    }  # fmt: skip


def meta_frame(rows: Mapping[str, MetaAnalysis]) -> Any:
    """A meta-analysis a row; estimate, std_error, low and high are of random effects."""
    cells = [_row(found) for found in rows.values()]
    keys = list(cells[0]) if cells else []
    return pandas_frame({key: [row[key] for row in cells] for key in keys}, list(rows))
