"""Moves of any size as short vectors that keep inner products, with signs that clients cannot know."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray

Single = npt.NDArray[np.float32]


class Sketch:
    """S x, with S (width, d): each parameter goes into one sum, with a random sign.

    E <S x, S y> = <x, y>, and a cosine is off by about width^-1/2. Models with up to twice as many parameters are taken
    as they are. A client that knew the signs could hide a move in the null space of S, so they come from a secret seed.
    """

    def __init__(self, width: int, seed: int) -> None:
        self.width, self.seed = width, seed
        self._signs = np.empty(0, dtype=np.float32)

    def length(self, dim: int) -> int:
        """Of the sketch of a model with `dim` parameters."""
        return dim if dim <= 2 * self.width else self.width

    def __call__(self, move: FloatArray | Single) -> Single:
        """S x, (length,)."""
        x = np.asarray(move, dtype=np.float32)
        if len(x) <= 2 * self.width:
            return x
        if len(self._signs) != len(x):
            drawn = np.random.default_rng(self.seed).integers(0, 2, size=len(x), dtype=np.int8)
            self._signs = 2.0 * drawn.astype(np.float32) - 1.0
        signed = x * self._signs
        whole = len(x) // self.width * self.width
        sums = signed[:whole].reshape(-1, self.width).sum(axis=0)
        sums[: len(x) - whole] += signed[whole:]
        return np.asarray(sums, dtype=np.float32)
