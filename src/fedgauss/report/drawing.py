"""Figures in one style, and the files made of them: PNG, SVG, and an SVG that follows a page's light or dark theme.

matplotlib loads with the first figure, so that what only names a drawing starts at once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from fedgauss.report.output import write_whole
from fedgauss.report.page import LIGHT, palette_css

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

P = ParamSpec("P")
T = TypeVar("T")

WIDTH = 4.8  # inches: readable when shrunk to a phone, and not clumsy when stretched to a column of text
STYLE: dict[Any, Any] = {
    "font.family": "STIXGeneral",  # comes with matplotlib
    "mathtext.fontset": "stix",
    "font.size": 11.0,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8.0,
    "axes.labelsize": 11.0,
    "axes.labelcolor": LIGHT["ink"],
    "axes.edgecolor": LIGHT["muted"],
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": LIGHT["paper"],
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.labelcolor": LIGHT["ink"],
    "xtick.labelsize": 10.0,
    "ytick.labelsize": 10.0,
    "legend.frameon": False,
    "legend.fontsize": 10.0,
    "lines.linewidth": 1.4,
    "svg.fonttype": "path",  # the figure looks the same without its fonts
    "svg.hashsalt": "fedgauss",  # the same figure is the same file
}


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


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that draws or saves, so that it uses `STYLE` whatever the caller's settings are."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped


def titled_figure(title: str, height: float, width: float = WIDTH) -> Figure:
    """An empty figure of this size in inches; its title is the sentence that the data support."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
    return figure


def key(label: str, role: str = "ink", **look: Any) -> Line2D:
    """An entry of a legend, in a colour of the palette."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=LIGHT[role], label=label, **look)


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


@styled
def png(figure: Figure, dpi: int = 200) -> bytes:
    """The figure as a PNG."""
    return _saved(figure, "png", dpi=dpi, metadata={"Software": None})


@styled
def svg(figure: Figure) -> bytes:
    """The figure as an SVG in the light palette, without a date, so that the same figure is the same file."""
    return _saved(figure, "svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


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
    write_whole(folder / f"{drawing.name}.png", png(drawing.figure))
    write_whole(folder / f"{drawing.name}.svg", plain)
    return themed_svg(plain)


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    """What `savefig` writes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
