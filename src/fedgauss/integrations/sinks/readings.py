"""What sinks write of a verdict."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Any

from fedgauss.detect.verdict import Verdict


def readings(verdict: Verdict) -> dict[str, float]:
    """The numbers that a tracker draws; `ratio` is statistic over threshold, above 1 in an alarm.

    There is also a ratio for each channel, such as `ratio_mean`. The statistic of an invalid update is infinite, which
    trackers draw badly or refuse, and is left out.
    """
    numbers = {"threshold": verdict.threshold, "alarm": float(verdict.alarm), "step": float(verdict.step)}
    if math.isfinite(verdict.statistic):
        numbers |= {"statistic": verdict.statistic, "ratio": verdict.statistic / verdict.threshold}
    if verdict.onset is not None:
        numbers["onset"] = float(verdict.onset)
    for name, statistic, threshold in verdict.readings:
        numbers[f"ratio_{re.sub(r'[^a-zA-Z0-9]+', '_', name)}"] = statistic / threshold
    return numbers


def plain(round: int, verdict: Verdict) -> dict[str, Any]:
    """Everything as JSON knows it, with the verdict in words; null for a statistic that is not finite."""
    statistic = verdict.statistic if math.isfinite(verdict.statistic) else None
    return asdict(verdict) | {"round": round, "statistic": statistic, "words": str(verdict)}
