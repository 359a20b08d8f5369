"""Gauges and a counter for Prometheus."""

from __future__ import annotations

from typing import Any

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.extras import needed
from fedgauss.integrations.sinks.readings import readings
from fedgauss.integrations.sinks.several import Sink

_WORDS = {
    "statistic": "Statistic of the channel nearest to its threshold",
    "threshold": "Threshold of that channel",
    "ratio": "Statistic over threshold, above 1 in an alarm",
    "alarm": "1 while the monitor alarms, else 0",
    "step": "Step of SGD after the last round",
    "onset": "Step from which on things look different",
}


def prometheus(registry: Any = None) -> Sink:
    """Sets gauges `fedgauss_statistic` and the like, and counts rounds that alarmed in `fedgauss_alarms_total`.

    registry  the package's own by default. Whoever wants them scraped starts `prometheus_client.start_http_server`;
              nothing is opened here
    """
    package = needed("prometheus_client", extra="prometheus")
    where = package.REGISTRY if registry is None else registry
    gauges = {name: package.Gauge(f"fedgauss_{name}", words, registry=where) for name, words in _WORDS.items()}
    rounds = package.Gauge("fedgauss_round", "Round that was judged last", registry=where)
    alarms = package.Counter("fedgauss_alarms", "Rounds that alarmed", registry=where)

    def sink(round: int, verdict: Verdict) -> None:
        rounds.set(round)
        for name, number in readings(verdict).items():
            gauges[name].set(number)
        if verdict.alarm:
            alarms.inc()

    sink.__name__ = "prometheus"
    return sink
