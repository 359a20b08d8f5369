"""The client: local steps on its own rows. What the server's monitor needs is added by a mod."""

from __future__ import annotations

from types import ModuleType

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from fedgauss.integrations.flower import report_moments, run_chains
from flower_watch import data, numpy_model


def _model(context: Context) -> ModuleType:
    if context.run_config["framework"] == "torch":
        from flower_watch import torch_model

        return torch_model
    return numpy_model


def moments(arrays: ArrayRecord, context: Context) -> tuple[data.Floats, data.Floats]:
    """Gradients of single steps at the server's arrays, and the Hessian: what `report_moments` asks for."""
    client, config = int(context.node_config["partition-id"]), context.run_config
    own = data.rows(config, client)
    chosen = data.moment_batches(config, client, len(own.y))
    found: tuple[data.Floats, data.Floats] = _model(context).moments(arrays["weight"].numpy(), own, chosen)
    return found


_REPORTS, _CHAINS = report_moments(moments), run_chains(moments)


def answer(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """One of the two mods, as the run's configuration says; most applications name one in `mods`."""
    mod = _CHAINS if context.run_config["watch"] == "chains" else _REPORTS
    return mod(message, context, call_next)


app = ClientApp(mods=[answer])


@app.train()
def train(message: Message, context: Context) -> Message:
    """A round of local steps; knows nothing of monitors."""
    client, config = int(context.node_config["partition-id"]), context.run_config
    server_round = int(message.content.config_records["config"]["server-round"])
    own = data.rows_of_round(config, client, server_round)
    chosen = data.batches(config, client, server_round, len(own.y))
    weight = message.content.array_records["arrays"]["weight"].numpy()
    weight = _model(context).train(weight, own, chosen, float(config["rate"]))
    content = RecordDict(
        {"arrays": ArrayRecord({"weight": Array(weight)}), "metrics": MetricRecord({"num-examples": len(own.y)})}
    )
    return Message(content, reply_to=message)
