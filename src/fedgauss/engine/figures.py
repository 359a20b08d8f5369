"""The figure of replicated runs: how Gaussian their averages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, ndtri

from fedgauss import _checks
from fedgauss._figures import LIGHT, styled, titled_axes
from fedgauss._types import ArrayLike, FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIDE = 4.2  # inches
_MOST_POINTS = 400  # more of them look no different
_ROLES = ("exact", "limit", "finite", "simulated")


@styled
def quantile_figure(sample: FloatArray, center: ArrayLike | None, cov: ArrayLike | None) -> Figure:
    """Ordered values of up to four coordinates of a sample (R, d) against quantiles of a normal law."""
    runs, dim = sample.shape
    if runs < 2:
        raise ValueError(f"plot needs two runs at least; there is {runs}. Use replicates=1000.")
    mean = sample.mean(axis=0) if center is None else _checks.real_array("center", center)
    spread = np.cov(sample.T, ddof=1).reshape(dim, dim) if cov is None else _checks.real_array("cov", cov)
    if mean.shape != (dim,) or spread.shape != (dim, dim):
        raise ValueError(f"center and cov must be ({dim},) and ({dim}, {dim}); got {mean.shape} and {spread.shape}.")
    z = np.sort((sample - mean) / np.sqrt(np.diag(spread)), axis=0)
    places = np.unique(np.linspace(0, runs - 1, _MOST_POINTS).round().astype(int))
    expected = ndtri((places + 0.5) / runs)
    low, high = (ndtri(betaincinv(places + 1.0, runs - places, p)) for p in (0.025, 0.975))
    which = "their own" if center is None and cov is None else "the given"
    figure, axes = titled_axes(f"Averages of {runs:,} runs, standardised by {which} moments", _SIDE, _SIDE)
    axes.fill_between(expected, low, high, color=LIGHT["faint"], alpha=0.8, linewidth=0)
    axes.plot(expected[[0, -1]], expected[[0, -1]], color=LIGHT["muted"], linewidth=0.8)
    for i, role in zip(range(dim), _ROLES, strict=False):
        axes.plot(expected, z[places, i], ".", color=LIGHT[role], markersize=3, label=f"coordinate {i}")
    axes.set(xlabel="quantile of the normal law", ylabel="quantile of the runs")
    axes.legend(loc="upper left", markerscale=3, handletextpad=0.2)
    return figure
