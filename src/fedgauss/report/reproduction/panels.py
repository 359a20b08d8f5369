"""Panels above each other under a title and over a legend. The layout is given in inches, as in `pictures`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from fedgauss.report.drawing import WIDTH

_LINE = 0.21  # of text


def stacked(
    title: str,
    rows: int,
    legend: Sequence[Any],
    height: float,
    head: float = 0.06,
    left: float = 0.62,
    columns: int = 3,
) -> tuple[Figure, Any]:
    """A figure, and its panels as a column of a grid: each of this height, with room of `head` for a heading above.

    `columns` is how many entries of the legend stand in a line.
    """
    lines = textwrap.wrap(title, 66)
    top, bottom = 0.12 + _LINE * len(lines), 0.52 + _LINE * -(-len(legend) // columns)
    between = 0.32
    total = top + rows * (head + height) + (rows - 1) * between + bottom
    figure = Figure(figsize=(WIDTH, total))
    grid = figure.subplots(
        rows,
        1,
        squeeze=False,
        gridspec_kw={
            "left": left / WIDTH,
            "right": 1.0 - 0.15 / WIDTH,
            "top": 1.0 - (top + head) / total,
            "bottom": bottom / total,
            "hspace": (head + between) / height,
        },
    )
    figure.text(0.01, 1.0 - 0.06 / total, "\n".join(lines), va="top", fontsize=11.5, linespacing=1.2)
    figure.legend(
        handles=legend, loc="lower center", ncols=columns, handlelength=1.8, columnspacing=1.2, borderaxespad=0.15
    )
    return figure, grid
