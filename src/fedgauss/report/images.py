"""Figures as files: PNG, SVG, and an SVG that follows the reader's light or dark theme."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.figure import Figure

from fedgauss.report.palette import DARK, LIGHT
from fedgauss.report.style import styled


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
    light, dark = (";".join(f"--{role}:{colour}" for role, colour in palette.items()) for palette in (LIGHT, DARK))
    rule = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    end = text.index(">") + 1
    return (text[:end] + rule + text[end:]).encode()


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()
