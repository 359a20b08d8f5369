"""Figures: data in, a matplotlib `Figure` out. The title is the sentence that the data support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from fedgauss._types import FloatArray
from fedgauss.networks import Network
from fedgauss.report.palette import LIGHT
from fedgauss.report.style import styled

WIDTH = 4.8  # inches: readable when shrunk to a phone, and not clumsy when stretched to a column of text
_CHI2_95 = 5.991464547107979  # the 95 % quantile of chi-squared with two degrees of freedom: -2 log 0.05
_MAX_POINTS = 2000  # a cloud of more says no more


@dataclass(frozen=True)
class Ellipse:
    """The set (x - center)' cov^-1 (x - center) <= 5.99, which holds 95 % of N(center, cov)."""

    label: str
    role: str  # of the palette
    center: FloatArray
    cov: FloatArray
    line: str = "-"

    def share(self, points: FloatArray) -> float:
        """The share of points inside."""
        offset = points - self.center
        return float(np.mean(np.einsum("ri,ri->r", offset, np.linalg.solve(self.cov, offset.T).T) <= _CHI2_95))

    @property
    def outline(self) -> FloatArray:
        """Points on the boundary, (m, 2)."""
        angle = np.linspace(0.0, 2.0 * np.pi, 181)
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return self.center + _CHI2_95**0.5 * circle @ np.linalg.cholesky(self.cov).T


@dataclass(frozen=True)
class Curve:
    """Simulated points with their Monte-Carlo errors, and the exact curve through them."""

    label: str
    role: str
    n: FloatArray
    simulated: FloatArray
    error: FloatArray
    exact_n: FloatArray
    exact: FloatArray


@dataclass(frozen=True)
class Trace:
    """A monitor's statistic over its threshold after each round, with the true onset and what the alarm said."""

    steps: FloatArray
    ratio: FloatArray
    onset: int
    alarm: int | None
    estimate: int | None


@styled
def path_figure(title: str, paths: FloatArray, mean: FloatArray, sd: FloatArray, optimum: FloatArray) -> Figure:
    """Y_t of some runs (runs, n, d) over the exact mean +- 2 sd, one panel a coordinate, with the optimum."""
    n, d = mean.shape
    figure = Figure(figsize=(WIDTH, 0.8 + 1.65 * d), layout="constrained")
    t = np.arange(1, n + 1)
    marks = [mark * 10**power for power in range(len(str(n))) for mark in (1, 2, 5) if mark * 10**power <= n]
    for i, axes in enumerate(figure.subplots(d, 1, sharex=True, squeeze=False)[:, 0]):
        axes.fill_between(t, (mean - 2 * sd)[:, i], (mean + 2 * sd)[:, i], color=LIGHT["exact"], alpha=0.18, lw=0)
        axes.plot(t, paths[:, :, i].T, color=LIGHT["simulated"], lw=0.7)
        axes.plot(t, mean[:, i], color=LIGHT["exact"], lw=1.6)
        axes.axhline(optimum[i], color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)))
        axes.set_ylabel(f"coordinate {i + 1} of $Y_t$")
        axes.set_xscale("log")
        axes.set_xlim(1, n)
        axes.set_xticks(marks, [f"{mark}" for mark in marks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    names = [
        ("simulated runs", "simulated"),
        ("exact mean, and 2 sd to either side", "exact"),
        ("optimum, dashed", "ink"),
    ]
    first = figure.axes[0]
    side = 0.30 if optimum[0] > mean[0, 0] else 0.92  # the corner that runs towards the optimum leave empty
    for row, (text, role) in enumerate(names):
        first.text(0.98, side - 0.12 * row, text, ha="right", va="center", color=LIGHT[role], transform=first.transAxes)
    figure.align_ylabels()
    figure.axes[-1].set_xlabel("step $t$, logarithmic")
    _head(figure, title)
    return figure


@styled
def cloud_figure(title: str, panels: Sequence[tuple[str, FloatArray, Sequence[Ellipse]]]) -> Figure:
    """sqrt(n) (Ybar_n - theta*) in the plane, a panel for each start, with 95 % ellipses and what they hold."""
    figure = Figure(figsize=(WIDTH, 3.75), layout="constrained")
    columns = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (name, points, ellipses) in zip(columns, panels, strict=True):
        axes.axhline(0, color=LIGHT["faint"], lw=0.7, zorder=0)
        axes.axvline(0, color=LIGHT["faint"], lw=0.7, zorder=0)
        shown = points[:_MAX_POINTS]
        axes.scatter(shown[:, 0], shown[:, 1], s=3.0, color=LIGHT["simulated"], alpha=0.4, lw=0)
        for ellipse in ellipses:
            label = f"{ellipse.label}: holds {100 * ellipse.share(points):.0f} %"
            axes.plot(*ellipse.outline.T, color=LIGHT[ellipse.role], ls=ellipse.line, lw=1.5, label=label)
        axes.set_title(name, fontsize=10.5, color=LIGHT["muted"])
        axes.set_xlabel("coordinate 1")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.23), handlelength=2.2, labelspacing=0.35)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_aspect("equal")
    columns[0].set_ylabel(r"coordinate 2 of $\sqrt{n}\,(\bar{Y}_n - \theta^*)$")
    _head(figure, title)
    return figure


