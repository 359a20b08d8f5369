"""Whether an alarm may be the run's own journey: a non-linear loss seen from far away looks like a change."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.mean_channel import MeanChannel, Peak

_SIGNIFICANT = 4.0  # standard deviations that a gradient must have to count as a journey


class Travel:
    """Compares the gradient still left at the onset with the shift that raised the alarm.

    Let u_s = V^-1/2 A Y_s. For a quadratic loss the innovations before s have mean V^-1/2 A theta*, so

        g_s = (mean of x up to s) - u_s      is the mean gradient at Y_s, and
        shift = (mean of x after s) - (mean of x up to s)

    is what the alarm is about. A loss whose Hessian along the way differs from A by a share rho moves the innovations
    by about rho times the gradient it works off. So a shift smaller than g_s may be curvature: the run was still
    travelling. A run that has arrived has g_s near zero (noise of size sqrt(d (eta lambda / 2 + 1 / W_s))), and an
    attack on it a shift that is larger. The price: an attack on a run that does travel is not told apart from the
    journey. And a loss whose gradient saturates far away (its Hessian there much smaller than A) shifts its innovations
    by more than the gradient it has left: such a journey is not recognised, and alarms.
    """

    def __init__(self, dim: int, replicates: int, first: int) -> None:
        self.places = Candidates(dim, replicates, first)

    def update(self, position: int, place: FloatArray) -> None:
        """Remember u_s (d, R) at the newest position s, the same that the mean channel takes in."""
        if position:
            self.places.keep(position, 0, 0.0, place)

    def may_explain(self, mean: MeanChannel, peak: Peak, contraction: float | FloatArray) -> BoolArray:
        """Whether the gradient left at the peak is larger than the shift, and larger than noise; (R,).

        `contraction` is eta lambda_max(A) at the onset: half of it bounds the variance of u_s in each direction.
        """
        kept = mean.candidates
        runs = np.arange(len(peak.position))
        # Both hold the same positions in the same slots.
        slot = (kept.positions[:, None] == peak.position).argmax(axis=0)
        mass, total = kept.masses[slot], kept.sums[slot, :, runs].T
        before = total / mass
        shift = (mean.total - total) / (mean.mass - mass) - before
        gradient = before - self.places.sums[slot, :, runs].T
        size = (gradient**2).sum(axis=0)
        dim = len(before)
        noise = (contraction / 2 + 1.0 / mass) * (np.sqrt(dim) + _SIGNIFICANT) ** 2
        return (size > (shift**2).sum(axis=0)) & (size > noise)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What has to be stored to go on later."""
        return self.places.arrays()

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what `arrays` returned."""
        self.places.restore(arrays)
