"""All channels together over R runs at once, and the rule for an alarm: the same for one run and for thousands."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.channel import Channel, Conditions, Peak, RoundSeen, no_peak
from fedgauss.detect.client_channel import ClientChannel
from fedgauss.detect.mean_channel import MeanChannel
from fedgauss.detect.saved import Arrays, Saved, part, prefixed
from fedgauss.detect.spread_channel import QuietChannel, SpreadChannel

DEFAULT_CHANNELS: tuple[Channel, ...] = (MeanChannel(), SpreadChannel(), QuietChannel())
CHANNELS_WITH_UPLOADS: tuple[Channel, ...] = (*DEFAULT_CHANNELS, ClientChannel())
_SETTLE = 20  # steps left out at the beginning, and again before the earliest onset


def rounds_to_drop(sync_every: int) -> int:
    """b0 = ceil(20 / tau): the first rounds, whose innovations are neither Gaussian enough nor of the stated weight."""
    return math.ceil(_SETTLE / sync_every)


class Judgement(NamedTuple):
    """What the channels say of each of R runs after a round: the words of the one furthest above its threshold.

    Where none is above, it is the one nearest to it.
    """

    channel: npt.NDArray[np.int64]  # its number                                                    (R,)
    statistic: FloatArray  # (R,)
    threshold: FloatArray  # (R,)
    alarm: BoolArray  # (R,)
    travelling: BoolArray  # above the threshold, and yet perhaps the run's own journey             (R,)
    onset: npt.NDArray[np.int64]  # the estimated first affected step                               (R,)
    rounds: npt.NDArray[np.int64]  # watched rounds before it                                       (R,)


class Watch(Saved):
    """The statistics of all channels after each round, for R runs that share their weights and steps."""

    saved = ("to_drop", "rounds")

    def __init__(self, channels: Sequence[Channel], conditions: Conditions) -> None:
        self.to_drop = self._first = conditions.first
        self.rounds = 0  # taken in
        self.replicates = conditions.replicates
        self.channels = tuple(channel.started(conditions) for channel in channels)

    def update(self, seen: RoundSeen) -> tuple[Peak, ...]:
        """Take in a round, unless it is one of the first, which are left out."""
        if self.to_drop:
            return self.skip()
        self.rounds += 1
        return tuple(channel.update(seen) for channel in self.channels)

    def skip(self) -> tuple[Peak, ...]:
        """Count a round without an innovation (the first, when Y_0 is not known) as one of those left out."""
        self.to_drop = max(self.to_drop - 1, 0)
        return (no_peak(self.replicates),) * len(self.channels)

    def judge(
        self,
        peaks: Sequence[Peak],
        limits: Sequence[float],
        alarmed: BoolArray,
        contraction: Callable[[npt.NDArray[np.int64]], FloatArray],
    ) -> Judgement:
        """Statistics against thresholds: the rule for an alarm.

        Parameters
        ----------
        peaks : of each channel, as `update` returned them
        limits : of each channel, the threshold in force
        alarmed : (R,) bool
            Runs that alarmed before. A shift that was once called an attack is not taken back as a journey to where
            the attack leads.
        contraction : callable
            From steps (R,) to eta lambda_max(A) there, (R,).
        """
        runs = np.arange(self.replicates)
        tops, bounds = np.stack([peak.statistic for peak in peaks]), np.array(limits)
        best = (tops / bounds[:, None]).argmax(axis=0)
        statistic, threshold = tops[best, runs], bounds[best]
        step, rounds = (np.stack(part)[best, runs] for part in ([p.step for p in peaks], [p.rounds for p in peaks]))
        over = ~(statistic <= threshold)  # what is not a number is no silence
        travelling = np.zeros_like(over)
        for i, (channel, peak) in enumerate(zip(self.channels, peaks, strict=True)):
            doubtful = over & (best == i) & ~alarmed
            if doubtful.any():
                travelling |= doubtful & channel.may_be_travel(peak, contraction(peak.step))
        return Judgement(best, statistic, threshold, over & ~travelling, travelling, step + 1, rounds)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """That of every channel, under its name."""
        held = super().state()
        for channel in self.channels:
            held |= prefixed(f"{channel.name}.", channel.state())
        return held

    def restore(self, arrays: Arrays) -> None:
        """Take up the state that `state` returned."""
        super().restore(arrays)
        for channel in self.channels:
            channel.restore(part(arrays, f"{channel.name}."))

    def check(self, taken_in: int, step: int) -> None:
        """Refuse a restored state that cannot be that after so many rounds, left out or not, at this step of SGD."""
        left_out = self._first - self.to_drop
        if not 0 <= left_out <= self._first or self.rounds != taken_in - left_out or (self.to_drop and self.rounds):
            raise ValueError(f"the channels must have seen all of {taken_in} rounds but the first {self._first}")
        for channel in self.channels:
            channel.check(self.rounds, step)

    def copied(self) -> Self:
        """Another one with a state of its own."""
        other = super().copied()
        other.channels = tuple(channel.copied() for channel in self.channels)
        return other
