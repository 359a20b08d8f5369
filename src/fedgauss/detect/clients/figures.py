"""The figure of a client monitor: a row for each client, a column for each round, deeper the more surprising."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauss._figures import LIGHT, styled, titled_figure
from fedgauss._types import FloatArray, IntArray
from fedgauss.detect.clients.seen import NOT_JUDGED, Tenths
from fedgauss.detect.clients.verdict import Name, counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedgauss.detect.clients.monitor import ClientMonitor

Values = Mapping[int, float] | Sequence[float]

_WIDTH, _PANEL = 6.4, 1.25  # inches
_MOST_ROWS, _MOST_COLUMNS = 60, 160
_FULL = 60.0  # tenths of surprise that have the full colour
_LONGEST_NAME = 18


@styled
def heat_figure(monitor: ClientMonitor, accuracy: Values | None = None) -> Figure:
    """Surprises of clients by rounds, with alarms, names and who was left out; `accuracy` below."""
    n_rows = len(_rows_shown(monitor))
    heat = 1.15 + (0.22 if n_rows <= 24 else 0.15) * max(n_rows, 4)
    figure = titled_figure(_title(monitor), heat + (0.0 if accuracy is None else _PANEL), _WIDTH)
    if accuracy is None:
        axes = figure.subplots()
    else:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[heat, _PANEL])
        axes.tick_params(labelbottom=False)
        _panel(below, accuracy, int(monitor.seen.rounds[-1]))
    draw_heat(axes, monitor)
    figure.axes[-1].set_xlabel("round")
    return figure


def draw_heat(axes: Any, monitor: ClientMonitor) -> None:
    """The panel of clients by rounds, with alarms, names and who was left out."""
    shown = _rows_shown(monitor)
    edges, cells = _columns(monitor.seen.rounds, monitor.seen.tenths(len(monitor.clients))[:, shown])
    _paint(axes, edges, cells)
    _name_rows(axes, monitor, shown)
    _mark(axes, monitor, {monitor.clients[k]: place for place, k in enumerate(shown)}, edges)
    axes.set(xlim=(edges[0], edges[-1]))


def _title(monitor: ClientMonitor) -> str:
    alarms = monitor.seen.alarms
    if not alarms:
        return f"No alarm in {monitor.round} rounds"
    more = f", and {len(alarms) - 1} more" if len(alarms) > 1 else ""
    return f"Alarm in round {alarms[0].round}: {counted(alarms[0].clients)} named{more}"


def _rows_shown(monitor: ClientMonitor) -> list[int]:
    """Everybody, or those named or left out and then the most surprising; in the order in which they joined."""
    table = monitor.seen.tenths(len(monitor.clients))
    marked = {*monitor.left_out, *(name for alarm in monitor.seen.alarms for name in alarm.clients)}
    weight = table.max(axis=0).astype(float)
    weight[[k for k, name in enumerate(monitor.clients) if name in marked]] = np.inf
    return sorted(np.argsort(-weight, kind="stable")[:_MOST_ROWS].tolist())


def _columns(rounds: IntArray, table: Tenths) -> tuple[FloatArray, Tenths]:
    """Edges of columns (C + 1,), each a round, or several where there are many, and the largest values (C, K)."""
    first, span = int(rounds[0]), int(rounds[-1] - rounds[0]) + 1
    n = min(span, _MOST_COLUMNS)
    cells = np.full((n, table.shape[1]), -2, dtype=np.int16)
    np.maximum.at(cells, (rounds - first) * n // span, table)
    return np.linspace(first - 0.5, first - 0.5 + span, n + 1), cells


def _paint(axes: Any, edges: FloatArray, cells: Tenths) -> None:
    """Two layers of two colours, so that a page can turn each into another one."""
    from matplotlib.colors import to_rgb

    ground = np.where(cells < NOT_JUDGED, 0.0, np.where(cells == NOT_JUDGED, 0.4, 0.75))
    deep = np.clip(cells / _FULL, 0.0, 1.0) ** 1.4
    lines = {"edgecolor": LIGHT["paper"], "linewidth": 0.6} if cells.size <= 3_000 else {}
    for role, opacity in (("faint", ground), ("limit", deep)):
        colours = np.empty((*cells.T.shape, 4))
        colours[..., :3], colours[..., 3] = to_rgb(LIGHT[role]), opacity.T
        axes.pcolormesh(edges, np.arange(cells.shape[1] + 1) - 0.5, colours, **lines)


def _name_rows(axes: Any, monitor: ClientMonitor, shown: list[int]) -> None:
    """Names from the top down; those of an alarm in its colour."""
    named = {name for alarm in monitor.seen.alarms for name in alarm.clients}
    names = [monitor.clients[k] for k in shown]
    axes.set_yticks(range(len(names)), [_short(name) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.tick_params(axis="both", length=0)
    axes.spines[:].set_visible(False)
    size = 10.0 if len(names) <= 24 else 8.0
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set(color=LIGHT["limit" if name in named else "ink"], fontsize=size)


def _mark(axes: Any, monitor: ClientMonitor, place: Mapping[Name, int], edges: FloatArray) -> None:
    """Outlines of those named, lines through those left out, dotted in quarantine, bars over undone rounds."""
    from matplotlib.patches import Rectangle

    across = axes.get_xaxis_transform()
    since = {name: out.round for out in monitor.exclusions for name in out.clients}
    for name in {*monitor.left_out, *monitor.quarantined} & since.keys() & place.keys():
        begin = max(since[name] + 0.5, float(edges[0]))
        style = "-" if name in monitor.left_out else ":"
        axes.plot([begin, edges[-1]], [place[name]] * 2, style, color=LIGHT["muted"], linewidth=1.2)
    for out in monitor.exclusions:
        if out.back_to < out.round:
            undone = [max(out.back_to + 0.5, float(edges[0])), out.round + 0.5]
            axes.plot(undone, [1.02, 1.02], color=LIGHT["muted"], linewidth=2.6, transform=across, clip_on=False)
    free = -np.inf
    for alarm in monitor.seen.alarms:
        if alarm.round < edges[0]:
            continue
        begin = max(alarm.onset - 0.5, float(edges[0]))
        wide = max(alarm.round + 0.5 - begin, (edges[-1] - edges[0]) / _MOST_COLUMNS)
        for name in set(alarm.clients) & place.keys():
            frame = Rectangle((begin, place[name] - 0.5), wide, 1.0, fill=False, edgecolor=LIGHT["ink"], linewidth=1.4)
            axes.add_patch(frame).set_clip_on(False)
        share = (alarm.round - edges[0]) / (edges[-1] - edges[0])
        if share - free > 0.2:
            side = "left" if share < 0.1 else "right" if share > 0.9 else "center"
            axes.text(
                share, 1.05, f"alarm, round {alarm.round}", transform=axes.transAxes, ha=side, color=LIGHT["limit"]
            )
            free = share


def _panel(axes: Any, values: Values, last: int) -> None:
    """Accuracy, or what else the caller has, by round."""
    if isinstance(values, Mapping):
        when, known = list(values), list(values.values())
    else:
        when, known = list(range(last - len(values) + 1, last + 1)), list(values)
    axes.plot(when, known, color=LIGHT["exact"])
    axes.plot(when[-1], known[-1], "o", color=LIGHT["exact"], markersize=4)
    axes.set_ylabel("accuracy")


def _short(name: Name) -> str:
    """A name that fits, and in which matplotlib sees no formula."""
    text = str(name)
    return (text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 1] + "…").replace("$", r"\$")