@styled
def ratio_figure(title: str, curves: Sequence[Curve]) -> Figure:
    """Variance over theory against n: simulated with +- 2 Monte-Carlo errors, exact as a line; 1 is agreement."""
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1.0, color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)))
    for curve in curves:
        colour = LIGHT[curve.role]
        axes.plot(curve.exact_n, curve.exact, color=colour, lw=1.4)
        axes.errorbar(
            curve.n, curve.simulated, 2 * curve.error, fmt="o", ms=4, color=colour, elinewidth=1.0, capsize=2.5
        )
        end = (curve.exact_n[-1], curve.exact[-1])
        axes.annotate(curve.label, end, xytext=(9, 0), textcoords="offset points", va="center", color=colour)
    axes.set_xlabel("steps $n$")
    axes.set_ylabel(r"variance of $\sqrt{n}\,(\bar{Y}_n - \theta^*)$ / theory")
    axes.set_xlim(0, curves[0].n[-1] * 1.02)
    axes.margins(y=0.12)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    _head(figure, title)
    return figure


@styled
def disagreement_figure(title: str, simulated: FloatArray, exact: FloatArray, sync_every: int) -> Figure:
    """The root mean square of |Theta_t (I - J)|_F against t: simulated points, and the exact line under them."""
    figure = Figure(figsize=(WIDTH, 2.9), layout="constrained")
    axes = figure.subplots()
    t = np.arange(1, len(exact) + 1)
    axes.plot(t, exact, color=LIGHT["exact"], lw=1.2, label="exact")
    axes.plot(t[::4], simulated[::4], ".", ms=3.2, color=LIGHT["ink"], label="simulated, every fourth step")
    axes.legend(loc="upper right")
    axes.set_xlim(0, len(exact))
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel(f"step $t$; clients mix at multiples of {sync_every}")
    axes.set_ylabel(r"$|\Theta_t(I-J)|_F$, root mean square")
    _head(figure, title)
    return figure


@styled
def trace_figure(title: str, trace: Trace) -> Figure:
    """The statistic of a watched run; 1 is the threshold."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axvline(trace.onset, color=LIGHT["ink"], lw=1.0, label="true onset")
    if trace.estimate is not None:
        axes.axvline(trace.estimate, color=LIGHT["finite"], lw=1.8, ls=(0, (1, 1.5)), label="estimated onset")
    axes.axhline(1.0, color=LIGHT["limit"], lw=1.2, ls=(0, (4, 2)), label="threshold")
    axes.plot(trace.steps, trace.ratio, color=LIGHT["exact"], marker=".", ms=4, label="statistic")
    if trace.alarm is not None:
        height = trace.ratio[trace.steps == trace.alarm]
        axes.plot([trace.alarm], height, "o", ms=7, color=LIGHT["limit"], zorder=3, label="alarm")
    axes.set_xlim(0, trace.steps[-1])
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("step $t$")
    axes.set_ylabel("statistic / threshold")
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    figure.legend(loc="outside lower center", ncols=3, handlelength=1.8, columnspacing=1.4)
    _head(figure, title)
    return figure


@styled
def network_figure(title: str, network: Network, notes: Sequence[str]) -> Figure:
    """The clients and who averages with whom, with a note beside each client."""
    figure = Figure(figsize=(3.6, 3.5), layout="constrained")
    axes = figure.subplots()
    graph = nx.from_scipy_sparse_array(network.sparse)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    place = nx.kamada_kawai_layout(graph)
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color=LIGHT["muted"], width=1.2)
    nodes = nx.draw_networkx_nodes(graph, place, ax=axes, node_color=LIGHT["paper"], node_size=330)
    nodes.set_edgecolor(LIGHT["exact"])
    nodes.set_linewidth(1.4)
    for k, (x, y) in place.items():
        axes.text(x, y, str(k + 1), ha="center", va="center", color=LIGHT["exact"])
        axes.text(1.36 * x, 1.25 * y, notes[k], ha="center", va="center", fontsize=10, color=LIGHT["muted"])
    axes.set(xlim=(-1.65, 1.65), ylim=(-1.35, 1.35), aspect="equal")
    axes.set_axis_off()
    _head(figure, title)
    return figure


def _head(figure: Figure, title: str) -> None:
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5)
