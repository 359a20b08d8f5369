"""Linear regression in NumPy: local steps, and what the server asks of a client. Loss: half the mean squared error."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flower_watch.data import Floats, Rows

Batches = npt.NDArray[np.int64]


def train(weight: Floats, data: Rows, batches: Batches, rate: float) -> Floats:
    """`weight` (1, d) after a step of SGD for each batch."""
    b = weight[0].copy()
    for chosen in batches:
        x, y = data.x[chosen], data.y[chosen]
        b -= rate * x.T @ (x @ b - y) / len(chosen)
    return b[None]


def moments(weight: Floats, data: Rows, batches: Batches) -> tuple[Floats, Floats]:
    """Gradients of the batches at `weight`, (m, d), and the Hessian, (d, d)."""
    errors = data.x @ weight[0] - data.y
    single = data.x * errors[:, None]
    return single[batches].mean(axis=1), data.x.T @ data.x / len(data.x)
