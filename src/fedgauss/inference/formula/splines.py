"""Natural cubic splines: twice continuously differentiable, cubic between knots and straight beyond the outer two.

The basis has a function for each knot, 1 there and 0 at all others; they add up to 1, and the first is left out for
the intercept. So coefficient j is the difference of the predictor between knot j and the lower bound.

With h_j = k_{j+1} - k_j and the second derivatives c_j at the knots, c_0 = c_m = 0 and

    h_{j-1} c_{j-1} + 2 (h_{j-1} + h_j) c_j + h_j c_{j+1} = 6 ((f_{j+1} - f_j) / h_j - (f_j - f_{j-1}) / h_{j-1}).
"""

import numpy as np
from scipy.special import ndtri

from fedgauss._types import FloatArray

_TAIL = 0.05  # of the normal law beyond each bound


def normal_knots(mean: float, sd: float, df: int) -> FloatArray:
    """df + 1 knots at about mean + sd z, z the normal quantiles from .05 to .95 at equal steps of probability.

    Quantiles of the rows themselves would be values of single rows; mean and standard deviation are sums. Knots are
    multiples of a power of two, at most half of `sd` and of the least distance between two, so that a site that lies
    about its sums puts none where it likes.
    """
    z = ndtri(np.linspace(_TAIL, 1.0 - _TAIL, df + 1))
    with np.errstate(all="ignore"):  # knots that are no numbers do not rise
        grid = 2.0 ** np.floor(np.log2(sd * min(1.0, np.diff(z).min()) / 2.0))
        return np.asarray(np.rint((mean + sd * z) / grid) * grid, dtype=float)


def natural_basis(x: FloatArray, knots: FloatArray) -> FloatArray:
    """All functions but the first at x, (n, m) with m + 1 knots."""
    at_knots = np.eye(len(knots))
    gaps = np.diff(knots)
    curves = _second_derivatives(gaps, at_knots)
    inside = np.clip(x, knots[0], knots[-1])
    j = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(gaps) - 1)
    h, left, right = (part[:, None] for part in (gaps[j], inside - knots[j], knots[j + 1] - inside))
    value = (right * at_knots[j] + left * at_knots[j + 1]) / h
    bend = ((right**3 / h - h * right) * curves[j] + (left**3 / h - h * left) * curves[j + 1]) / 6.0
    return (value + bend + (x - inside)[:, None] * _slopes(gaps, at_knots, curves)[(x > knots[-1]).astype(int)])[:, 1:]


def _second_derivatives(gaps: FloatArray, values: FloatArray) -> FloatArray:
    """At the knots, of the natural splines with these values there; (m + 1, functions)."""
    slopes = np.diff(values, axis=0) / gaps[:, None]
    curves = np.zeros_like(values)
    if len(gaps) > 1:
        matrix = np.diag(2.0 * (gaps[:-1] + gaps[1:])) + np.diag(gaps[1:-1], 1) + np.diag(gaps[1:-1], -1)
        curves[1:-1] = np.linalg.solve(matrix, 6.0 * np.diff(slopes, axis=0))
    return curves


def _slopes(gaps: FloatArray, values: FloatArray, curves: FloatArray) -> FloatArray:
    """Below the lower bound and above the upper one, (2, functions)."""
    low = (values[1] - values[0]) / gaps[0] - gaps[0] * curves[1] / 6.0
    high = (values[-1] - values[-2]) / gaps[-1] + gaps[-1] * curves[-2] / 6.0
    return np.stack([low, high])
