"""The mean channel: a CUSUM of whitened innovations, tempered where segments are short.

Its alarm may be the run's own journey: far from its optimum a non-linear loss looks like a change (`Travel`).
"""

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import Candidates, combined
from fedgauss.detect.channel import TEMPERING, Channel, Conditions, OnsetSpan, Peak, RoundSeen, no_peak
from fedgauss.detect.saved import Saved
from fedgauss.detect.stretch import Ahead, CandidatesAhead, RoundsSeen, running

_SIGNIFICANT = 4.0  # standard deviations that a gradient must have to count as a journey
_STRETCH = 20.0  # a shift this many times larger than the way made along it is not the journey's doing


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
    """The mean gradient moved: for each candidate s, z^2 = |S_s - f S_t|^2 / m, tempered to T_s^2.

    Here f = W_s / W_t and m = W_s (1 - f); W and S are the prefix sums of the weights w_j and of w_j x_j. z is the
    standardised difference between the mean innovation before and after s: chi with d degrees of freedom under the
    null, for each s and t. The statistic is the root of 3 log sum_s exp(T_s^2 / 3), see `candidates.combined`, and the
    onset the s with the largest T. A shift that the run's journey may explain is withheld, see `Travel`.
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
        if not len(kept.positions):
            return no_peak(seen.x.shape[1])
        t2 = self._evidence()
        best = t2.argmax(axis=0)
        statistic = np.sqrt(combined(t2, t2[best, np.arange(len(best))]))
        return Peak(statistic, kept.steps[best], kept.positions[best])

    def ahead(self, seen: RoundsSeen) -> Ahead | None:
        """Prefix sums first, then the evidence of all candidates after every round."""
        if not len(self.candidates.positions):
            return None
        masses = running(self.mass, seen.weight)
        totals = running(self.total[:, 0], seen.weight[:, None] * seen.x)
        kept = CandidatesAhead(self.candidates, self.position, seen.before, masses[:-1], totals[:-1])
        walked = running(self.travel.total[:, 0], seen.weight[:, None] * seen.place)
        mass, now = kept.masses, masses[1:, None]
        share = mass / now
        with np.errstate(divide="ignore", invalid="ignore"):  # in slots that are still empty
            m = mass * (1.0 - share)
            gap = share[..., None] * totals[1:, None]
            flat = np.subtract(kept.sums, gap, out=gap).reshape(-1, gap.shape[-1], 1)
            z2 = np.einsum("cdr,cdr->cr", flat, flat).reshape(m.shape)
            z2 /= m
            t2 = tempered(z2, m, self.tempering)
        statistic = np.sqrt(kept.combined(t2))

        def take(k: int) -> None:
            kept.take(k)
            nothing, both = np.zeros(k), np.concatenate([seen.place[:k], walked[:k]], axis=1)
            kept.fill(self.travel.places, k, nothing.astype(np.int64), nothing, both)
            self.position += k
            self.mass, self.total = float(masses[k]), totals[k, :, None].copy()
            self.travel.total = walked[k, :, None].copy()

        return Ahead(statistic, take)

    def _evidence(self) -> FloatArray:
        """T^2 of every candidate, (C, R)."""
        kept = self.candidates
        share = kept.masses / self.mass
        m = (kept.masses * (1.0 - share))[:, None]
        gap = kept.scratch  # with thousands of replicates a fresh array each round would cost more than the sums
        np.multiply(share[:, None, None], self.total, out=gap)
        np.subtract(kept.sums, gap, out=gap)
        return tempered(np.einsum("cdr,cdr->cr", gap, gap) / m, m, self.tempering)

    def onset_span(self, peak: Peak) -> OnsetSpan:
        """From the candidates whose T^2 is near the largest."""
        kept = self.candidates
        earliest, latest = kept.span(self._evidence())
        return OnsetSpan(kept.steps[earliest], kept.positions[earliest], kept.steps[latest])

    def check(self, rounds: int, step: int) -> None:
        """Candidates of both kinds lie in the same slots, and have seen less than all rounds."""
        self.candidates.check(rounds, step, self.mass)
        places, masses = self.travel.places, self.candidates.masses
        alike = np.array_equal(places.positions, self.candidates.positions)
        if self.position != rounds or not alike or (masses <= 0.0).any() or (masses >= self.mass).any():
            raise ValueError("the mean channel must have seen all rounds")
        places.check(rounds, 0, 0.0)

    def may_be_travel(self, peak: Peak, contraction: FloatArray) -> BoolArray:
        """Whether a run that has not arrived may show this shift by itself."""
        return self.travel.may_explain(self, peak, contraction)


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
