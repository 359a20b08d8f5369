"""A figure with what a page needs to show it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from fedgauss.report import images
from fedgauss.report.output import write_whole

_DPI = 150


@dataclass(frozen=True)
class Drawing:
    """A figure to be shown and saved under `name`."""

    name: str
    figure: Figure
    caption: str
    alt: str
    small: bool = False


def save(drawing: Drawing, folder: Path) -> bytes:
    """Write a drawing as PNG and SVG; give the SVG that a page embeds."""
    svg = images.svg(drawing.figure)
    write_whole(folder / f"{drawing.name}.png", images.png(drawing.figure, dpi=_DPI))
    write_whole(folder / f"{drawing.name}.svg", svg)
    return images.themed_svg(svg)
