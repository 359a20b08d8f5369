"""Whether an alarm may be the run's own journey: far from its optimum, a non-linear loss looks like a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.channel import Peak
from fedgauss.detect.saved import Saved

if TYPE_CHECKING:
    from fedgauss.detect.mean_channel import MeanChannel

_SIGNIFICANT = 4.0  # standard deviations that a gradient must have to count as a journey
_STRETCH = 20.0  # a shift this many times larger than the way made along it is not the journey's doing


class Travel(Saved):
    """Compares the gradient left at the onset, and the way made since, with the shift that raised the alarm.

    Let u_s = M A Y_s, in the units of the innovations x. For a quadratic loss the innovations have a constant mean, so

        g_s = (mean of x up to s) - u_s      is the mean gradient at Y_s, and
        shift = (mean of x after s) - (mean of x up to s)

    is what the alarm is about. A loss with the Hessian H on its way shifts the mean of x by (A - H) times the way made.
    So a shift may be curvature, and the run still travelling, when all of these hold:

        |g_s| > |shift|                   there was more gradient to work off than the shift shows,
        |g_s| beyond noise                sd sqrt(d (eta lambda / 2 + 1 / W_s)): a run that has arrived has g_s near 0,
        |shift|^2 <= 20 |shift' way|      with way = (mean of u after s) - (mean of u up to s): the run moved along it.

    On logistic runs that travel, |shift|^2 / |shift' way| was below 15 in 99 of 100; on MNIST, where a run creeps along
    flat directions for ever, it was above 34 in 99 of 100 attacks. The price: an attack along the way of a run that is
    still travelling cannot be told from the journey. And a loss whose gradient saturates far away (with a Hessian there
    much smaller than A) shifts its innovations by more than the gradient that is left: such a journey is not
    recognised, and raises an alarm.
    """

    saved = ("total", "places")

    def __init__(self, dim: int, replicates: int, first: int) -> None:
        self.dim = dim
        self.total = np.zeros((dim, replicates))  # the sum over rounds of weight times u at their beginning
        self.places = Candidates(2 * dim, replicates, first)  # u_s, and that sum up to s

    def update(self, position: int, place: FloatArray, weight: float) -> None:
        """Take in u (d, R) at the beginning of a round; `position` counts the rounds before it."""
        if position:
            self.places.keep(position, 0, 0.0, np.concatenate([place, self.total]))
        self.total += weight * place

    def may_explain(self, mean: MeanChannel, peak: Peak, contraction: FloatArray) -> BoolArray:
        """Whether the run's journey may be what the peak shows; (R,).

        `contraction` is eta lambda_max(A) at the onset: half of it bounds the variance of u_s in each direction.
        """
        kept = mean.candidates
        runs = np.arange(len(peak.rounds))
        # Both hold the same positions in the same slots.
        slot = (kept.positions[:, None] == peak.rounds).argmax(axis=0)
        mass, total = kept.masses[slot], kept.sums[slot, :, runs].T
        place, earlier = np.split(self.places.sums[slot, :, runs].T, 2)
        shift = (mean.total - total) / (mean.mass - mass) - total / mass
        way = (self.total - earlier) / (mean.mass - mass) - earlier / mass
        gradient = total / mass - place
        size, square = (gradient**2).sum(axis=0), (shift**2).sum(axis=0)
        noise = (contraction / 2 + 1.0 / mass) * (np.sqrt(self.dim) + _SIGNIFICANT) ** 2
        along = np.abs((shift * way).sum(axis=0))
        return (size > square) & (size > noise) & (square <= _STRETCH * along)
