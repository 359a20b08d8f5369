"""Where verdicts go: sinks for the trackers that people already look at.

A sink is anything that can be called as `sink(round, verdict)`, once a round. `Sinks` calls several, and none of them
can stop a run:

    tell = Sinks([json_lines("verdicts.jsonl"), webhook("https://example.org/alarms")])
    tell(verdict.round, verdict)
    tell.close()
"""

from fedgauss.integrations.sinks.base import JsonLines as json_lines
from fedgauss.integrations.sinks.base import Sink, Sinks
from fedgauss.integrations.sinks.clients import ClientLog as client_log
from fedgauss.integrations.sinks.trackers import TensorBoard as tensorboard
from fedgauss.integrations.sinks.trackers import mlflow, opentelemetry, prometheus
from fedgauss.integrations.sinks.webhook import Webhook as webhook

__all__ = [
    "Sink",
    "Sinks",
    "client_log",
    "json_lines",
    "mlflow",
    "opentelemetry",
    "prometheus",
    "tensorboard",
    "webhook",
]
