"""Watch many finished runs at once: the monitor's own statistics, over R paths instead of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.innovations import innovations, step_sizes_between
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.detect.watch import Watch
from fedgauss.step_sizes import StepSizes


@dataclass(frozen=True)
class WatchedRuns:
    """What a monitor would have said of each run after each round."""

    steps: npt.NDArray[np.int64]  # the step at the end of each round                                   (J,)
    mean: FloatArray  # the mean channel's statistic                                                  (J, R)
    spread: FloatArray  # the spread channel's                                                        (J, R)
    onsets: npt.NDArray[np.int64]  # the step from which on the louder channel sees a change          (J, R)
    alarms: BoolArray  # whether the monitor alarms                                                   (J, R)
    travelling: BoolArray  # whether it says "still travelling" instead                               (J, R)

    @property
    def alarm_step(self) -> npt.NDArray[np.int64]:
        """The step of each run's first alarm; 0 where there was none, (R,)."""
        return self._of_first(self.steps[:, None])

    @property
    def alarm_onset(self) -> npt.NDArray[np.int64]:
        """The onset that the first alarm names; 0 where there was none, (R,)."""
        return self._of_first(self.onsets)

    def _of_first(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Values (J, R) or (J, 1) in the round of the first alarm; 0 where there was none."""
        first = self.alarms & (np.cumsum(self.alarms, axis=0) == 1)
        return np.where(first, values, 0).max(axis=0, initial=0)


def watch_runs(
    lin: Linearization,
    steps: StepSizes | ArrayLike,
    means: ArrayLike,
    sync_every: int,
    limits: Boundary | None = None,
    start: ArrayLike | None = None,
    alpha: float = 0.05,
    horizon: int | None = None,
) -> WatchedRuns:
    """The monitor over R runs: `means` is (R, J, d), Y after each of J rounds; `start` is Y_0, one for all.

    Thresholds are those of a monitor with this alpha and horizon, unless `limits` says otherwise.
    """
    parts, sync_every = innovations(lin, steps), _checks.whole("sync_every", sync_every)
    if limits is None:
        limits = boundary(lin.dim, sync_every, alpha, horizon, 0, parts.whitening)
    table = np.ascontiguousarray(np.moveaxis(_checks.real_array("means", means, (None, None, lin.dim)), 0, -1))
    n_rounds, dim, replicates = table.shape
    watch = Watch(dim, sync_every, replicates, parts.whitening.tempering)
    ends = sync_every * np.arange(1, n_rounds + 1)
    tops = np.zeros((2, n_rounds, replicates))
    onsets = np.zeros((n_rounds, replicates), dtype=np.int64)
    alarms, travelling = np.zeros((2, n_rounds, replicates), dtype=np.bool_)
    alarmed = np.zeros(replicates, dtype=np.bool_)
    last = None
    if start is not None:
        last = np.repeat(_checks.real_array("start", start, shape=(dim,))[:, None], replicates, axis=1)
    for j, now in enumerate(table):
        if last is None:
            watch.skip()
        else:
            before = int(ends[j]) - sync_every
            block = parts.block(before, int(ends[j]))
            place = parts.place(last)
            mean, spread = watch.update(parts.whiten(block, last, now), block.weight, before, place)
            high, wide = limits.at(int(ends[j]))
            tops[:, j] = mean.statistic, spread.statistic
            louder = mean.statistic * wide >= spread.statistic * high
            onsets[j] = np.where(louder, mean.step, spread.step) + 1
            loud = (mean.statistic > high) | (spread.statistic > wide)
            if np.any(loud & louder):
                eta = step_sizes_between(parts.steps, 0, before)[np.maximum(mean.step, 1) - 1]
                travelling[j] = (
                    loud & louder & watch.travel.may_explain(watch.mean, mean, eta * parts.largest_curvature)
                )
            travelling[j] &= ~alarmed  # as the monitor, which takes no alarm back
            alarms[j] = loud & ~travelling[j]
            alarmed |= alarms[j]
        last = now
    return WatchedRuns(ends, tops[0], tops[1], onsets, alarms, travelling)
