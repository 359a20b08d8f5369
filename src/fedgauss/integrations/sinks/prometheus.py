"""Gauges and a counter for Prometheus."""

from __future__ import annotations

import math
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
              nothing is opened here. Each monitor needs one of its own

    A gauge that a round says nothing about is NaN: the onset without an alarm, the statistic of an invalid update.
    """
    package = needed("prometheus_client", extra="prometheus")
    where = package.REGISTRY if registry is None else registry
    try:
        gauges = {name: package.Gauge(f"fedgauss_{name}", words, registry=where) for name, words in _WORDS.items()}
        rounds = package.Gauge("fedgauss_round", "Round that was judged last", registry=where)
        alarms = package.Counter("fedgauss_alarms", "Rounds that alarmed", registry=where)
    except ValueError as error:
        raise ValueError(
            f"a registry must have no metrics of fedgauss yet; {error}. Keep the sink that you have, or use "
            "prometheus(registry=prometheus_client.CollectorRegistry())?"
        ) from error

    def sink(round: int, verdict: Verdict) -> None:
        found = readings(verdict)
        rounds.set(round)
        for name, gauge in gauges.items():
            gauge.set(found.get(name, math.nan))
        if verdict.alarm:
            alarms.inc()

    sink.__name__ = "prometheus"
    return sink
