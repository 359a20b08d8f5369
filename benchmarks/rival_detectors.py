"""Detectors with one knob each, behind one interface: tune it on honest runs, then ask for first alarms.

Before its first alarm no detector here depends on its threshold, so a run that is silent at one setting is silent at
every stricter one. That makes tuning a matter of counting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import rival_data
import ruptures
from changepoint_online import MDFocus, MDGaussian
from rival_data import Array, Stream
from river.drift import ADWIN, PageHinkley

import fedgauss as fg
from fedgauss.detect.runs import WatchedRuns, watch_runs
from fedgauss.detect.thresholds import Boundary, boundary

LEVEL = 0.05
STOCK_ADWIN = {"min_window_length": 5, "max_buckets": 5, "grace_period": 10}


class Alarms(NamedTuple):
    """The step of each run's first alarm, 0 for none, and the first step of the change that it names, if it does."""

    step: Array  # (R,)
    onset: Array | None


class Detector(Protocol):
    """What the comparison asks of a detector."""

    name: str
    knob: str  # what the threshold is

    def tune(self, null: Stream) -> float:
        """The least strict threshold under which at most .05 of these honest runs have an alarm."""

    def alarms(self, stream: Stream, threshold: float) -> Alarms:
        """First alarms at this threshold."""


def exceeded_by(maxima: Array, level: float) -> float:
    """The threshold that a share `level` of the runs exceeds."""
    return float(np.sort(maxima)[len(maxima) - int(level * len(maxima)) - 1])


@dataclass(frozen=True)
class Default:
    """fedgauss's own monitor with both channels; the knob multiplies its shipped boundary for a horizon of n steps."""

    every: int
    shipped: bool = False
    knob = "times the boundary"

    @property
    def name(self) -> str:
        """As it stands in the table."""
        return "default as shipped" if self.shipped else "default, tuned"

    def tune(self, null: Stream) -> float:
        """Both channels' thresholds are scaled together."""
        if self.shipped:
            return 1.0
        return exceeded_by(self.scores(null).max(axis=1), LEVEL)

    def scores(self, stream: Stream) -> Array:
        """The louder channel's statistic over its shipped threshold, (R, J)."""
        limits, seen = self._limits(1.0).at(rival_data.N_STEPS), self._watch(stream, 1.0)
        ratios = [top / limit for top, limit in zip(seen.statistics.values(), limits, strict=True)]
        return np.max(ratios, axis=0)[stream.dropped :].T

    def alarms(self, stream: Stream, threshold: float) -> Alarms:
        """What the monitor would have said."""
        seen = self._watch(stream, threshold)
        return Alarms(seen.alarm_step, seen.alarm_onset)

    def _limits(self, factor: float) -> Boundary:
        limits = boundary(2, self.every, LEVEL, rival_data.N_STEPS)
        return replace(limits, levels={name: factor * level for name, level in limits.levels.items()})

    def _watch(self, stream: Stream, factor: float) -> WatchedRuns:
        lin = fg.linearize(rival_data.linear())
        return watch_runs(lin, rival_data.STEPS, stream.means, self.every, self._limits(factor))


@dataclass(frozen=True)
class Focus:
    """changepoint-online's MDFocus with MDGaussian(): the likelihood ratio of a change in mean, mean before unknown.

    `library` runs the package, without pruning: over 24 values it is exact, faster, and `changepoint()` is right (after
    pruning it names the neighbour of the maximum). Otherwise the same statistic comes from arrays, for long streams.
    """

    library: bool = True
    name = "Focus"
    knob = "statistic"

    def tune(self, null: Stream) -> float:
        """A quantile of the largest statistic."""
        return exceeded_by(self.scores(null).max(axis=1), LEVEL)

    def scores(self, stream: Stream) -> Array:
        """The statistic after each value, (R, J)."""
        return self.paths(stream.values)[0]

    def alarms(self, stream: Stream, threshold: float) -> Alarms:
        """The first time that the statistic exceeds the threshold, and its argmax then."""
        statistic, before = self.paths(stream.values)
        loud = statistic > threshold
        first, runs = loud.argmax(axis=1), np.arange(len(loud))
        return Alarms(np.where(loud.any(axis=1), stream.ends[first], 0), stream.first_step(before[runs, first]))

    def paths(self, values: Array) -> tuple[Array, Array]:
        """The statistic at each time and the number of values before the change it points to, (R, J) each."""
        if self.library:
            pairs = [_focus_path(run, pruning_params=(2, 10_000)) for run in values]
        else:
            pairs = [_focus_arrays(values[i : i + 200]) for i in range(0, len(values), 200)]
        join = np.stack if self.library else np.concatenate
        return join([s for s, _ in pairs]), join([b for _, b in pairs])


def _focus_path(values: Array, **options: Any) -> tuple[Array, Array]:
    detector = MDFocus(MDGaussian(), **options)
    statistic, before = np.zeros(len(values)), np.zeros(len(values), dtype=np.int64)
    for j, value in enumerate(values):
        detector.update(value)
        if j:
            statistic[j], before[j] = detector.statistic(), detector.changepoint()["changepoint"]
    return statistic, before


