"""The mean channel: a CUSUM of whitened innovations, tempered where segments are short."""

from __future__ import annotations

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.channel import TEMPERING, Channel, Conditions, Peak, RoundSeen, no_peak
from fedgauss.detect.travelling import Travel


def tempered(z2: FloatArray, m: FloatArray, c: float = TEMPERING) -> FloatArray:
    """T^2 = z^2 / (1 + min(c z^2 / m, z / sqrt(m))), with m the harmonic mass of the two segments, in steps.

    The gradient of a regression is a product of Gaussians, so a short segment has heavier tails than z supposes. The
    first penalty allows for kurtosis at moderate z, the second (Bernstein's) takes over at large z, where it
    still lets T grow without bound: one huge round is seen.
    """
    ratio = z2 / m
    bernstein = np.sqrt(ratio)
    ratio *= c
    penalty = np.minimum(ratio, bernstein, out=ratio)
    penalty += 1.0
    return np.divide(z2, penalty, out=penalty)


class MeanChannel(Channel, tabulated=True):
    """The mean gradient moved: max over candidates s of T, with z^2 = |S_s - f S_t|^2 / m.

    Here f = W_s / W_t and m = W_s (1 - f); W and S are the prefix sums of the weights w_j and of w_j x_j. z is the
    standardised difference between the mean innovation before and after s: chi with d degrees of freedom under the
    null, for each s and t. A shift that the run's journey may explain is withheld, see `Travel`.
    """

    name, share, alarm_words = "mean", 0.9, "mean gradient moved"
    saved = ("position", "mass", "total", "candidates", "travel")

    def begin(self, conditions: Conditions) -> None:
        """No rounds yet."""
        dim, replicates, first = conditions.dim, conditions.replicates, conditions.first
        self.tempering = conditions.tempering
        self.position = 0
        self.mass = 0.0
        self.total = np.zeros((dim, replicates))
        self.candidates = Candidates(dim, replicates, first)
        self.travel = Travel(dim, replicates, first)

    def update(self, seen: RoundSeen) -> Peak:
        """Take in the innovations x_j with their weight."""
        kept = self.candidates
        if seen.place is not None:
            self.travel.update(self.position, seen.place, seen.weight)
        if self.position:
            kept.keep(self.position, seen.before, self.mass, self.total)
        self.position += 1
        self.mass += seen.weight
        self.total += seen.weight * seen.x
        if not kept.count:
            return no_peak(seen.x.shape[1])
        share = kept.masses / self.mass
        m = (kept.masses * (1.0 - share))[:, None]
        gap = kept.scratch  # with thousands of replicates a fresh array each round would cost more than the sums
        np.multiply(share[:, None, None], self.total, out=gap)
        np.subtract(kept.sums, gap, out=gap)
        t2 = tempered(np.einsum("cdr,cdr->cr", gap, gap) / m, m, self.tempering)
        best = t2.argmax(axis=0)
        return Peak(np.sqrt(t2[best, np.arange(len(best))]), kept.steps[best], kept.positions[best])

    def may_be_travel(self, peak: Peak, contraction: FloatArray) -> BoolArray:
        """Whether a run that has not arrived may show this shift by itself."""
        return self.travel.may_explain(self, peak, contraction)
