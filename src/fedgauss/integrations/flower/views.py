"""What of many parameters is watched: some of them, or a random projection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray

View = Callable[[FloatArray], FloatArray]


def everything() -> View:
    """All of them; for a few tens."""
    return lambda vector: vector


def coordinates(which: ArrayLike) -> View:
    """These, by their places in the model's arrays laid end to end."""
    places = np.asarray(which)
    if places.ndim != 1 or not places.size or places.dtype.kind not in "iu" or places.min() < 0:
        raise ValueError(f"which must be places 0, 1, ... of parameters; got {which!r}.")
    if len(np.unique(places)) != len(places):
        raise ValueError(f"which must name each parameter once; got {which!r}.")

    def view(vector: FloatArray) -> FloatArray:
        if places.max() >= len(vector):
            raise ValueError(f"which must lie in 0..{len(vector) - 1}, the model's parameters; got {places.max()}.")
        return vector.take(places)

    return view


def random_projection(dim: int, seed: int = 0) -> View:
    """`dim` sums: each parameter goes into one of them, drawn at random, with a random sign.

    A projection R (dim, D) with one entry of +-1 in each column: E |R x|^2 = |x|^2, in O(D) time. Keep the seed from
    clients: an attack that knows R may choose a direction with R x = 0.
    """
    rows = _checks.whole("dim", dim, at_most=40, fix="Thresholds reach to about 40 dimensions.")
    seed = _checks.whole("seed", seed, at_least=0)
    drawn: dict[int, tuple[npt.NDArray[np.int64], FloatArray]] = {}

    def view(vector: FloatArray) -> FloatArray:
        if len(vector) not in drawn:
            rng = np.random.default_rng(seed)
            drawn.clear()
            drawn[len(vector)] = rng.integers(rows, size=len(vector)), rng.choice(np.array([-1.0, 1.0]), len(vector))
        bucket, sign = drawn[len(vector)]
        return np.bincount(bucket, sign * vector, rows).astype(np.float64)

    return view
