"""What may be wrong with the numbers of an update, before anything is done with them."""

from __future__ import annotations

import numpy as np

from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.innovations import Innovations

_PLAUSIBLE = 1e8  # standard deviations of one step's gradient: an update whose gradient is larger is broken or hostile


def mean_vector(y: ArrayLike, dim: int) -> FloatArray:
    """Y as an array (d,), finite or not; a wrong shape is the caller's mistake and a ValueError."""
    value = _numbers("y", y)
    if value.shape != (dim,):
        raise ValueError(f"y must have shape ({dim},), the clients' mean; got {value.shape}. Use theta.mean(axis=0)?")
    return value


def client_table(clients: ArrayLike, n_clients: int, dim: int) -> FloatArray:
    """The clients' iterates as an array (K, d), finite or not."""
    table = _numbers("clients", clients)
    if table.shape != (n_clients, dim):
        raise ValueError(f"clients must have shape {(n_clients, dim)}, a row each; got {table.shape}.")
    return table


def fault(parts: Innovations, y: FloatArray, clients: FloatArray | None) -> str:
    """Which value is not finite or not plausible, in words; empty when none is."""
    rows = [] if clients is None else [(f"client {k}", row) for k, row in enumerate(clients)]
    for name, row in [("y", y), *rows]:
        if not np.all(np.isfinite(row)):
            return f"The value of {name} is not finite."
        if not (far := parts.distance(row)) <= _PLAUSIBLE:
            return (
                f"The value of {name} is not plausible: the mean gradient there would be {far:.2g} standard "
                f"deviations of one step's noise, and more than {_PLAUSIBLE:.0e} is refused."
            )
    return ""


def _numbers(name: str, value: ArrayLike) -> FloatArray:
    try:
        return np.array(value, dtype=np.float64)  # a copy, since it is kept until the next round
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers; got {value!r}.") from error
