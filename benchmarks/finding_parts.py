"""What findings about the paper are made of: its clients, and exponents with errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import fedgauss as fg
from fedgauss.paper import trends

HESSIAN = np.array([[2.0, 0.5], [0.5, 1.5]])
Numbers = dict[str, Any]


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of log y on log x, by least squares."""
    return trends.slope(x, np.log(y))


def with_error(values: Sequence[float]) -> dict[str, float]:
    """The mean over draws of the clients, and its standard error."""
    found = trends.over_draws(list(values))
    return {"value": found.value, "error": found.error}


def rms_slope(x: Sequence[float], table: Any) -> dict[str, float]:
    """The slope on log x of the log root mean square over draws, (m, draws), and its jackknife error."""
    square = table**2
    count = square.shape[1]
    value = slope(x, np.sqrt(square.mean(axis=1)))
    left_out = [slope(x, np.sqrt((square.sum(axis=1) - square[:, i]) / (count - 1))) for i in range(count)]
    return {"value": value, "error": float(np.sqrt((count - 1) * np.var(left_out)))}


def random_effects(n_clients: int, draw: int, hessian: Any = HESSIAN) -> Any:
    """The paper's clients, gamma = 1 and noise variances 1..5, with x ~ N(0, hessian) and theta* at their mean."""
    rng = np.random.default_rng([draw, n_clients])
    offsets = rng.standard_normal((n_clients, 2))
    offsets -= offsets.mean(axis=0)
    noise = rng.integers(1, 6, n_clients)
    pulls = offsets @ hessian
    level = noise + np.einsum("ki,ki->k", offsets, pulls)
    covariances = level[:, None, None] * hessian + pulls[:, :, None] * pulls[:, None, :]
    return fg.linearization(np.broadcast_to(hessian, covariances.shape), covariances)
