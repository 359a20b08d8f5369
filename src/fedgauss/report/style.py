"""How figures look: one palette, with a light and a dark value for each role, and one set of defaults."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl

P = ParamSpec("P")
T = TypeVar("T")

# Figures are drawn in the light values. A page turns each into a variable, so every value occurs once.
LIGHT = {
    "paper": "#fdfcfa",
    "ink": "#22262e",
    "muted": "#6b6f76",
    "faint": "#d9d7d1",
    "simulated": "#7d8794",
    "exact": "#1f5c99",
    "finite": "#3f7f5f",
    "limit": "#b4502f",
}
DARK = {
    "paper": "#16191f",
    "ink": "#e6e3dc",
    "muted": "#a0a4ab",
    "faint": "#3a3e46",
    "simulated": "#8f98a5",
    "exact": "#86b6e6",
    "finite": "#84c3a1",
    "limit": "#ea9a78",
}

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
    """`draw` under this style, whatever the caller's settings are."""

    @wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return wrapped
