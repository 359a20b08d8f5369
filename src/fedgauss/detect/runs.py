"""Watch many finished runs at once: the monitor's own statistics and rule, over R paths instead of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.channel import Channel, Conditions, RoundSeen, checked_channels
from fedgauss.detect.innovations import innovations
from fedgauss.detect.thresholds import Boundary, boundary
from fedgauss.detect.watch import CHANNELS_WITH_UPLOADS, DEFAULT_CHANNELS, Watch, rounds_to_drop
from fedgauss.step_sizes import StepSizes


@dataclass(frozen=True)
class WatchedRuns:
    """What a monitor would have said of each of R runs after each of J rounds.

    Attributes
    ----------
    steps : (J,) int
        The step at the end of each round.
    statistics : mapping of str to (J, R)
        By channel name.
    onsets : (J, R) int
        The first affected step, as estimated by the channel nearest to its threshold or furthest above it.
    alarms : (J, R) bool
        Whether the monitor alarms.
    travelling : (J, R) bool
        Whether it says "still travelling" instead.
    """

    steps: npt.NDArray[np.int64]
    statistics: Mapping[str, FloatArray]
    onsets: npt.NDArray[np.int64]
    alarms: BoolArray
    travelling: BoolArray

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
    channels: Sequence[Channel] | None = None,
    pulls: ArrayLike | None = None,
) -> WatchedRuns:
    """The monitor over R finished runs.

    Parameters
    ----------
    lin : Linearization
        Hessians and gradient noise of the clients.
    steps : StepSizes or array_like
        eta_t.
    means : (R, J, d) array_like
        Y of each run after each round.
    sync_every : int
        Steps between two rounds.
    limits : Boundary, optional
        Thresholds; those of a monitor with this alpha and horizon by default.
    start : (d,) array_like, optional
        Y_0, the same for all runs.
    alpha, horizon, channels
        As in `Monitor`.
    pulls : (R, J, K, d) array_like, optional
        `client_innovations` of each run, for channels that look at clients.

    Returns
    -------
    WatchedRuns

    Examples
    --------
    >>> seen = watch_runs(lin, steps, runs.path, sync_every=20, horizon=500)  # doctest: +SKIP
    >>> (seen.alarm_step > 0).mean()                                          # doctest: +SKIP
    """
    parts, sync_every = innovations(lin, steps), _checks.whole("sync_every", sync_every)
    usual = DEFAULT_CHANNELS if pulls is None else CHANNELS_WITH_UPLOADS
    channels = usual if channels is None else checked_channels(channels)
    if limits is None:
        limits = boundary(lin.dim, sync_every, alpha, horizon, 0, parts.whitening, channels)
    names = [channel.name for channel in channels]
    if list(limits.levels) != names:
        raise ValueError(f"limits must have thresholds of the channels {names}; they are of {list(limits.levels)}.")
    table = np.ascontiguousarray(np.moveaxis(_checks.real_array("means", means, (None, None, lin.dim)), 0, -1))
    n_rounds, dim, replicates = table.shape
    drop, tempering = rounds_to_drop(sync_every), parts.whitening.tempering
    conditions = Conditions(dim, replicates, sync_every, drop, tempering, lin, horizon)
    theirs = None if pulls is None else np.moveaxis(np.asarray(pulls, dtype=np.float64), 0, -1)  # (J, K, d, R)
    watch = Watch(channels, conditions)
    ends = sync_every * np.arange(1, n_rounds + 1)
    statistics = {name: np.zeros((n_rounds, replicates)) for name in names}
    onsets = np.zeros((n_rounds, replicates), dtype=np.int64)
    alarms, travelling = np.zeros((2, n_rounds, replicates), dtype=np.bool_)
    alarmed = np.zeros(replicates, dtype=np.bool_)
    last = None
    if start is not None:
        last = np.repeat(_checks.real_array("start", start, shape=(dim,))[:, None], replicates, axis=1)
    for j, now in enumerate(table):
        if last is None:
            peaks = watch.skip()
        else:
            before = int(ends[j]) - sync_every
            block = parts.block(before, int(ends[j]))
            x, own = parts.whiten(block, last, now), None if theirs is None else theirs[j]
            peaks = watch.update(RoundSeen(x, block.weight, before, parts.place(last), pulls=own))
        said = watch.judge(peaks, limits.at(int(ends[j])), alarmed, parts.contraction_at)
        for name, peak in zip(names, peaks, strict=True):
            statistics[name][j] = peak.statistic
        onsets[j], alarms[j], travelling[j] = said.onset, said.alarm, said.travelling
        alarmed |= said.alarm
        last = now
    return WatchedRuns(ends, statistics, onsets, alarms, travelling)
