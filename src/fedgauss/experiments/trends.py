r"""Whether a distance moves along an axis, and which way.

On each curve a line is fitted by least squares to the points (t_i, v_i), where t = log x, or t = rho for the second
eigenvalue, and

    change = slope * (t_last - t_first),    its error^2 = sum_i a_i^2 e_i^2,

where the slope is sum_i a_i v_i and e_i are Monte-Carlo errors. The change is averaged over curves; its error is
averaged too, as if curves shared their noise, because they share their random numbers. A change of more than two
errors is a trend. Where K changes along the axis, each point has clients of its own: e_i^2 then also holds s_i^2 / D,
with s_i the standard deviation over D draws of the clients, if there are several.

"Falls, then rises" takes more than a line: on the mean curve, the first and the last value must lie above the lowest,
which is neither, by more than 2 sqrt(2) errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.experiments.layouts import Direction, Panel
from fedgauss.experiments.verdicts import Point


@dataclass(frozen=True)
class Trend:
    """How a panel moves from left to right, on average over its curves.

    first, last    the mean values at the two ends, x_first and x_last
    lowest         the lowest mean value, at x_lowest
    """

    direction: Direction
    change: float
    error: float
    first: float
    last: float
    lowest: float
    x_first: float
    x_last: float
    x_lowest: float


def trend(panel: Panel, points: Sequence[Point], reading: str | None) -> Trend | None:
    """The trend of our values under a reading, or of the printed numbers (None); None if there are too few points.

    Printed numbers come without errors, so that only their change has a meaning.
    """
    curves = [curve for curve in _curves(panel, points, reading) if len(curve) > 1]
    if not curves:
        return None
    fits = [_fitted_change(_axis(panel, curve[:, 0]), curve[:, 1], curve[:, 2]) for curve in curves]
    change, error = np.mean(fits, axis=0)
    x = np.unique(np.concatenate([curve[:, 0] for curve in curves]))
    level, noise = np.array([_mean_at(curves, value) for value in x]).T
    low = int(np.argmin(level))
    turns = 0 < low < len(x) - 1 and all(
        level[end] - level[low] > 2.0 * np.hypot(noise[end], noise[low]) for end in (0, -1)
    )
    direction: Direction = "no trend"
    if panel.expected == "falls, then rises" and turns:
        direction = "falls, then rises"
    elif abs(change) > 2.0 * error:
        direction = "rises" if change > 0 else "falls"
    ends = (float(level[0]), float(level[-1]), float(level[low]), float(x[0]), float(x[-1]), float(x[low]))
    return Trend(direction, float(change), float(error), *ends)


def exponent(panel: Panel, points: Sequence[Point], reading: str | None) -> tuple[float, float]:
    """b in v ~ x^b, fitted on logarithmic scales and averaged over curves, and its error."""
    fits = []
    for x, value, error in (curve.T for curve in _curves(panel, points, reading)):
        weights = _slope_weights(np.log(x))
        fits.append((weights @ np.log(value), np.linalg.norm(weights * error / value)))
    slope, noise = np.mean(fits, axis=0)
    return float(slope), float(noise)


def _curves(panel: Panel, points: Sequence[Point], reading: str | None) -> list[FloatArray]:
    """A table (x, value, error) for each curve."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for point in points:
        ours = None if reading is None else point.ours.get(reading)
        if ours is not None:
            drawn = ours.spread / np.sqrt(ours.draws) if panel.new_clients else 0.0
            found.setdefault(point.series, []).append((point.x, ours.mean, np.hypot(ours.error, drawn)))
        elif reading is None and point.printed is not None:
            found.setdefault(point.series, []).append((point.x, point.printed, 0.0))
    return [np.array(sorted(curve)) for curve in found.values()]


def _axis(panel: Panel, x: FloatArray) -> FloatArray:
    return x if panel.across == "rho" else np.log(x)


def _fitted_change(t: FloatArray, value: FloatArray, error: FloatArray) -> tuple[float, float]:
    weights = _slope_weights(t) * (t[-1] - t[0])
    return float(weights @ value), float(np.linalg.norm(weights * error))


def _slope_weights(t: FloatArray) -> FloatArray:
    """a with slope = a'v: a_i = (t_i - mean t) / sum (t - mean t)^2."""
    centred = t - t.mean()
    return centred / np.sum(centred**2)


def _mean_at(curves: Sequence[FloatArray], x: float) -> tuple[float, float]:
    here = np.concatenate([curve[curve[:, 0] == x, 1:] for curve in curves])
    return float(here[:, 0].mean()), float(here[:, 1].mean())
