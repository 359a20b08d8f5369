"""A figure with what a page needs to show it."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure to be shown and saved under `name`."""

    name: str
    figure: Figure
    caption: str
    alt: str
    small: bool = False