def _focus_arrays(values: Array) -> tuple[Array, Array]:
    """|S_s - (s / t) S_t|^2 / (s (1 - s / t)), maximised over 0 < s < t: twice the log likelihood ratio."""
    runs, times, _ = values.shape
    sums = np.ascontiguousarray(np.moveaxis(np.cumsum(values, axis=1), 0, -1))  # (J, d, R)
    statistic, before = np.zeros((runs, times)), np.zeros((runs, times), dtype=np.int64)
    for t in range(2, times + 1):
        share = np.arange(1, t) / t
        gap = sums[: t - 1] - share[:, None, None] * sums[t - 1]
        ratio = np.einsum("sdr,sdr->sr", gap, gap) / (t * share * (1.0 - share))[:, None]
        best = ratio.argmax(axis=0)
        statistic[:, t - 1], before[:, t - 1] = ratio[best, np.arange(runs)], best + 1
    return statistic, before


def focus_difference(values: Array) -> float:
    """How far the statistic from arrays is from the package's, with its usual pruning: the largest difference."""
    packaged = np.stack([_focus_path(run)[0] for run in values])
    return float(np.abs(packaged - _focus_arrays(values)[0]).max())


@dataclass(frozen=True)
class River:
    """One of river's detectors on each coordinate; the run has an alarm when either has."""

    name: str
    knob: str
    make: Callable[[float], Any]  # a detector from the knob's value
    value: Callable[[float], float]  # the knob's value from a strictness: the larger, the fewer alarms
    bracket: tuple[float, float]  # a strictness that is too small and one that is too large
    scale: float = 1.0  # multiplies the values: ADWIN's bound supposes a range of one

    def tune(self, null: Stream) -> float:
        """Bisection over the strictness, after a tenth of the runs have shown where to look."""

        def fired(strictness: float, runs: Array) -> Array:
            return self.alarms(replace(null, values=null.values[runs]), self.value(strictness)).step > 0

        loose, strict = self.bracket
        everyone = np.arange(len(null))
        pilot = everyone[: len(null) // 10]
        loose = bisect(fired, pilot, int(4 * LEVEL * len(pilot)), loose, strict)
        return self.value(bisect(fired, everyone[fired(loose, everyone)], int(LEVEL * len(null)), loose, strict))

    def alarms(self, stream: Stream, threshold: float) -> Alarms:
        """Run both coordinates up to the earlier first alarm; neither detector names an onset."""
        times = np.array([self._first((self.scale * run.T).tolist(), threshold) for run in stream.values])
        return Alarms(np.where(times > 0, stream.ends[times - 1], 0), None)

    def _first(self, coordinates: list[list[float]], threshold: float) -> int:
        """How many values were seen at the first alarm; 0 for none."""
        best = 0
        for values in coordinates:
            detector = self.make(threshold)
            for j, value in enumerate(values[: best - 1] if best else values):
                detector.update(value)
                if detector.drift_detected:
                    best = j + 1
                    break
        return best


def bisect(fired: Callable[[float, Array], Array], runs: Array, allowed: int, loose: float, strict: float) -> float:
    """The least strictness at which at most `allowed` of the runs have an alarm; only undecided runs are run again."""
    certain = 0  # runs with an alarm even at `strict`
    for _ in range(40):
        middle = (loose + strict) / 2
        alarmed = fired(middle, runs)
        count = certain + int(alarmed.sum())
        if count > allowed:
            loose, runs = middle, runs[alarmed]
        else:
            strict, certain, runs = middle, count, runs[~alarmed]
        if count == allowed or not len(runs):
            break
    return strict


def adwin(name: str, scale: float = 1.0, **settings: Any) -> River:
    """ADWIN that looks after every value (clock 1); strictness is -log delta, and delta may exceed 1."""
    return River(
        name=name,
        knob="delta",
        make=lambda delta: ADWIN(delta=delta, clock=1, **settings),
        value=lambda strictness: float(np.exp(-strictness)),
        bracket=(-1.7, 25.0),
        scale=scale,
    )


def page_hinkley(name: str, delta: float) -> River:
    """Two-sided PageHinkley that may alarm from the first value on; strictness is the log of its threshold."""
    return River(
        name=name,
        knob="threshold",
        make=lambda threshold: PageHinkley(min_instances=1, delta=delta, threshold=threshold, mode="both"),
        value=lambda strictness: float(np.exp(strictness)),
        bracket=(-3.0, 7.0),
    )


class AlwaysFires:
    """An alarm at the first value, whatever it is."""

    name, knob = "always fires", "none"

    def tune(self, null: Stream) -> float:
        """It has nothing to tune."""
        return float("nan")

    def alarms(self, stream: Stream, threshold: float) -> Alarms:
        """All at once."""
        return Alarms(np.full(len(stream), stream.ends[0]), None)


def ruptures_onsets(stream: Stream, last_step: Array | None = None) -> Array:
    """Where KernelCPD (linear kernel, one change) cuts each run: all of it, or what was known at `last_step`, (R,)."""
    ends = stream.ends
    lengths = np.full(len(stream), len(ends)) if last_step is None else np.searchsorted(ends, last_step, "right")
    cutter = ruptures.KernelCPD(kernel="linear", min_size=1)
    cuts = [
        cutter.fit_predict(run[:n], n_bkps=1)[0] if n > 1 else 0 for run, n in zip(stream.values, lengths, strict=True)
    ]
    return stream.first_step(np.array(cuts))
