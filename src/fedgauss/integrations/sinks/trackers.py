"""Sinks for trackers: MLflow, TensorBoard, Prometheus and OpenTelemetry. Each loads its package when it is made."""

import math
import os
from typing import Any

from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.extras import needed
from fedgauss.integrations.sinks.base import Sink, readings

_GAUGES = {
    "statistic": "Statistic of the channel nearest to its threshold",
    "threshold": "Threshold of that channel",
    "ratio": "Statistic over threshold, above 1 in an alarm",
    "alarm": "1 while the monitor alarms, else 0",
    "step": "Step of SGD after the last round",
    "onset": "Estimated first affected step",
}


def mlflow(run_id: str | None = None, prefix: str = "fedgauss.") -> Sink:
    """A sink that logs metrics of an MLflow run; about 4 ms a metric with an SQLite store.

    Parameters
    ----------
    run_id : str, optional
        The run to log to; the active one by default.
    prefix : str
        Of the metrics' names.
    """
    package = needed("mlflow", extra="mlflow")

    def sink(round: int, verdict: Verdict) -> None:
        metrics = {prefix + name: number for name, number in readings(verdict).items()}
        package.log_metrics(metrics, step=round, run_id=run_id)

    sink.__name__ = "mlflow"
    return sink


class TensorBoard:
    """A sink that writes scalars `fedgauss/statistic` and others at every round; an alarm is also written as text.

    Parameters
    ----------
    folder : str or path-like
        Of the event file, which tensorboardX writes.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._writer = needed("tensorboardX", extra="tensorboard").SummaryWriter(os.fspath(folder))

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Write one round."""
        for name, number in readings(verdict).items():
            self._writer.add_scalar(f"fedgauss/{name}", number, round)
        if verdict.alarm:
            self._writer.add_text("fedgauss/words", str(verdict), round)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def prometheus(registry: Any = None) -> Sink:
    """A sink that sets gauges `fedgauss_statistic` and others, and counts alarms in `fedgauss_alarms_total`.

    A gauge that a round says nothing about is NaN: the onset without an alarm, the statistic of an invalid update.

    Parameters
    ----------
    registry : prometheus_client.CollectorRegistry, optional
        The package's own by default; each monitor needs one of its own. To have it scraped, start
        `prometheus_client.start_http_server`: nothing is opened here.
    """
    package = needed("prometheus_client", extra="prometheus")
    where = package.REGISTRY if registry is None else registry
    try:
        gauges = {name: package.Gauge(f"fedgauss_{name}", words, registry=where) for name, words in _GAUGES.items()}
        rounds = package.Gauge("fedgauss_round", "Round that was judged last", registry=where)
        ratios = package.Gauge("fedgauss_channel_ratio", "Statistic over threshold", ["channel"], registry=where)
        alarms = package.Counter("fedgauss_alarms", "Rounds that alarmed", registry=where)
    except ValueError as error:
        raise ValueError(
            f"a registry must have no metrics of fedgauss yet; {error}. Keep the sink that you have, or use "
            "prometheus(registry=prometheus_client.CollectorRegistry())?"
        ) from error

    def sink(round: int, verdict: Verdict) -> None:
        numbers = readings(verdict)
        rounds.set(round)
        for name, gauge in gauges.items():
            gauge.set(numbers.get(name, math.nan))
        for channel, statistic, threshold in verdict.readings:
            ratios.labels(channel).set(statistic / threshold)
        if verdict.alarm:
            alarms.inc()

    sink.__name__ = "prometheus"
    return sink


def opentelemetry(meter: Any = None) -> Sink:
    """A sink that sets gauges `fedgauss.statistic` and others, and counts alarms in `fedgauss.alarms`.

    `fedgauss.onset` is that of the last alarm, over or not, since such a gauge cannot be unset.

    Parameters
    ----------
    meter : opentelemetry.metrics.Meter, optional
        That of the process-wide provider by default.
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
