"""Slopes on a logarithmic axis with 99 % intervals: from points with known errors, or from independent draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from fedgauss._types import FloatArray
from fedgauss.report.text import number

Values = Sequence[float] | FloatArray

_LEVEL = 0.99


@dataclass(frozen=True)
class Slope:
    """A slope, its standard error, and how many of these the 99 % interval reaches to either side."""

    value: float
    error: float
    reach: float

    @property
    def low(self) -> float:
        """The lower end of the interval."""
        return self.value - self.reach * self.error

    @property
    def high(self) -> float:
        """The upper end."""
        return self.value + self.reach * self.error

    def covers(self, value: float) -> bool:
        """Whether the interval holds a value."""
        return self.low <= value <= self.high

    def interval(self, digits: int = 3) -> str:
        """−0.012 to 0.034."""
        return f"{number(self.low, digits)} to {number(self.high, digits)}"


def known_error(value: float, error: float) -> Slope:
    """A slope whose standard error is known, as a Monte-Carlo error is."""
    return Slope(value, error, float(special.ndtri(0.5 + _LEVEL / 2)))


def fitted(x: Values, y: Values, errors: Values) -> Slope:
    """The least-squares slope of y on log x; the errors of the y are independent."""
    weights = slope_weights(x)
    return known_error(float(weights @ np.asarray(y)), float(np.linalg.norm(weights * np.asarray(errors))))


def slope(x: Values, y: Values) -> float:
    """The least-squares slope of y on log x."""
    return float(slope_weights(x) @ np.asarray(y))


def over_draws(values: Sequence[float]) -> Slope:
    """The mean of independent slopes, with Student's interval."""
    count = len(values)
    error = float(np.std(values, ddof=1)) / count**0.5
    return Slope(float(np.mean(values)), error, float(special.stdtrit(count - 1, 0.5 + _LEVEL / 2)))


def slope_weights(x: Values) -> FloatArray:
    """c with slope = c'y: c_i = (log x_i - mean) / sum_j (log x_j - mean)^2."""
    centred = np.log(x) - np.log(x).mean()
    return centred / (centred**2).sum()
