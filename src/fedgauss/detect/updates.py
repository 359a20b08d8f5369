"""What may be wrong with the numbers of an update, before anything is done with them."""

from __future__ import annotations

import numpy as np

from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.innovations import Innovations

_HUGE = 1e100
_PLAUSIBLE = 1e8  # standard deviations of one step's gradient: an update whose gradient is larger is broken or hostile


def mean_vector(y: ArrayLike, dim: int) -> FloatArray:
    """Y as an array (d,), finite or not; a wrong shape is the caller's mistake and a ValueError."""
    value = _numbers("y", y)
    if value.shape != (dim,):
        raise ValueError(f"y must have shape ({dim},), the clients' mean; got {value.shape}. Use theta.mean(axis=0)?")
    return value


def client_table(name: str, value: ArrayLike, n_clients: int, dim: int, present: BoolArray | None) -> FloatArray:
    """A row for each client, (K, d), finite or not; those of clients that took no part are NaN, whatever was given."""
    table = _numbers(name, value)
    if table.shape != (n_clients, dim):
        raise ValueError(f"{name} must have shape {(n_clients, dim)}, a row each; got {table.shape}.")
    if present is not None:
        table[~present] = np.nan
    return table


def fault(
    parts: Innovations,
    last: FloatArray | None,
    y: FloatArray,
    clients: FloatArray | None,
    began: FloatArray | None,
    present: BoolArray | None,
) -> str:
    """Which value is not finite or not plausible, in words; empty when none is. Absent clients may send anything.

    Plausible is what lies near the last mean, in the units of the noise; before there is one, any finite number below
    1e100.
    """
    here = np.arange(parts.lin.n_clients) if present is None else np.flatnonzero(present)
    for name, table in (("y", y[None]), ("client", clients), ("the beginning of client", began)):
        if table is None:
            continue
        rows = table if name == "y" else table[here]
        wrong = ~np.isfinite(rows).all(axis=1)
        with np.errstate(invalid="ignore"):
            far = np.abs(rows).max(axis=1) if last is None else parts.distances(rows, last)
            wrong |= ~(far <= (_HUGE if last is None else _PLAUSIBLE))
        if not wrong.any():
            continue
        i = int(np.argmax(wrong))
        whose = name if name == "y" else f"{name} {here[i]}"
        if not np.isfinite(rows[i]).all():
            return f"The value of {whose} is not finite."
        if last is None:
            return f"The value of {whose} is not plausible: more than {_HUGE:.0e} is refused."
        return (
            f"The value of {whose} is not plausible: the mean gradient there would be {far[i]:.2g} standard "
            f"deviations of one step's noise from the last, and more than {_PLAUSIBLE:.0e} is refused."
        )
    return ""


def _numbers(name: str, value: ArrayLike) -> FloatArray:
    given = np.asarray(value)
    if given.dtype.kind not in "iufb":  # strings, complex numbers, dates and integers too large for any type
        raise ValueError(f"{name} must be an array of real numbers; got {given.dtype} values.")
    return given.astype(np.float64)  # a copy, since it is kept until the next round
