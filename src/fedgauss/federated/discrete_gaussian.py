"""Whole numbers with the discrete Gaussian law, drawn exactly: no floating-point number is involved.

    P(X = x) is proportional to exp(-x^2 / (2 variance)),   x = ..., -1, 0, 1, ...

Noise that is rounded from a floating-point normal has values that it cannot take and others that it takes too often, by
which a total tells more than was promised. The method is that of Canonne, Kamath and Steinke (2020): a discrete Laplace
number, kept with a probability that is a ratio of whole numbers.

The time a draw takes depends on what is drawn, so a site must not let others see how long its noise took.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from math import isqrt

Below = Callable[[int], int]  # below(n) is uniform on 0, ..., n - 1


def discrete_gaussian(variance: int, size: int, below: Below = secrets.randbelow) -> list[int]:
    """Independent discrete Gaussian numbers; `variance` is that of the formula, at least 1.

    By default from the operating system's source for secrets.
    """
    if variance < 1:
        raise ValueError(f"the variance of discrete noise must be at least 1; got {variance}. Use a finer grid.")
    return [_one(variance, below) for _ in range(size)]


def _one(variance: int, below: Below) -> int:
    """Y of a discrete Laplace law of scale t = floor(sigma) + 1, kept with a probability.

    That is exp(-(|Y| - variance / t)^2 / (2 variance)).
    """
    scale = isqrt(variance) + 1
    whole = 2 * variance * scale * scale
    while True:
        drawn = _laplace(scale, below)
        if _accepts((abs(drawn) * scale - variance) ** 2, whole, below):
            return drawn


def _laplace(scale: int, below: Below) -> int:
    """P(Y = y) proportional to exp(-|y| / scale)."""
    while True:
        low = below(scale)
        if not _accepts_small(low, scale, below):
            continue
        size = low
        while _accepts_small(1, 1, below):
            size += scale
        if below(2):
            return size
        if size:  # minus zero would count zero twice
            return -size


def _accepts(part: int, whole: int, below: Below) -> bool:
    """True with probability exp(-part / whole)."""
    times, rest = divmod(part, whole)
    return all(_accepts_small(1, 1, below) for _ in range(times)) and _accepts_small(rest, whole, below)


def _accepts_small(part: int, whole: int, below: Below) -> bool:
    """The same for part <= whole: the first k at which a coin of probability part / (k whole) falls is odd so often."""
    k = 1
    while below(k * whole) < part:
        k += 1
    return k % 2 == 1
