r"""The standard error of a mean over draws of the clients.

Each draw has clients and random numbers of its own, so the D values are independent. They spread because clients differ
and because each value has a Monte-Carlo error; with s their standard deviation and e the root mean square of those
errors,

    error = max(e, s t / 2) / sqrt(D),

where t is the 97.5 % quantile of Student's law with D - 1 degrees of freedom: two errors to either side then cover
95 %, however few draws there are. A few values may lie close together by chance, so e bounds the error from below. With
one draw only e is known, and the error says nothing of other clients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from fedgauss._types import FloatArray


def error_of_mean(values: Sequence[float] | FloatArray, errors: Sequence[float] | FloatArray) -> float:
    """max(e, s t / 2) / sqrt(D) for values of D draws and their Monte-Carlo errors."""
    count = len(values)
    noise = float(np.sqrt(np.mean(np.square(errors))))
    if count == 1:
        return noise
    spread = float(np.std(values, ddof=1)) * float(special.stdtrit(count - 1, 0.975)) / 2.0
    return max(noise, spread) / float(np.sqrt(count))
