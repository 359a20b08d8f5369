"""Gauges and a counter for OpenTelemetry."""

from __future__ import annotations

from typing import Any

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.extras import needed
from fedgauss.integrations.sinks.readings import readings
from fedgauss.integrations.sinks.several import Sink


def opentelemetry(meter: Any = None) -> Sink:
    """Sets gauges `fedgauss.statistic` and the like, and counts rounds that alarmed in `fedgauss.alarms`.

    meter  that of the process-wide provider by default

    `fedgauss.onset` is that of the last alarm, over or not, for such a gauge cannot be taken back.
    """
    if meter is None:
        meter = needed("opentelemetry.metrics", extra="opentelemetry").get_meter("fedgauss")
    gauges: dict[str, Any] = {}
    alarms = meter.create_counter("fedgauss.alarms", description="Rounds that alarmed")

    def sink(round: int, verdict: Verdict) -> None:
        for name, number in {"round": float(round), **readings(verdict)}.items():
            if name not in gauges:
                gauges[name] = meter.create_gauge(f"fedgauss.{name}")
            gauges[name].set(number)
        if verdict.alarm:
            alarms.add(1, {"channel": verdict.channel})

    sink.__name__ = "opentelemetry"
    return sink
