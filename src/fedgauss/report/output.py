"""What results leave in a folder: rows as CSV, and figures in one style as PNG, SVG, and an SVG that follows a theme.

matplotlib loads with the first figure, so that what only names a drawing starts at once.
"""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedgauss._figures import LIGHT, WIDTH, png, svg
from fedgauss._files import write_whole
from fedgauss.report.page import palette_css
from fedgauss.sweep.cell import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

_LEFT, _RIGHT, _GAP = 0.62, 0.12, 0.22  # inches beside and between panels
_LABEL, _LINE = 0.50, 0.21  # below the last row, a line of text


@dataclass(frozen=True)
class Drawing:
    """A figure with what a page needs to show it.

    Parameters
    ----------
    name : str
        The name of its files, without a suffix.
    figure : matplotlib.figure.Figure
        The figure.
    caption : str
        The text below it.
    alt : str
        The text that stands for it where it cannot be seen.
    small : bool
        Whether a page shows it in a narrower column.
    """

    name: str
    figure: Figure
    caption: str
    alt: str
    small: bool = False


def key(label: str, role: str = "ink", **look: Any) -> Line2D:
    """An entry of a legend, in a colour of the palette."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=LIGHT[role], label=label, **look)


def area(label: str, role: str, **look: Any) -> Patch:
    """An entry of a legend for a filled area."""
    from matplotlib.patches import Patch

    return Patch(color=LIGHT[role], label=label, **look)


def few_ticks(axis: Any, most: int = 6) -> None:
    """Ticks at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))


def log_ticks(axes: Any, which: Literal["x", "y"], marks: Sequence[float], write: str = "g") -> None:
    """A logarithmic axis with ticks at these marks only, written in this format."""
    from matplotlib.ticker import NullLocator

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_ticks(marks, labels=[format(mark, write) for mark in marks])
    axis.set_minor_locator(NullLocator())


def named_rows(axes: Any, names: Sequence[str]) -> None:
    """A line across the axes for each name, the first on top: that of names[i] is at len(names) - 1 - i."""
    for row in range(len(names)):
        axes.axhline(row, color=LIGHT["faint"], lw=0.7, zorder=0)
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set(ylim=(-0.6, len(names) - 0.4))


def stacked(
    title: str,
    rows: int,
    legend: Sequence[Any],
    height: float,
    head: float = 0.06,
    left: float = _LEFT,
    columns: int = 3,
) -> tuple[Figure, Any]:
    """Panels above each other; `columns` is how many entries of the legend stand in a line."""
    return _framed(title, (rows, 1), legend, height, head, left, 0.32, columns)


def grid(
    title: str,
    rows: int,
    columns: int,
    legend: Sequence[Any],
    height: float,
    head: float = 0.30,
    left: float = _LEFT,
) -> tuple[Figure, Any]:
    """Panels in rows and columns, which share their axes."""
    per_line = 3 if len(legend) != 4 else 2
    return _framed(title, (rows, columns), legend, height, head, left, 0.06, per_line, sharex="col", sharey="row")


def _framed(
    title: str,
    shape: tuple[int, int],
    legend: Sequence[Any],
    height: float,
    head: float,
    left: float,
    between: float,
    per_line: int,
    **shared: Any,
) -> tuple[Figure, Any]:
    """Panels of this height in inches with a heading above each, under a title and over a legend.

    The layout is given in inches, because finding one that fits takes longer than drawing.
    """
    from matplotlib.figure import Figure

    rows, columns = shape
    lines = textwrap.wrap(title, 68)
    top, bottom = 0.10 + _LINE * len(lines), _LABEL + _LINE * -(-len(legend) // per_line)
    total = top + rows * (head + height) + bottom + (rows - 1) * between
    figure = Figure(figsize=(WIDTH, total))
    panels = figure.subplots(
        rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": left / WIDTH,
            "right": 1.0 - _RIGHT / WIDTH,
            "top": 1.0 - (top + head) / total,
            "bottom": bottom / total,
            "wspace": _GAP * columns / (WIDTH - left - _RIGHT - _GAP * (columns - 1)),
            "hspace": (head + between) / height,
        },
        **shared,
    )
    figure.text(0.01, 1.0 - 0.06 / total, "\n".join(lines), va="top", fontsize=11.5, linespacing=1.2)
    figure.legend(
        handles=legend, loc="lower center", ncols=per_line, handlelength=1.8, columnspacing=1.2, borderaxespad=0.15
    )
    return figure, panels


def themed_svg(plain: bytes) -> bytes:
    """An SVG for an HTML page: each colour of the palette follows the reader's preference for light or dark."""
    text = plain.decode()
    text = text[text.index("<svg") :]  # without the document type, which names an outside address
    for role, colour in LIGHT.items():
        text = text.replace(colour, f"var(--{role})")
    end = text.index(">") + 1
    return f"{text[:end]}<style>{palette_css()}</style>{text[end:]}".encode()


def save(drawing: Drawing, folder: Path) -> bytes:
    """Write a drawing to a folder as PNG and SVG.

    Returns
    -------
    bytes
        The SVG that a page embeds.
    """
    plain = svg(drawing.figure)
    write_whole(folder / f"{drawing.name}.png", png(drawing.figure), public=True)
    write_whole(folder / f"{drawing.name}.svg", plain, public=True)
    return themed_svg(plain)


def rows_csv(rows: Sequence[Row]) -> bytes:
    """Rows as CSV, under the names of their fields.

    Parameters
    ----------
    rows : sequence of dataclasses
        They may be of several kinds. None, and a field that a row does not have, is left empty.

    Returns
    -------
    bytes
        The file. Columns stand in the order in which the rows first have them; those that are None in every row are
        left out.
    """
    # Columns in which some row has a value.
    held = {name for row in rows for name, value in vars(row).items() if value is not None}
    names = [name for name in dict.fromkeys(name for row in rows for name in vars(row)) if name in held]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(row) for row in rows)
    return text.getvalue().encode()
