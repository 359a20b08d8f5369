"""The mean channel: a CUSUM of whitened innovations, tempered where segments are short."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import FloatArray
from fedgauss.detect.candidates import Candidates


class Peak(NamedTuple):
    """The largest statistic over candidates, and the step after which the change it points to would lie."""

    statistic: FloatArray  # (R,)
    step: npt.NDArray[np.int64]  # (R,); -1 where there is no candidate yet
    position: npt.NDArray[np.int64]  # (R,), in rounds, or groups of rounds, taken in; 0 where there is none


def no_peak(replicates: int) -> Peak:
    """What a channel shows before it has a candidate."""
    nowhere = np.zeros(replicates, dtype=np.int64)
    return Peak(np.zeros(replicates), nowhere - 1, nowhere)


TEMPERING = 0.35  # where nothing is known of the gradients' tails


def tempered(z2: FloatArray, m: FloatArray, c: float = TEMPERING) -> FloatArray:
    """T^2 = z^2 / (1 + min(c z^2 / m, z / sqrt(m))), with m the harmonic mass of the two segments, in steps.

    The gradient of a regression is a product of Gaussians, so a short segment has heavier tails than z supposes. The
    first penalty answers for kurtosis at moderate z, the second (Bernstein's) takes over at large z, where it
    still lets T grow without bound: one huge round is seen.
    """
    ratio = z2 / m
    bernstein = np.sqrt(ratio)
    ratio *= c
    penalty = np.minimum(ratio, bernstein, out=ratio)
    penalty += 1.0
    return np.divide(z2, penalty, out=penalty)


class MeanChannel:
    """max over candidates s of T, with z^2 = |S_s - f S_t|^2 / m, f = W_s / W_t and m = W_s (1 - f).

    W and S are the prefix sums of the weights w_j and of w_j x_j. z is the standardised difference between the mean
    innovation before and after s: chi with d degrees of freedom under the null, for each s and t.
    """

    def __init__(self, dim: int, replicates: int, first: int, tempering: float = TEMPERING) -> None:
        self.tempering = tempering
        self.position = 0
        self.mass = 0.0
        self.total = np.zeros((dim, replicates))
        self.candidates = Candidates(dim, replicates, first)

    def update(self, x: FloatArray, weight: float, before: int) -> Peak:
        """Take in x_j (d, R) with its weight; `before` is the step at which the round began."""
        kept = self.candidates
        if self.position:
            kept.keep(self.position, before, self.mass, self.total)
        self.position += 1
        self.mass += weight
        self.total += weight * x
        if not kept.count:
            return no_peak(x.shape[1])
        share = kept.masses / self.mass
        m = (kept.masses * (1.0 - share))[:, None]
        gap = kept.scratch  # with thousands of replicates a fresh array each round would cost more than the sums
        np.multiply(share[:, None, None], self.total, out=gap)
        np.subtract(kept.sums, gap, out=gap)
        t2 = tempered(np.einsum("cdr,cdr->cr", gap, gap) / m, m, self.tempering)
        best = t2.argmax(axis=0)
        return Peak(np.sqrt(t2[best, np.arange(len(best))]), kept.steps[best], kept.positions[best])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What has to be stored to go on later."""
        own = {"position": np.array(self.position), "mass": np.array(self.mass), "total": self.total}
        return own | {f"candidates.{name}": array for name, array in self.candidates.arrays().items()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what `arrays` returned."""
        self.position, self.mass = int(arrays["position"]), float(arrays["mass"])
        self.total = np.array(arrays["total"], dtype=np.float64)
        part = "candidates."
        self.candidates.restore({k.removeprefix(part): v for k, v in arrays.items() if k.startswith(part)})
