"""Figures of results: coefficients with their intervals, and the forest plot of a meta-analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedgauss._figures import LIGHT, styled, titled_axes
from fedgauss._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedgauss.inference.estimate import Estimate
    from fedgauss.inference.meta import MetaAnalysis

_WIDTH, _ROW = 6.4, 0.27  # inches
_LONGEST_NAME = 34
_LARGEST, _SMALLEST = 11.0, 3.5  # points: sides of the squares of sites
_DIAMOND = 0.3  # rows, half its height
_WIDEST = 12.0  # times the spread of estimates: intervals beyond that end in an arrow


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
    _axis(axes, exp)
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
    from scipy import stats

    half = float(stats.norm.ppf(0.5 + meta.level / 2)) * meta.std_errors
    low, high = meta.estimates - half, meta.estimates + half
    n_sites = len(meta.sites)
    labels = [*meta.sites, *(["pooled fit"] if pooled is not None else []), "random effects"]
    if meta.prediction is not None:
        labels.append("another site")
    row_of = {label: n_sites + 0.4 + i for i, label in enumerate(labels[n_sites:])}  # a gap below the sites
    title = f"{_short(meta.name)}: I² = {100 * meta.i2:.0f} %, p = {meta.q.p_value:.2g} that sites are alike"
    figure, axes = titled_axes(title, _height(len(labels) + 0.4), _WIDTH)
    _axis(axes, exp)
    sides = _SMALLEST + (_LARGEST - _SMALLEST) * np.sqrt(meta.weights / meta.weights.max())
    for row in range(n_sites):
        axes.plot(_transformed(exp, [low[row], high[row]]), [row, row], color=LIGHT["muted"], linewidth=1.1)
        axes.plot(
            _transformed(exp, meta.estimates[row]), row, "s", color=LIGHT["exact"], markersize=sides[row], clip_on=True
        )
    axes.axhline(n_sites - 0.3, color=LIGHT["faint"], linewidth=0.8)
    written = [(meta.estimates[row], low[row], high[row]) for row in range(n_sites)]
    if pooled is not None:
        j = pooled.names.index(meta.name)
        value, (left, right) = float(pooled.params[j]), pooled.conf_int(meta.level)[j]
        axes.plot(_transformed(exp, [left, right]), [row_of["pooled fit"]] * 2, color=LIGHT["finite"], linewidth=1.8)
        axes.plot(_transformed(exp, value), row_of["pooled fit"], "o", color=LIGHT["finite"], markersize=5.5)
        written.append((value, left, right))
    mean, at = meta.random, row_of["random effects"]
    corners = _transformed(exp, [mean.low, mean.estimate, mean.high, mean.estimate])
    axes.fill(corners, [at, at - _DIAMOND, at, at + _DIAMOND], color=LIGHT["limit"], linewidth=0.0)
    axes.axvline(_transformed(exp, mean.estimate), color=LIGHT["limit"], linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    written.append((mean.estimate, mean.low, mean.high))
    if meta.prediction is not None:
        at = row_of["another site"]
        axes.plot(_transformed(exp, meta.prediction), [at, at], color=LIGHT["limit"], linewidth=2.2, alpha=0.6)
        written.append((None, *meta.prediction))
    rows = [*range(n_sites), *row_of.values()]
    _named_rows(axes, labels, rows)
    _limits(axes, meta, exp)
    _numbers_beside(axes, rows, [tuple(None if v is None else float(_transformed(exp, v)) for v in r) for r in written])
    axes.set_xlabel(f"{'exponential of the estimate' if exp else 'estimate'}, with {100 * meta.level:g} % intervals")
    return figure


def _height(rows: float) -> float:
    return 1.3 + _ROW * rows


def _axis(axes: Any, exp: bool) -> None:
    """Mark where there is no effect."""
    if exp:
        from matplotlib.ticker import LogLocator, NullFormatter, NullLocator, StrMethodFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=9))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1.0 if exp else 0.0, color=LIGHT["faint"], linewidth=1.0, zorder=0)


def _transformed(exp: bool, values: Any) -> Any:
    """As the axis has it; an exponential stops where doubles do."""
    return np.exp(np.clip(values, -300.0, 300.0)) if exp else np.asarray(values, dtype=float)


def _named_rows(axes: Any, names: list[str], rows: list[float] | None = None) -> None:
    """Rows from the top down, with their names."""
    places = np.arange(len(names), dtype=float) if rows is None else np.asarray(rows)
    axes.set_yticks(places, [_short(name) for name in names])
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.tick_params(axis="y", length=0)


def _limits(axes: Any, meta: MetaAnalysis, exp: bool) -> None:
    """Keep one very wide interval from squeezing all others: it is cut at the edge of the axes."""
    mean, errors = meta.random, meta.std_errors
    least = min(meta.estimates.min(), mean.low) - 2.5 * float(np.median(errors))
    most = max(meta.estimates.max(), mean.high) + 2.5 * float(np.median(errors))
    wide = _WIDEST * float(np.median(errors)) + float(np.ptp(meta.estimates))
    least, most = max(least, mean.estimate - wide), min(most, mean.estimate + wide)
    axes.set_xlim(*_transformed(exp, [min(least, -1e-9), max(most, 1e-9)] if exp else [least, most]))


def _numbers_beside(axes: Any, rows: list[float], written: list[tuple[float | None, ...]]) -> None:
    """Estimates and intervals in figures, to the right of the axes."""
    for row, (value, low, high) in zip(rows, written, strict=True):
        text = f"[{low:.3g}, {high:.3g}]" if value is None else f"{value:.3g} [{low:.3g}, {high:.3g}]"
        axes.annotate(
            text.replace("-", "−"), (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=9.0,
            annotation_clip=False,
        )  # fmt: skip


def _short(name: str) -> str:
    """A name that fits, and in which matplotlib sees no formula."""
    cut = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
    return cut.replace("$", r"\$")
