"""Figures of results: coefficients with their intervals, and the forest plot of a meta-analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedgauss._figures import LIGHT, styled, titled_axes
from fedgauss._types import FloatArray
from fedgauss.inference.reference_laws import t_quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedgauss.inference.estimate import Estimate
    from fedgauss.inference.meta import MetaAnalysis

_WIDTH, _ROW = 6.4, 0.27  # inches
_LONGEST_NAME = 34
_LARGEST, _SMALLEST = 11.0, 3.5  # points: sides of the squares of sites
_DIAMOND = 0.3  # rows, half its height
_WIDEST = 6.0  # typical standard errors beyond the outermost estimates: longer intervals end in an arrow
_LARGEST_LOG = 300.0  # whose exponential an axis can still show
_ROUND_LOG = 6.0  # a ratio of ends from which ticks at 1, 2, 5, 10, ... are enough


@styled
def coefficient_figure(estimate: Estimate, exp: bool = False, scales: FloatArray | None = None) -> Figure:
    """Each coefficient with its interval; `scales` (d,) multiply them.

    Intercepts are left out, unless there is nothing else. Coefficients whose interval contains zero are pale.
    """
    shown = estimate.slopes()
    scale = np.ones(len(shown)) if scales is None else scales[shown]
    values, ends = np.asarray(estimate.params)[shown] * scale, estimate.conf_int()[shown] * scale[:, None]
    clear = (ends[:, 0] > 0.0) | (ends[:, 1] < 0.0)
    none = "one" if exp else "zero"
    title = f"{clear.sum()} of {len(shown)} intervals exclude {none}"
    target = estimate.facts.get("Target")
    figure, axes = titled_axes(title if target is None else f"{_short(target)}: {title}", _height(len(shown)), _WIDTH)
    _axis(axes, exp, min(0.0, float(ends.min())), max(0.0, float(ends.max())))
    values, ends = _transformed(exp, values), _transformed(exp, ends)
    for row, is_clear in enumerate(clear):
        colour = LIGHT["exact" if is_clear else "simulated"]
        axes.plot(ends[row], [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(values[row], row, "o", color=colour, markersize=4.5)
    _named_rows(axes, [estimate.names[i] for i in shown])
    slopes = set(shown.tolist()).isdisjoint(estimate.intercepts)
    change = "ratio" if exp else "change"
    unit = f"{change} for one standard deviation of the covariate" if slopes and scales is not None else "estimate"
    unit = "exponential of the estimate" if exp and unit == "estimate" else unit
    axes.set_xlabel(f"{unit}, with {100 * estimate.level:g} % intervals")
    return figure


@styled
def forest_figure(meta: MetaAnalysis, pooled: Estimate | None = None, exp: bool = False) -> Figure:
    """Sites as squares sized by weight, the pooled fit, random effects as a diamond, and a prediction interval."""
    rows = _forest_rows(meta, pooled)
    n_sites, names = len(meta.sites), [row.name for row in rows]
    places = [i if i < n_sites else i + 0.4 for i in range(len(rows))]  # a gap below the sites
    title = f"{_short(meta.name)}: I² = {100 * meta.i2:.0f} %, test of equal sites p = {meta.q.p_value:.2g}"
    figure, axes = titled_axes(title, _height(len(rows) + 0.4), _WIDTH)
    least, most = _limits(meta, rows)
    _axis(axes, exp, least, most)
    axes.set_xlim(*_transformed(exp, [least, most]))
    axes.axhline(n_sites - 0.3, color=LIGHT["faint"], linewidth=0.8)
    centre = _transformed(exp, meta.random.estimate)
    axes.axvline(centre, color=LIGHT["limit"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for row, at in zip(rows, places, strict=True):
        value, low, high = (None if v is None else float(_transformed(exp, v)) for v in row[1:4])
        if row.mark == "diamond":
            axes.fill([low, value, high, value], [at, at - _DIAMOND, at, at + _DIAMOND], color=LIGHT[row.role], lw=0.0)
        else:
            axes.plot([low, high], [at, at], color=LIGHT[row.line], linewidth=row.thickness, solid_capstyle="butt")
        if row.mark in ("s", "o"):
            axes.plot(value, at, row.mark, color=LIGHT[row.role], markersize=row.size)
        for end, edge, arrow in ((row.low < least, 0.0, "<"), (row.high > most, 1.0, ">")):
            if end:
                where = axes.get_yaxis_transform()
                axes.plot(edge, at, arrow, color=LIGHT[row.line], markersize=5.0, transform=where, clip_on=False)
        text = f"[{low:.3g}, {high:.3g}]" if value is None else f"{value:.3g} [{low:.3g}, {high:.3g}]"
        axes.annotate(
            text.replace("-", "−"), (1.03, at), xycoords=("axes fraction", "data"), va="center", fontsize=9.0,
            annotation_clip=False,
        )  # fmt: skip
    _named_rows(axes, names, places)
    axes.tick_params(axis="y", pad=7)  # room for arrows
    axes.set_xlabel(f"{'exponential of the estimate' if exp else 'estimate'}, with {100 * meta.level:g} % intervals")
    return figure


class _ForestRow(NamedTuple):
    """A line of a forest plot; roles are colours of the palette."""

    name: str
    value: float | None
    low: float
    high: float
    mark: str
    role: str
    line: str
    thickness: float = 1.1
    size: float = 5.5


def _forest_rows(meta: MetaAnalysis, pooled: Estimate | None) -> list[_ForestRow]:
    """From the top down."""
    half = t_quantile(0.5 + meta.level / 2, np.inf) * meta.std_errors
    sides = _SMALLEST + (_LARGEST - _SMALLEST) * np.sqrt(meta.weights / meta.weights.max())
    rows = [
        _ForestRow(site, value, value - reach, value + reach, "s", "exact", "muted", size=side)
        for site, value, reach, side in zip(meta.sites, meta.estimates, half, sides, strict=True)
    ]
    if pooled is not None:
        j = pooled.names.index(meta.name)
        low, high = pooled.conf_int(meta.level)[j].tolist()
        rows.append(_ForestRow("pooled fit", float(pooled.params[j]), low, high, "o", "finite", "finite", 1.8))
    mean = meta.random
    rows.append(_ForestRow("random effects", mean.estimate, mean.low, mean.high, "diamond", "limit", "limit"))
    if meta.prediction is not None:
        low, high = meta.prediction
        rows.append(_ForestRow("another site", None, low, high, "", "limit", "limit", 2.2))
    return rows


def _limits(meta: MetaAnalysis, rows: list[_ForestRow]) -> tuple[float, float]:
    """All of every interval, unless one is so wide that it would squeeze the others: it then ends in an arrow."""
    points = [row.value for row in rows if row.value is not None]
    reach = _WIDEST * float(np.median(meta.std_errors))
    least = max(min(row.low for row in rows), min(points) - reach)
    most = min(max(row.high for row in rows), max(points) + reach)
    if max(least, -most) < most - least:  # no effect is shown where it is not far off
        least, most = min(least, 0.0), max(most, 0.0)
    margin = 0.03 * (most - least)
    return least - margin, most + margin


def _height(rows: float) -> float:
    return 1.3 + _ROW * rows


def _axis(axes: Any, exp: bool, least: float, most: float) -> None:
    """Mark where there is no effect; ticks of ratios at round numbers, the axis logarithmic."""
    if exp:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

        if max(least, -most) > _LARGEST_LOG:
            raise ValueError(f"exp=True needs estimates within {_LARGEST_LOG:g} of 0; these begin at {least:.6g}.")
        axes.set_xscale("log")
        narrow = most - least < np.log(_ROUND_LOG)
        axes.xaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=9))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    if least <= 0.0 <= most:
        axes.axvline(1.0 if exp else 0.0, color=LIGHT["faint"], linewidth=1.0, zorder=0)


def _transformed(exp: bool, values: Any) -> Any:
    """As the axis has it; an exponential stops where doubles do."""
    return np.exp(np.clip(values, -_LARGEST_LOG, _LARGEST_LOG)) if exp else np.asarray(values, dtype=float)


def _named_rows(axes: Any, names: list[str], rows: list[float] | None = None) -> None:
    """Rows from the top down, with their names."""
    places = np.arange(len(names), dtype=float) if rows is None else np.asarray(rows)
    axes.set_yticks(places, [_short(name) for name in names])
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)


def _short(name: str) -> str:
    """A name that fits, and in which matplotlib sees no formula."""
    cut = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return cut.replace("$", r"\$")
