"""One style for every figure: the palette, the settings, an empty figure under a title, and its files.

It stands low, so that a result can draw itself; matplotlib loads with the first figure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from io import BytesIO
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")

WIDTH = 4.8  # inches: readable when shrunk to a phone, and not clumsy when stretched to a column of text
_DPI = 120.0  # of a figure in a notebook that has no settings of its own
_ROLES = {  # in light, in dark
    "paper": ("#fdfcfa", "#16191f"),
    "ink": ("#22262e", "#e6e3dc"),
    "muted": ("#6b6f76", "#a0a4ab"),
    "faint": ("#d9d7d1", "#3a3e46"),
    "simulated": ("#7d8794", "#8f98a5"),
    "exact": ("#1f5c99", "#86b6e6"),
    "finite": ("#3f7f5f", "#84c3a1"),
    "limit": ("#b4502f", "#ea9a78"),
}
# Figures are drawn in the light values. A page turns each into a variable, so every value occurs once.
LIGHT = {role: light for role, (light, _) in _ROLES.items()}
DARK = {role: dark for role, (_, dark) in _ROLES.items()}
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
    figure = _shown_figure()(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
    return figure


@cache
def _shown_figure() -> type[Figure]:
    """A figure that a notebook shows even where pyplot, which would teach it to, was never imported."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        """A figure, and its picture for a notebook."""

        def _repr_png_(self) -> bytes:
            picture = BytesIO()
            self.savefig(picture, format="png", dpi=_DPI)
            return picture.getvalue()

    return ShownFigure


def titled_axes(title: str, height: float, width: float = WIDTH) -> tuple[Figure, Any]:
    """The same with one panel."""
    figure = titled_figure(title, height, width)
    return figure, figure.subplots()


@styled
def png(figure: Figure, dpi: int = 200) -> bytes:
    """The figure as a PNG."""
    return _saved(figure, "png", dpi=dpi, metadata={"Software": None})


@styled
def svg(figure: Figure) -> bytes:
    """The figure as an SVG in the light palette, without a date, so that the same figure is the same file."""
    return _saved(figure, "svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    """What `savefig` writes."""
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
