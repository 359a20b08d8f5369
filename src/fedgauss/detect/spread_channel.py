"""The spread channel: sees noise that grows while the mean stays, which the mean channel cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from fedgauss._types import FloatArray
from fedgauss.detect.candidates import Candidates
from fedgauss.detect.mean_channel import Peak, no_peak

_PRIOR = 50.0  # residuals of exactly the expected size, put before the first: early ratios stay near one
_CAP = 0.99  # residuals count up to this quantile of chi^2_d: the noise is not quite Gaussian
_FIRST = 2


def capped_mean(dim: int) -> tuple[float, float]:
    """The .99 point c of chi^2_d, and E[min(chi^2_d, c)] = d F_{d+2}(c) + c (1 - F_d(c))."""
    cap = float(stats.chi2.ppf(_CAP, dim))
    return cap, float(dim * stats.chi2.cdf(cap, dim + 2) + cap * stats.chi2.sf(cap, dim))


class SpreadChannel:
    """A likelihood ratio for the size of recursive residuals, after s against before.

    Rounds are taken in groups of `group`. A group of weight w and mean x, after a past of weight N and mean M, has the
    residual sqrt(w N / (N + w)) (x - M): N(0, I) and independent of the past under the null. q is its squared norm,
    capped, over its Gaussian mean. For a candidate s among t residuals, n1 = 50 + s, n2 = t - s,
    r1 = (50 + sum of q up to s) / n1, r2 = the mean of q after s, ra = that of all; where r2 > r1

        L = d [(n1 + n2) log ra - n1 log r1 - n2 log r2],    and the statistic is sqrt(max_s L).
    """

    def __init__(self, dim: int, replicates: int, group: int) -> None:
        self.group = group
        self.rounds = 0  # in the group that is filling
        self.count = 0  # residuals so far
        self.began = 0  # the step at which the filling group began
        self.weight, self.mass = 0.0, 0.0
        self.sum, self.total = np.zeros((dim, replicates)), np.zeros((dim, replicates))
        self.size = np.zeros((1, replicates))
        self.candidates = Candidates(1, replicates, _FIRST)
        self.peak = no_peak(replicates)
        self._cap, self._expected = capped_mean(dim)

    def update(self, x: FloatArray, weight: float, before: int) -> Peak:
        """Take in x_j (d, R) with its weight; `before` is the step at which the round began."""
        if not self.rounds:
            self.began = before
        self.rounds += 1
        self.weight += weight
        self.sum += weight * x
        if self.rounds == self.group:
            if self.mass > 0.0:
                self._add(self._residual_size())
            self.mass += self.weight
            self.total += self.sum
            self.rounds, self.weight = 0, 0.0
            self.sum = np.zeros_like(self.sum)
        return self.peak

    def _residual_size(self) -> FloatArray:
        gap = self.sum / self.weight - self.total / self.mass
        square = np.einsum("dr,dr->r", gap, gap) * (self.weight * self.mass / (self.mass + self.weight))
        return np.minimum(square, self._cap) / self._expected

    def _add(self, q: FloatArray) -> None:
        kept = self.candidates
        if self.count:
            kept.keep(self.count, self.began, float(self.count), self.size)
        self.count += 1
        self.size += q
        if not kept.count:
            return
        before, n1 = kept.sums[:, 0], (_PRIOR + kept.masses)[:, None]
        n2 = (self.count - kept.masses)[:, None]
        r1, r2 = (_PRIOR + before) / n1, (self.size - before) / n2
        pooled = (_PRIOR + self.size) / (_PRIOR + self.count)
        grown = r2 > r1
        ratio = (n1 + n2) * np.log(pooled) - n1 * np.log(r1) - n2 * np.log(np.where(grown, r2, 1.0))
        ratio = np.where(grown, np.maximum(ratio, 0.0), 0.0)
        best = ratio.argmax(axis=0)
        top = ratio[best, np.arange(len(best))]
        self.peak = Peak(np.sqrt(len(self.total) * top), kept.steps[best], kept.positions[best])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """What has to be stored to go on later."""
        whole = np.array([self.rounds, self.count, self.began])
        own = {"whole": whole, "masses": np.array([self.weight, self.mass]), "sum": self.sum, "total": self.total}
        own |= {"size": self.size, "peak": self.peak.statistic}
        own |= {"peak_step": self.peak.step, "peak_position": self.peak.position}
        return own | {f"candidates.{name}": array for name, array in self.candidates.arrays().items()}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what `arrays` returned."""
        self.rounds, self.count, self.began = (int(number) for number in arrays["whole"])
        self.weight, self.mass = (float(number) for number in arrays["masses"])
        self.sum, self.total, self.size = (np.array(arrays[name], float) for name in ("sum", "total", "size"))
        where = (np.array(arrays[name], dtype=np.int64) for name in ("peak_step", "peak_position"))
        self.peak = Peak(np.array(arrays["peak"], float), *where)
        part = "candidates."
        self.candidates.restore({k.removeprefix(part): v for k, v in arrays.items() if k.startswith(part)})
