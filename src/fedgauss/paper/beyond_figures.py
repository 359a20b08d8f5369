"""Figures of the error budget, and axes that the results beyond the paper share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss._figures import LIGHT, styled
from fedgauss.paper.budget import Point
from fedgauss.report.output import area, key, log_ticks, named_rows, stacked

Points = Sequence[Point]

DASHED = (0, (4, 3))
CLIENTS = "clients $K$, logarithmic"
# What is taken out, its mark and its colour; a stage is drawn where the term taken out is not zero.
_STAGES = {
    "all": ("o", "ink"),
    "D_1": ("s", "limit"),
    "D_3": ("^", "exact"),
    "D_2": ("D", "finite"),
    "D_4": ("v", "simulated"),
    "Sigma": ("x", "ink"),
}


@dataclass(frozen=True)
class Trail:
    """A setting: its distance, and what is left as terms are taken out, by term in order."""

    label: str
    left: Mapping[str, float]
    floor: float


@dataclass(frozen=True)
class Lines:
    """A family of curves against K: what was simulated, what is exact, and the colour they share."""

    label: str
    role: str
    simulated: Points
    exact: Sequence[Points]


@styled
def budget_figure(title: str, trails: Sequence[Trail]) -> Any:
    """A line for each setting, from its distance to what is left as terms are taken out one after another."""
    names = {"all": "all terms", "Sigma": r"$\Sigma_n$, not $\Sigma/K$"}
    legend = [
        key(names.get(term, f"without ${term}$"), role, ls="", marker=mark, ms=5)
        for term, (mark, role) in _STAGES.items()
    ]
    legend.append(key("noise floor", "muted", ls="", marker="|", ms=9))
    figure, ((axes,),) = stacked(title, 1, legend, height=0.24 * len(trails), left=1.85)
    named_rows(axes, [trail.label for trail in trails])
    for row, trail in enumerate(reversed(trails)):
        values = list(trail.left.values())
        axes.plot([min(values), max(values)], [row, row], color=LIGHT["muted"], lw=1.0, zorder=1)
        axes.plot(trail.floor, row, "|", color=LIGHT["muted"], ms=9, zorder=1)
        for term, value in trail.left.items():
            mark, role = _STAGES[term]
            axes.plot(value, row, mark, color=LIGHT[role], ms=5, clip_on=False, zorder=2)
    axes.set(xlim=(0.0, 1.0), xlabel="distance to the normal law over balls")
    return figure


@styled
def clients_figure(title: str, families: Sequence[Lines], floor: float) -> Any:
    """The distance against K: simulated points with two errors to either side, and a thin exact line for each draw."""
    legend: list[Any] = [key(one.label, one.role, marker="o", ms=4, lw=0.8) for one in families]
    legend.append(area("noise floor", "faint"))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.3)
    axes.axhspan(0.0, floor, color=LIGHT["faint"], lw=0, zorder=0)
    for one in families:
        for line in one.exact:
            x, y, _ = zip(*line, strict=True)
            axes.plot(x, y, color=LIGHT[one.role], lw=0.6, alpha=0.8)
        draw_points(axes, one.simulated, LIGHT[one.role])
    clients_axis(axes, [x for one in families for line in (one.simulated, *one.exact) for x, _, _ in line])
    axes.set(ylim=(0.0, 1.03), ylabel=r"$\tilde{d}_c$", xlabel=CLIENTS)
    return figure


def draw_points(axes: Any, points: Points, colour: str) -> None:
    """Points (x, y, error) with two errors to either side."""
    x, y, error = np.array(points).T
    axes.errorbar(x, y, 2 * error, fmt="o", ms=3.5, color=colour, elinewidth=0.8)


def clients_axis(axes: Any, clients: Iterable[float]) -> None:
    """A logarithmic x axis with a mark for each number of clients."""
    log_ticks(axes, "x", sorted({float(k) for k in clients}))


def log_axis(axes: Any, candidates: Sequence[float]) -> None:
    """A logarithmic y axis with those marks that lie on it."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    log_ticks(axes, "y", [mark for mark in candidates if low <= mark <= high])
