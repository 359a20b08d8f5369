"""The spread and the quiet channel: noise that grows or shrinks while the mean stays where it is."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.candidates import Candidates, combined
from fedgauss.detect.channel import Channel, Conditions, OnsetSpan, Peak, RoundSeen, check_peak, no_peak
from fedgauss.detect.stretch import Ahead, CandidatesAhead, RoundsSeen, running

_GROUP = 10  # steps, at least, behind each residual
_PRIOR = 50.0  # residuals of exactly the expected size, put before the first: early ratios stay near one
_CAP = 0.99  # residuals count up to this quantile of chi^2_d: the noise is not quite Gaussian
_FLOOR = 0.1  # and in the quiet channel from this one on: else a single residual near zero would count for many
_FIRST = 2


def capped_mean(dim: int, at: float = _CAP) -> tuple[float, float]:
    """A quantile c of chi^2_d, the .99 point by default, and E[min(chi^2_d, c)] = d F_{d+2}(c) + c (1 - F_d(c))."""
    cap = 2.0 * float(special.gammaincinv(dim / 2, at))
    return cap, float(dim * special.chdtr(dim + 2, cap) + cap * special.chdtrc(dim, cap))


def floored_mean(dim: int) -> tuple[float, float]:
    """The .1 point f of chi^2_d, and how much larger E[max(chi^2_d, f)] is: f F_d(f) - d F_{d+2}(f)."""
    floor = 2.0 * float(special.gammaincinv(dim / 2, _FLOOR))
    return floor, float(floor * _FLOOR - dim * special.chdtr(dim + 2, floor))


class SpreadChannel(Channel, tabulated=True):
    """The gradient noise grew: a likelihood ratio for the size of recursive residuals, after s against before.

    Rounds are taken in groups of ceil(10 / tau). A group of weight w and mean x, after a past of weight N and mean M,
    has the residual sqrt(w N / (N + w)) (x - M): N(0, I) and independent of the past under the null. q is its squared
    norm, capped, over its Gaussian mean. For a candidate s among t residuals, n1 = 50 + s, n2 = t - s,
    r1 = (50 + sum of q up to s) / n1, r2 = the mean of q after s, ra = that of all; where r2 > r1

        L_s = d [(n1 + n2) log ra - n1 log r1 - n2 log r2],  0 elsewhere,

    and the statistic is the root of 3 log sum_s exp(L_s / 3), see `candidates.combined`.
    """

    name, share, alarm_words = "spread", 0.05, "gradient noise grew"
    saved = (
        "rounds",
        "count",
        "began",
        "weight",
        "mass",
        "sum",
        "total",
        "size",
        "statistic",
        "step",
        "rounds_before",
        "candidates",
    )
    heavier_when_estimated = False  # residuals are capped

    def begin(self, conditions: Conditions) -> None:
        """No rounds yet."""
        dim, replicates = conditions.dim, conditions.replicates
        self.group = math.ceil(_GROUP / conditions.sync_every)
        self.rounds = 0  # in the group that is filling
        self.count = 0  # residuals so far
        self.began = 0  # the step at which the filling group began
        self.weight, self.mass = 0.0, 0.0
        self.sum, self.total = np.zeros((dim, replicates)), np.zeros((dim, replicates))
        self.size = np.zeros((1, replicates))
        self.candidates = Candidates(1, replicates, _FIRST)
        self.statistic, self.step, self.rounds_before = no_peak(replicates)
        self._cap, self._expected = capped_mean(dim)

    def dof(self, dim: int) -> int:
        """One: the statistic is about a single ratio of sizes."""
        return 1

    def update(self, seen: RoundSeen) -> Peak:
        """Take in the innovations x_j with their weight."""
        if not self.rounds:
            self.began = seen.before
        self.rounds += 1
        self.weight += seen.weight
        self.sum += seen.weight * seen.x
        if self.rounds == self.group:
            if self.mass > 0.0:
                self._add(self._residual_size())
            self.mass += self.weight
            self.total += self.sum
            self.rounds, self.weight = 0, 0.0
            self.sum = np.zeros_like(self.sum)
        return Peak(self.statistic, self.step, self.rounds_before)

    def ahead(self, seen: RoundsSeen) -> Ahead | None:
        """Where every round is a group of its own, and there are residuals: prefix sums first, then the evidence."""
        if self.group > 1 or self.rounds or not len(self.candidates.positions):
            return None
        weighted = seen.weight[:, None] * seen.x
        masses, totals = running(self.mass, seen.weight), running(self.total[:, 0], weighted)
        gap = weighted / seen.weight[:, None] - totals[:-1] / masses[:-1, None]
        square = np.einsum("cdr,cdr->cr", gap[..., None], gap[..., None])[:, 0]
        square = square * (seen.weight * masses[:-1] / (masses[:-1] + seen.weight))
        sizes = running(self.size[0], self._size_of(square)[:, None])
        counts = self.count + np.arange(len(seen.x))
        kept = CandidatesAhead(self.candidates, self.count, seen.before, counts.astype(np.float64), sizes[:-1])
        with np.errstate(divide="ignore", invalid="ignore"):  # in slots that are still empty
            evidence = self._compared(kept.sums[..., 0], kept.masses, sizes[1:], (counts + 1)[:, None])
        statistic = np.sqrt(kept.combined(evidence))

        def take(k: int) -> None:
            kept.take(k)
            self.count, self.began = self.count + k, int(seen.before[k - 1])
            self.mass, self.total, self.size = float(masses[k]), totals[k, :, None].copy(), sizes[k, :, None].copy()
            slot = np.argmax(np.where(kept.valid[k - 1], evidence[k - 1], -1.0), keepdims=True)
            self.statistic = statistic[k - 1 : k].copy()
            self.step, self.rounds_before = self.candidates.steps[slot], self._rounds_before(slot)

        return Ahead(statistic, take)

    def _residual_size(self) -> FloatArray:
        """q of the group that is full."""
        gap = self.sum / self.weight - self.total / self.mass
        square = np.einsum("dr,dr->r", gap, gap) * (self.weight * self.mass / (self.mass + self.weight))
        return self._size_of(square)

    def _size_of(self, square: FloatArray) -> FloatArray:
        """q from squared norms of residuals."""
        return np.minimum(square, self._cap) / self._expected

    def _add(self, q: FloatArray) -> None:
        """Compare the sizes after each candidate with those before, q among them."""
        kept = self.candidates
        if self.count:
            kept.keep(self.count, self.began, float(self.count), self.size)
        self.count += 1
        self.size += q
        if not len(kept.positions):
            return
        evidence = self._evidence()
        best = evidence.argmax(axis=0)
        self.statistic = np.sqrt(combined(evidence, evidence[best, np.arange(len(best))]))
        self.step, self.rounds_before = kept.steps[best], self._rounds_before(best)

    def _evidence(self) -> FloatArray:
        """L of every candidate, (C, R)."""
        kept = self.candidates
        return self._compared(kept.sums[:, 0], kept.masses[:, None], self.size, self.count)

    def _compared(self, before: FloatArray, masses: FloatArray, size: FloatArray, count: Any) -> FloatArray:
        """L from sizes before candidates and of all residuals, and how many residuals both are of."""
        n1, n2 = _PRIOR + masses, count - masses
        r1, r2 = (_PRIOR + before) / n1, (size - before) / n2
        pooled = (_PRIOR + size) / (_PRIOR + count)
        changed = self._changed(r1, r2)
        ratio = (n1 + n2) * np.log(pooled) - n1 * np.log(r1) - n2 * np.log(np.where(changed, r2, 1.0))
        return len(self.total) * np.where(changed, np.maximum(ratio, 0.0), 0.0)

    def _changed(self, before: FloatArray, after: FloatArray) -> BoolArray:
        """Whether sizes changed as the channel looks for."""
        return after > before

    def _rounds_before(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Rounds before candidates. The first group has no residual: it lies before all that are counted."""
        return (self.candidates.positions[slots] + 1) * self.group

    def check(self, rounds: int, step: int) -> None:
        """All rounds are in groups, the first of which has no residual, and sizes are not negative."""
        kept, first = self.candidates, self.mass > 0.0
        kept.check(self.count, step, float(self.count))
        counted = (self.count + first) * self.group + self.rounds == rounds and (first or not self.count)
        filling = 0 <= self.rounds < self.group and (self.weight > 0.0) == (self.rounds > 0)
        if not counted or not filling or min(self.weight, self.mass) < 0.0:
            raise ValueError("groups of the spread channel must have all rounds")
        sizes = np.concatenate([kept.sums.ravel(), self.size.ravel(), self.statistic])
        if (sizes < 0.0).any() or not np.array_equal(kept.masses, kept.positions):
            raise ValueError("sizes of the spread channel must not be negative")
        check_peak(Peak(self.statistic, self.step, self.rounds_before), rounds, step)

    def onset_span(self, peak: Peak) -> OnsetSpan:
        """From the candidates whose L is near the largest."""
        kept = self.candidates
        earliest, latest = kept.span(self._evidence())
        return OnsetSpan(kept.steps[earliest], self._rounds_before(earliest), kept.steps[latest])


class QuietChannel(SpreadChannel, tabulated=True):
    """The gradient noise shrank: `SpreadChannel` where r2 < r1, with sizes that count from the .1 point of chi^2_d on.

    Clients that send what is not from their data, the same update again or no update at all, make a run quieter.
    """

    name, share, alarm_words = "quiet", 0.05, "gradient noise shrank"

    def begin(self, conditions: Conditions) -> None:
        """No rounds yet."""
        super().begin(conditions)
        self._floor, more = floored_mean(conditions.dim)
        self._expected += more

    def _size_of(self, square: FloatArray) -> FloatArray:
        return np.clip(square, self._floor, self._cap) / self._expected

    def _changed(self, before: FloatArray, after: FloatArray) -> BoolArray:
        return after < before
