"""Where verdicts go: sinks for the trackers that people already look at.

A sink is anything that can be called as `sink(round, verdict)`, once a round. `Sinks` calls several, and none of them
can stop a run:

    tell = Sinks([json_lines("verdicts.jsonl"), webhook("https://example.org/alarms")])
    tell(verdict.round, verdict)
    tell.close()
"""

from __future__ import annotations

from fedgauss.integrations.sinks.json_lines import JsonLines as json_lines
from fedgauss.integrations.sinks.mlflow import mlflow
from fedgauss.integrations.sinks.opentelemetry import opentelemetry
from fedgauss.integrations.sinks.prometheus import prometheus
from fedgauss.integrations.sinks.several import Sink, Sinks
from fedgauss.integrations.sinks.tensorboard import tensorboard
from fedgauss.integrations.sinks.webhook import Webhook as webhook

__all__ = ["Sink", "Sinks", "json_lines", "mlflow", "opentelemetry", "prometheus", "tensorboard", "webhook"]
