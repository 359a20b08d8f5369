"""Figures of the results that go beyond the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from fedgauss._types import FloatArray
from fedgauss.paper.budget import Point
from fedgauss.paper.figures import stacked
from fedgauss.report.output import key, log_ticks, named_rows, styled
from fedgauss.report.page import LIGHT

Points = Sequence[Point]

_DASHED = (0, (4, 3))
_CLIENTS = "clients $K$, logarithmic"
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
def budget_figure(title: str, trails: Sequence[Trail]) -> Figure:
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
def clients_figure(title: str, families: Sequence[Lines], floor: float) -> Figure:
    """The distance against K: simulated points with two errors to either side, and a thin exact line for each draw."""
    legend: list[Any] = [key(one.label, one.role, marker="o", ms=4, lw=0.8) for one in families]
    legend.append(Patch(color=LIGHT["faint"], label="noise floor"))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.3)
    axes.axhspan(0.0, floor, color=LIGHT["faint"], lw=0, zorder=0)
    for one in families:
        for line in one.exact:
            x, y, _ = zip(*line, strict=True)
            axes.plot(x, y, color=LIGHT[one.role], lw=0.6, alpha=0.8)
        _points(axes, one.simulated, LIGHT[one.role])
    _clients_axis(axes, [x for one in families for line in (one.simulated, *one.exact) for x, _, _ in line])
    axes.set(ylim=(0.0, 1.03), ylabel=r"$\tilde{d}_c$", xlabel=_CLIENTS)
    return figure


@styled
def phase_figure(
    title: str, panels: Mapping[float, Sequence[Lines]], bounds: Mapping[float, FloatArray], threshold: float
) -> Figure:
    """A panel for each beta: distance against K for each n, with both bounds through the first point of the last n.

    bounds      for each beta rows (K, printed, corrected) at the largest n
    threshold   sqrt(n) there, from where on the printed bound does not vanish
    """
    legend = [key(one.label, one.role, marker="o", ms=4) for one in next(iter(panels.values()))]
    legend += [key("bound, printed", lw=1.0, ls=_DASHED), key("bound, corrected", lw=1.0, ls=":")]
    figure, grid = stacked(title, len(panels), legend, height=1.45, head=0.28)
    for (beta, curves), (axes,) in zip(panels.items(), grid, strict=True):
        for one in curves:
            x, y, _ = zip(*one.exact[0], strict=True)
            axes.plot(x, y, color=LIGHT[one.role], lw=1.0)
            _points(axes, one.simulated, LIGHT[one.role])
        start = one.exact[0][0][1]
        k, *printed_and_corrected = bounds[beta].T
        for bound, line in zip(printed_and_corrected, (_DASHED, ":"), strict=True):
            axes.plot(k, start * bound / bound[0], color=LIGHT["ink"], lw=1.0, ls=line)
        axes.axvline(threshold, color=LIGHT["faint"], lw=1.0, zorder=0)
        _clients_axis(axes, [k for k, _, _ in one.exact[0]])
        _log_axis(axes, (0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0))
        axes.set_title(f"$\\beta$ = {beta:g}", fontsize=10.5, color=LIGHT["muted"], pad=4)
        axes.set_ylabel(r"$d_c^\dagger$")
    grid[-1][0].set_xlabel(_CLIENTS)
    return figure


@styled
def drift_figure(title: str, means: Mapping[str, FloatArray], roles: Mapping[str, str]) -> Figure:
    """The exact standardised mean against K on logarithmic axes: dots for draws, lines for their root mean square.

    means   rows (K, mean, error) for each draw, by kind of clients
    """
    legend = [key(name, roles[name], marker=".", ms=6) for name in means]
    legend.append(key(r"$\propto \sqrt{K}$", lw=1.0, ls=_DASHED))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.5)
    for name, table in means.items():
        colour = LIGHT[roles[name]]
        x, typical = table[0, :, 0], np.sqrt((table[:, :, 1] ** 2).mean(axis=0))
        axes.plot(table[:, :, 0].ravel(), table[:, :, 1].ravel(), ".", ms=3.5, color=colour, alpha=0.55, mew=0)
        axes.plot(x, typical, color=colour)
        if name == next(iter(means)):
            axes.plot(x, typical[0] * np.sqrt(x / x[0]), color=LIGHT["ink"], lw=1.0, ls=_DASHED)
    _log_axis(axes, (0.1, 0.2, 0.5, 1, 2, 5, 10, 20))
    _clients_axis(axes, x)
    axes.set(xlabel=_CLIENTS, ylabel="standardised mean, logarithmic")
    return figure


def _points(axes: Any, points: Points, colour: str) -> None:
    x, y, error = np.array(points).T
    axes.errorbar(x, y, 2 * error, fmt="o", ms=3.5, color=colour, elinewidth=0.8)


def _clients_axis(axes: Any, clients: Sequence[float] | FloatArray) -> None:
    log_ticks(axes, "x", sorted({float(k) for k in clients}))


def _log_axis(axes: Any, candidates: Sequence[float]) -> None:
    """A logarithmic y axis with those marks that lie on it."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    log_ticks(axes, "y", [mark for mark in candidates if low <= mark <= high])
