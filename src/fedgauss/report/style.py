"""How figures look: one set of defaults, in the palette's light values."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl

from fedgauss.report.palette import LIGHT

P = ParamSpec("P")
T = TypeVar("T")

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
