"""What the monitor says after a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedgauss._shown import Shown

Channel = Literal["mean", "spread", "invalid update"]


@dataclass(frozen=True)
class Verdict(Shown):
    """One round, judged. Printed, it says so in words.

    alarm       whether something is wrong
    statistic   the statistic of the channel nearest to its threshold, or furthest above it
    threshold   that of the same channel; alarm when the statistic exceeds it
    channel     "mean" (the gradient's mean moved), "spread" (its noise grew) or "invalid update"
    round, step where the run is: rounds counted from 1, and steps of SGD
    onset       the step from which on things look different, None without an alarm
    rollback    the last round before the onset, 0 for the start, None without an alarm
    alpha       the chance of any false alarm while the monitor watches
    travelling  whether a shift was seen that the run's own journey to its optimum may explain; not an alarm then
    note        more words, where something needs saying
    """

    alarm: bool
    statistic: float
    threshold: float
    channel: Channel
    round: int
    step: int
    onset: int | None
    rollback: int | None
    alpha: float
    travelling: bool = False
    note: str = ""

    def __str__(self) -> str:
        where = f"round {self.round} (step {self.step})"
        if self.channel == "invalid update":
            words = f"ALARM after {where}: invalid update, not taken in; the last good round is {self.rollback}."
        elif self.travelling:
            words = (
                f"{where}: still travelling, warm start first. The shift seen (statistic {self.statistic:.2f}, "
                f"threshold {self.threshold:.2f}) is smaller than the gradient that the run still had to work off."
            )
        elif self.alarm:
            what = "mean gradient moved" if self.channel == "mean" else "gradient noise grew"
            words = (
                f"ALARM at {where}: the {what} (statistic {self.statistic:.2f}, threshold {self.threshold:.2f}; "
                f"{self.alpha:g} is the chance of any false alarm). "
                f"It began near step {self.onset}: roll back to round {self.rollback}."
            )
        else:
            words = f"{where}: no alarm (statistic {self.statistic:.2f}, threshold {self.threshold:.2f})."
        return f"{words} {self.note}".rstrip()
