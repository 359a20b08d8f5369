"""The door for detector channels: a channel is one class, and everything else iterates over channels."""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._linearization import Linearization
from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.saved import Saved

if TYPE_CHECKING:
    from fedgauss.detect.stretch import Ahead, RoundsSeen

TEMPERING = 0.25  # where nothing is known of the gradients' tails
INVALID = "invalid update"  # what a verdict has in place of a channel when the update itself is refused


class Conditions(NamedTuple):
    """What a channel is told before the first round."""

    dim: int
    replicates: int  # R, the runs that are watched at once
    sync_every: int
    first: int  # rounds before the earliest onset: as many as are left out at the beginning
    tempering: float = TEMPERING  # how much less short segments count
    lin: Linearization | None = None  # of the clients; None in a calibration
    horizon: int | None = None  # steps over which alpha holds


class RoundSeen(NamedTuple):
    """One round of R runs, as channels see it."""

    x: FloatArray  # whitened innovations, with covariance near I / weight                              (d, R)
    weight: float  # in steps
    before: int  # the step after which the round began
    place: FloatArray | None = None  # M A (Y - theta*) at its beginning; None in a calibration         (d, R)
    uploads: FloatArray | None = None  # of one run, NaN for absent clients; None where unknown         (K, d)
    began: FloatArray | None = None  # where each client began the round; None for the last mean        (K, d)
    pulls: FloatArray | None = None  # client innovations, NaN for absent clients; None without uploads (K, d, R)


class Peak(NamedTuple):
    """A channel's statistic, and the change that it points to; (R,) each."""

    statistic: FloatArray
    step: npt.NDArray[np.int64]  # the last step before the change; -1 where there is no candidate yet
    rounds: npt.NDArray[np.int64]  # watched rounds before the change

    @property
    def finite(self) -> bool:
        """Whether the statistic of every run is a finite number."""
        return bool(np.isfinite(self.statistic).all())


class OnsetSpan(NamedTuple):
    """The changes that fit nearly as well as the peak: the last step before the earliest and the latest; (R,) each."""

    first: npt.NDArray[np.int64]
    rounds: npt.NDArray[np.int64]  # watched rounds before the earliest
    last: npt.NDArray[np.int64]


def no_peak(replicates: int) -> Peak:
    """What a channel shows before it has a candidate."""
    nowhere = np.zeros(replicates, dtype=np.int64)
    return Peak(np.zeros(replicates), nowhere - 1, nowhere)


def check_peak(peak: Peak, rounds: int, step: int) -> None:
    """Refuse a restored peak that points to the future."""
    steps, before = np.asarray(peak.step), np.asarray(peak.rounds)
    if steps.min() < -1 or steps.max() > step or before.min() < 0 or before.max() > rounds:
        raise ValueError(f"a change must lie in the past, before step {step} and round {rounds}")


class Channel(Saved, ABC):
    """One way of looking for a change. Subclass it, and hand an instance to `Monitor(..., channels=...)`.

    An instance as the user makes it is a template that holds settings only. `started` makes a copy with the state of
    R runs: a monitor has R = 1, a calibration and `watch_runs` have thousands, and all run the same lines.

    Parameters
    ----------
    share : float, optional
        The channel's part of alpha, relative to the shares of the other channels.

    Attributes
    ----------
    name : str
        Appears in verdicts, saved monitors and on the live page: letters, digits, spaces, hyphens, underscores.
    share : float
        Default of the parameter.
    alarm_words : str
        What an alarm says has happened: "the {alarm_words}".
    saved, unfilled : tuple of str
        The attributes that make up the state, and those of them that may hold NaN, see `Saved`.
    tabulated : bool
        Whether the package ships quantiles of the statistic, `thresholds.json`. Set by
        ``class MyChannel(Channel, tabulated=True)``, and not inherited; otherwise thresholds are simulated.
    heavier_when_estimated : bool
        Whether whitening by an estimated V makes the tail of the statistic heavier (Hotelling's law).

    Examples
    --------
    A Shewhart chart of the newest round::

        class Shewhart(Channel):
            name, share, alarm_words = "shewhart", 0.1, "newest round stands out"
            saved = ("rounds",)

            def begin(self, conditions):
                self.rounds = 0

            def update(self, seen):
                norm = np.sqrt(seen.weight * (seen.x**2).sum(axis=0))
                self.rounds += 1
                return Peak(norm, np.full(len(norm), seen.before), np.full(len(norm), self.rounds - 1))

        Monitor(lin, steps, channels=(*DEFAULT_CHANNELS, Shewhart()))
    """

    name: ClassVar[str]
    share: float
    alarm_words: ClassVar[str]
    tabulated: ClassVar[bool]
    heavier_when_estimated: ClassVar[bool] = True

    def __init_subclass__(cls, tabulated: bool = False, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.tabulated = tabulated

    def __init__(self, share: float | None = None) -> None:
        if share is not None:
            self.share = _checks.real("share", share, above=0.0)

    @abstractmethod
    def begin(self, conditions: Conditions) -> None:
        """Set up the state before the first round."""

    @abstractmethod
    def update(self, seen: RoundSeen) -> Peak:
        """Take in a round, and return the statistic after it."""

    def ahead(self, seen: RoundsSeen) -> Ahead | None:
        """What `update` would show after each of several rounds, where that can be told at once; else None.

        A channel may leave this out. It makes `fedgauss watch` catch up faster with a long log.
        """
        return None

    def dof(self, dim: int) -> int:
        """Degrees of freedom of the chi law that the statistic's tail follows, in `dim` dimensions."""
        return dim

    def threshold(self, p: float) -> float | None:
        """The value that the statistic exceeds with probability p over the whole run, where it is known.

        None, the default, has it taken from the table in the package or simulated.
        """
        return None

    def may_be_travel(self, peak: Peak, contraction: FloatArray) -> BoolArray:
        """Whether the run's own journey to its optimum may explain the peak, (R,); an alarm is then withheld.

        `contraction` is eta lambda_max(A) at the peak's step, (R,).
        """
        return np.zeros(len(peak.step), dtype=np.bool_)

    def onset_span(self, peak: Peak) -> OnsetSpan:
        """The changes that fit nearly as well as the peak of the last round; the peak's own alone, unless overridden.

        A verdict's rollback is the last round before the earliest of them.
        """
        return OnsetSpan(peak.step, peak.rounds, peak.step)

    def check(self, rounds: int, step: int) -> None:
        """Raise a ValueError where a restored state cannot be that after so many watched rounds, at this step of SGD.

        What `Saved` says of its kind, shape and finiteness was checked before.
        """

    def started(self, conditions: Conditions) -> Self:
        """A copy of this template that is ready for its first round."""
        fresh = copy.copy(self)
        fresh.begin(conditions)
        return fresh


def checked_channels(channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """Channels that can be watched together, or a ValueError."""
    given = tuple(channels)
    for channel in given:
        if not isinstance(channel, Channel):
            raise ValueError(f"channels must be instances of fedgauss.detect.Channel; got {channel!r}.")
        if not re.fullmatch(r"[\w -]+", channel.name) or channel.name == INVALID:
            raise ValueError(f"a channel's name must be of letters, digits, spaces, - and _; got {channel.name!r}.")
        _checks.real(f"the share of the channel {channel.name!r}", channel.share, above=0.0)
    names = [channel.name for channel in given]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"channels must be at least one, each with a name of its own; got {names}.")
    return given
