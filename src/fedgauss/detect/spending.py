"""How much of alpha each round may spend."""

import numpy as np

_BEFORE = 10.0  # rounds that the series without a horizon begins behind


def spent(alpha: float, horizon: int | None, round: int) -> float:
    """The chance of a false alarm that round `round` may take: alpha in all, over the horizon or for ever.

    With a horizon N it is alpha / N. Without one it is alpha log(b) / ((t + b) log(t + b)^2) with b = 10, whose sum
    over t = 1, 2, ... is below alpha: it is that of a falling function whose integral from b on is 1 / log(b).
    """
    if horizon is not None:
        return alpha / horizon if round <= horizon else 0.0
    at = round + _BEFORE
    return float(alpha * np.log(_BEFORE) / (at * np.log(at) ** 2))
