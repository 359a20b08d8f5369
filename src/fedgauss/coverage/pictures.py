"""Coverage against n, and coverage against what the diagnostic predicted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fedgauss.coverage.cells import LEVEL
from fedgauss.coverage.lines import Line, common, label, number_of, varying
from fedgauss.report.drawing import Drawing
from fedgauss.report.figures import WIDTH
from fedgauss.report.palette import LIGHT
from fedgauss.report.style import styled
from fedgauss.report.words import number

_ROLES = {
    "plugin": ("finite", "-", "plug-in"),
    "bootstrap": ("exact", "-", "bootstrap"),
    "random_scaling": ("limit", "--", "random scaling"),
    "batch_means": ("simulated", ":", "batch means"),
}
_MOST_PANELS = 6
_CLOSE = 0.02  # of the level: what counts as covering in a title


def coverage_drawings(lines: Sequence[Line]) -> list[Drawing]:
    """Those that these federations can show."""
    families = [list(group) for _, group in groupby(lines, key=lambda line: line.without_n)]
    # Where there are many, those with the most points.
    panels = sorted((group for group in families if len(group) > 1), key=len, reverse=True)[:_MOST_PANELS]
    drawings = [_against_n(panels)] if panels else []
    judged = [line for line in lines if "plugin" in line.methods]
    return [*drawings, _predicted(judged)] if len(judged) > 2 else drawings


def _against_n(panels: Sequence[Sequence[Line]]) -> Drawing:
    shown = [line for panel in panels for line in panel]
    names = [name for name in varying(shown) if name != "n_steps"]
    kept = [m for m in _ROLES if _covers(shown, m)]
    title = (
        f"Within {_CLOSE:g} of the level at every $n$: {', '.join(_ROLES[m][2] for m in kept)}"
        if kept
        else f"No method is within {_CLOSE:g} of the level at every $n$"
    )
    return Drawing(
        "coverage_steps",
        against_n_figure(title, panels, [label(panel[0].federation, names) if names else "" for panel in panels]),
        f"Coverage of nominal {100 * LEVEL:g} % intervals, mean over coordinates, with two Monte-Carlo errors to "
        f"either side; {common(shown)}.",
        "Coverage against the number of steps, a panel for each federation and a line for each method.",
    )


def _covers(lines: Sequence[Line], method: str) -> bool:
    found = [number_of(line.methods[method], "coverage") for line in lines if method in line.methods]
    return bool(found) and max(abs(value - LEVEL) for value in found) <= _CLOSE


def _predicted(lines: Sequence[Line]) -> Drawing:
    seen = np.array([[number_of(line.methods["plugin"], name) for name in ("predicted", "coverage")] for line in lines])
    largest = float(np.abs(seen[:, 1] - seen[:, 0]).max())
    return Drawing(
        "coverage_predicted",
        predicted_figure(f"The diagnostic is never off by more than {number(largest, 3)}", lines),
        "What the plug-in’s own diagnostic of bias predicts, mean over runs and coordinates, and how often its "
        f"intervals cover; a point for each of {len(lines)} federations, with two Monte-Carlo errors.",
        "A scatter of coverage against predicted coverage about the diagonal.",
        small=True,
    )


@styled
def against_n_figure(title: str, panels: Sequence[Sequence[Line]], names: Sequence[str]) -> Figure:
    """A panel for each federation, a line for each method."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(WIDTH * (0.75 + 0.45 * (columns - 1)), 0.9 + 1.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for axes, panel, name in zip(grid, panels, names, strict=False):
        axes.axhline(LEVEL, color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)))
        steps = sorted({line.federation.n_steps for line in panel})
        for method, (role, dashes, word) in _ROLES.items():
            points = [(x.federation.n_steps, x.methods[method]) for x in panel if method in x.methods]
            if points:
                axes.errorbar(
                    [n for n, _ in points],
                    [number_of(row, "coverage") for _, row in points],
                    [2 * number_of(row, "error") for _, row in points],
                    color=LIGHT[role], ls=dashes, marker="o", ms=3.0, capsize=0, label=word,
                )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(steps, [f"{n:,}" for n in steps])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.tick_params(axis="x", labelsize=8.5)
        axes.set_title(name, fontsize=10.5, color=LIGHT["muted"])
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    for axes in grid[max(0, len(panels) - columns) : len(panels)]:
        axes.set_xlabel("steps of a client, $n$")
        axes.tick_params(axis="x", labelbottom=True)
    for axes in grid[: len(panels) : columns]:
        axes.set_ylabel("coverage")
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
    return figure


@styled
def predicted_figure(title: str, lines: Sequence[Line]) -> Figure:
    """Coverage against predicted coverage."""
    figure = Figure(figsize=(WIDTH * 0.8, WIDTH * 0.75), layout="constrained")
    axes = figure.subplots()
    found = [line.methods["plugin"] for line in lines]
    axes.axline((LEVEL, LEVEL), slope=1.0, color=LIGHT["faint"], lw=1.0)
    axes.errorbar(
        [number_of(row, "predicted") for row in found],
        [number_of(row, "coverage") for row in found],
        [2 * number_of(row, "error") for row in found],
        color=LIGHT["finite"], ls="", marker="o", ms=3.5, lw=0.9,
    )  # fmt: skip
    axes.set_xlabel("coverage that the diagnostic predicts")
    axes.set_ylabel("coverage")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
    return figure
