"""How the paper lays out its numbers: what runs along the axis, what tells the curves apart, and the trend claimed.

A point has coordinates by name. "r=0.2 beta=0.85" at x = 300 in a figure against n is {r: 0.2, beta: 0.85, n: 300}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

from fedgauss.sweep.cell import Row

Claim = Literal["falls", "rises", "falls, then rises", "none"]
Printed = dict[str, dict[str, dict[str, float]]]  # by part, curve and x


@dataclass(frozen=True)
class Panel:
    """One picture of the paper, or one table seen as a picture.

    part      the name its rows and printed numbers go by
    column    what a row's x is: "n", "K", "approximation" for quantile gaps, or "measure" for attack tables
    across    the coordinate along the axis
    by        the coordinate that tells curves apart
    expected  how the distance moves along the axis, as the paper has it
    only      a coordinate that all points of the panel share, and its value
    """

    part: str
    column: Literal["n", "K", "approximation", "measure"]
    across: str
    by: str
    expected: Claim
    only: tuple[str, str] | None = None

    @property
    def new_clients(self) -> bool:
        """Whether K may change along the axis: each K has clients of its own, drawn anew."""
        return self.across == "K" or (self.only is not None and self.only[0] == "r")

    def place(self, curve: str, x: str) -> tuple[str, float] | None:
        """The curve of this panel that a point lies on, and its abscissa; None if it lies on another panel."""
        coordinates = dict(pair.split("=") for pair in curve.split()) | {self.column: x}
        if self.only is not None and coordinates[self.only[0]] != self.only[1]:
            return None
        return coordinates[self.by], float(coordinates[self.across])


_LAYOUTS: dict[str, tuple[Panel, ...]] = {
    "figure1_left": (Panel("figure1_left", "n", "n", "tau", "falls"),),
    "figure1_right": (Panel("figure1_right", "K", "K", "tau", "falls, then rises"),),
    "figure2_phase": (
        Panel("figure2_phase", "n", "n", "beta", "falls", only=("r", "0.2")),
        Panel("figure2_phase", "n", "n", "beta", "rises", only=("r", "0.6")),
    ),
    "figure4": (
        Panel("figure4_left", "n", "n", "tau", "falls"),
        Panel("figure4_right", "K", "K", "tau", "falls, then rises"),
    ),
    "heterogeneity": (Panel("heterogeneity", "n", "gamma", "n", "rises"),),
    "synchronisation": (Panel("synchronisation", "n", "tau", "n", "rises"),),
    "connection": (Panel("connection", "n", "rho", "n", "rises"),),
    "ablation_tau": (Panel("ablation_tau", "approximation", "tau", "approximation", "rises"),),
    "ablation_gamma": (Panel("ablation_gamma", "approximation", "gamma", "approximation", "rises"),),
}


def panels(result: str) -> tuple[Panel, ...]:
    """The panels of a result, left to right; none if the paper prints no numbers for it."""
    return _LAYOUTS.get(result, ())


@cache
def printed() -> Printed:
    """Every number that the paper prints or draws."""
    return json.loads(resources.files("fedgauss.experiments").joinpath("printed.json").read_text(encoding="utf-8"))


def printed_points(panel: Panel) -> dict[tuple[str, float], float]:
    """The paper's numbers on a panel, by curve and abscissa, in the paper's order."""
    placed = (
        (panel.place(curve, x), value)
        for curve, values in printed().get(panel.part, {}).items()
        for x, value in values.items()
    )
    return {place: value for place, value in placed if place is not None}


def placed_rows(panel: Panel, rows: list[Row], measure: str = "Q") -> Iterator[tuple[str, float, Row]]:
    """Rows that lie on a panel, with their curve and abscissa; of quantile gaps, those of one `measure`."""
    for row in rows:
        if row["result"] != panel.part or row.get("measure", measure) != measure:
            continue
        x = row["approximation"] if panel.column == "approximation" else row["x"]
        place = panel.place(str(row["curve"]), str(x))
        if place is not None:
            yield *place, row
