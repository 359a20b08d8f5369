"""The verdict on a round, from what the channels say of it: an alarm, when it may have begun, where to roll back to."""

from __future__ import annotations

import numpy as np

from fedgauss.detect.channel import INVALID, Peak
from fedgauss.detect.monitor_state import MonitorState
from fedgauss.detect.verdict import ChannelReading, Verdict
from fedgauss.detect.watch import Judgement, rounds_to_drop

Interval = tuple[int, int]


def verdict_on(monitor: MonitorState, peaks: tuple[Peak, ...], now: int, origin_step: int) -> tuple[Verdict, int]:
    """Of the round that ends at step `now`, and the rounds of a baseline that it would leave for `suspects`."""
    watched_steps = now - origin_step
    limits, alarmed = monitor.boundary.at(watched_steps), np.array([monitor.alarm is not None])
    said = monitor.watch.judge(peaks, limits, alarmed, monitor.innovations.contraction_at)
    channel = monitor.channels[int(said.channel[0])]
    alarm, travelling = bool(said.alarm[0]), bool(said.travelling[0])
    over = monitor.horizon is not None and watched_steps > monitor.horizon
    note = f"The horizon of {monitor.horizon} steps is over, and with it the stated alpha." if over else ""
    rounds, rollback, interval = _way_back(monitor, peaks, said) if alarm else (0, None, None)
    verdict = Verdict(
        alarm=alarm,
        statistic=float(said.statistic[0]),
        threshold=float(said.threshold[0]),
        channel=channel.name,
        round=monitor.round + 1,
        step=now,
        onset=int(said.onset[0]) if alarm or travelling else None,
        rollback=rollback,
        alpha=monitor.alpha,
        travelling=travelling,
        note=note,
        reason=channel.alarm_words,
        readings=tuple(
            ChannelReading(c.name, float(peak.statistic[0]), limit)
            for c, peak, limit in zip(monitor.channels, peaks, limits, strict=True)
        ),
        onset_interval=interval,
    )
    # A baseline from before the interval, unless that leaves less than half of what lies before the onset.
    return verdict, max(rounds, int(said.rounds[0]) // 2)


def _way_back(monitor: MonitorState, peaks: tuple[Peak, ...], said: Judgement) -> tuple[int, int, Interval]:
    """Watched rounds before the earliest likely onset, the round to go back to, and the steps of likely onsets."""
    which = int(said.channel[0])
    span = monitor.watch.channels[which].onset_span(peaks[which])
    rounds, interval = int(span.rounds[0]), (int(span.first[0]) + 1, int(span.last[0]) + 1)
    rollback = monitor.origin_round + rounds_to_drop(monitor.sync_every) + rounds
    first = monitor.alarm
    if first is not None and first.rollback is not None:
        # Rounds are forgotten as they age, and a later estimate may lie on the next that is left: a poisoned one.
        rollback = min(rollback, first.rollback)
        if first.onset_interval is not None:
            interval = (min(interval[0], first.onset_interval[0]), interval[1])
    return rounds, rollback, interval


def refusal(monitor: MonitorState, now: int, note: str) -> Verdict:
    """An invalid update, after which everything is as it was."""
    return Verdict(
        alarm=True,
        statistic=np.inf,
        threshold=monitor.boundary.at(now - monitor.origin_step)[0],
        channel=INVALID,
        round=monitor.round + 1,
        step=now,
        onset=monitor.step + 1,
        rollback=monitor.round,
        alpha=monitor.alpha,
        note=note,
    )
