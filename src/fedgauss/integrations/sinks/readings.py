"""What sinks write of a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from fedgauss.detect.verdict import Verdict


def readings(verdict: Verdict) -> dict[str, float]:
    """The numbers that a tracker draws; `ratio` is statistic over threshold, above 1 in an alarm.

    The statistic of an invalid update is infinite, which trackers draw badly or refuse: it is left out there.
    """
    numbers = {"threshold": verdict.threshold, "alarm": float(verdict.alarm), "step": float(verdict.step)}
    if math.isfinite(verdict.statistic):
        numbers |= {"statistic": verdict.statistic, "ratio": verdict.statistic / verdict.threshold}
    if verdict.onset is not None:
        numbers["onset"] = float(verdict.onset)
    return numbers


def plain(round: int, verdict: Verdict) -> dict[str, Any]:
    """Everything as JSON knows it, with the verdict in words; null for a statistic that is not finite."""
    statistic = verdict.statistic if math.isfinite(verdict.statistic) else None
    return asdict(verdict) | {"round": round, "statistic": statistic, "words": str(verdict)}
