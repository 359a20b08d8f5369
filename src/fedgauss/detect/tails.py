"""From a few simulated quantiles of a maximum to the quantile at any tail probability."""

from __future__ import annotations

import numpy as np
from scipy import optimize, special

from fedgauss._types import FloatArray

_ENOUGH = 50  # paths beyond a quantile, below which the tail's formula is better than the simulation


def tail_point(
    p: float, tails: FloatArray, levels: FloatArray, paths: int, dof: int, noise_dof: float = np.inf
) -> float:
    """The level exceeded with probability p, given levels at decreasing `tails` from so many paths.

    Between simulated tails h^2 is linear in log p, as Gaussian tails nearly are. Beyond the last tail with 50 paths
    above it, the tail of the maximum of a chi_d field is used, anchored there:

        P(max > h) = const h^2 P(chi^2_d > h^2).

    A larger level is reached in shorter clumps, hence the factor h^2; tempering thins the tail. The exponent fitted
    to simulations between tails of .1 and .001 was at most 1.5, and mostly negative: the level errs upwards. Where V
    was estimated, with `noise_dof` degrees of freedom, Hotelling's law takes the place of chi^2_d, and without the
    factor: its tail is a power, which a factor h^2 could keep from falling.
    """
    trusted = max(int(np.sum(tails * paths >= _ENOUGH)), 1)
    last = trusted - 1
    if levels[last] <= 0.0:  # a window too short for any candidate: nothing was there to calibrate
        return float("inf")
    if p >= tails[last]:
        return float(np.sqrt(np.interp(-np.log(p), -np.log(tails[:trusted]), levels[:trusted] ** 2)))

    def excess(h: float) -> float:
        gained = _log_tail(h, dof, noise_dof) - _log_tail(float(levels[last]), dof, noise_dof)
        return gained - float(np.log(p / tails[last]))

    low = float(max(levels[last], 1.0))
    high = low + 20.0
    while excess(high) > 0:
        high *= 2.0
    return float(optimize.brentq(excess, low, high)) if excess(low) > 0 else low


def _log_tail(h: float, dof: int, noise_dof: float) -> float:
    if np.isinf(noise_dof):
        return 2.0 * float(np.log(h)) + float(np.log(special.gammaincc(dof / 2, h * h / 2)))
    rest = noise_dof - dof + 1.0
    return float(np.log(special.fdtrc(dof, rest, h * h * rest / (noise_dof * dof))))
