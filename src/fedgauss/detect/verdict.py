"""What the monitor says after a round."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NamedTuple

from fedgauss._shown import ShownInSentences
from fedgauss.detect.channel import INVALID


class ChannelReading(NamedTuple):
    """One channel after a round."""

    channel: str
    statistic: float
    threshold: float


@dataclass(frozen=True, repr=False)
class Verdict(ShownInSentences):
    """One round, judged. Printed, it says so in words.

    Attributes
    ----------
    alarm : bool
        Whether something is wrong.
    statistic, threshold : float
        Of the channel furthest above its threshold, or nearest to it; alarm when the statistic exceeds the threshold.
    channel : str
        The name of that channel, such as "mean" (the mean gradient moved), "spread" (the gradient noise grew) or
        "quiet" (it shrank); or "invalid update".
    round, step : int
        Where the run is: rounds counted from 1, and steps of SGD.
    onset : int or None
        The estimated first affected step; None without an alarm.
    onset_interval : (int, int) or None
        The steps at which it may have begun: the first of them lies at or before the true one in .95 of alarms.
    rollback : int or None
        The last round before that interval, 0 for the start; None without an alarm.
    alpha : float
        The chance of any false alarm while the monitor watches.
    travelling : bool
        Whether a shift was seen that the run's own journey to its optimum may explain; it is then not an alarm.
    note : str
        Further remarks.
    reason : str
        What an alarm of this channel means, such as "mean gradient moved".
    readings : tuple of ChannelReading
        Statistic and threshold of every channel; empty where the update was refused.
    """

    alarm: bool
    statistic: float
    threshold: float
    channel: str
    round: int
    step: int
    onset: int | None
    rollback: int | None
    alpha: float
    travelling: bool = False
    note: str = ""
    reason: str = ""
    readings: tuple[ChannelReading, ...] = ()
    onset_interval: tuple[int, int] | None = None

    @property
    def invalid(self) -> bool:
        """Whether the update itself was refused: not finite, or not plausible."""
        return self.channel == INVALID

    def parts(self) -> dict[str, Any]:
        """What there is to say of the round beyond the sentence: plain words and numbers by name, for pages and logs.

        These are the readings of channels, and every field that a kind of verdict adds, unless it is empty or its
        metadata say that it is `drawn`. A part is text, a number, a list, or any of these by name.
        """
        channels = {
            name: {"statistic": top, "threshold": limit, "ratio": top / limit} for name, top, limit in self.readings
        }
        own = {field.name: getattr(self, field.name) for field in fields(self) if not field.metadata.get("drawn")}
        added = {name: value for name, value in own.items() if name not in _COMMON and value}
        return {name: plain(value) for name, value in ({"channels": channels} | added).items() if value}

    def __str__(self) -> str:
        where = f"round {self.round} (step {self.step})"
        if self.invalid:
            words = f"ALARM after {where}: invalid update, not used; the last good round is {self.rollback}."
        elif self.travelling:
            words = (
                f"{where}: still travelling, warm start first. The shift seen (statistic {self.statistic:.2f}, "
                f"threshold {self.threshold:.2f}) is smaller than the gradient that the run still had to work off."
            )
        elif self.alarm:
            what = self.reason or f"{self.channel} channel saw a change"
            first, last = self.onset_interval or (self.onset, self.onset)
            began = f"near step {self.onset}" + (f" ({first} to {last})" if first != last else "")
            words = (
                f"ALARM at {where}: the {what} (statistic {self.statistic:.2f}, threshold {self.threshold:.2f}; "
                f"{self.alpha:g} is the chance of any false alarm). "
                f"It began {began}: roll back to round {self.rollback}."
            )
        else:
            words = f"{where}: no alarm (statistic {self.statistic:.2f}, threshold {self.threshold:.2f})."
        return f"{words} {self.note}".rstrip()


_COMMON = frozenset(field.name for field in fields(Verdict))


def plain(value: Any) -> Any:
    """What JSON can hold of a value: words, numbers (None where not finite), lists, and any of these by name."""
    if isinstance(value, Mapping):
        return {str(name): plain(x) for name, x in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(x) for x in value]
    if isinstance(value, str | bool | None):
        return value
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) else str(value)
