"""The client: local steps on its own images. It knows nothing of who watches it."""

from __future__ import annotations

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_cnn import data, model
from flower_cnn.attack import attack_of, labelled, uploaded

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """A round of local steps."""
    client, config = int(context.node_config["partition-id"]), context.run_config
    server_round = int(message.content.config_records["config"]["server-round"])
    attack = attack_of(config, client, server_round)
    own = data.of_client(config, client)
    own = own._replace(labels=labelled(attack, own.labels))

    sent = message.content.array_records["arrays"].to_torch_state_dict()
    network = model.network()
    network.load_state_dict(sent)
    rng = np.random.default_rng([int(config["seed"]), client, server_round])
    model.train(
        network,
        own,
        int(config["local-steps"]),
        int(config["batch-size"]),
        str(config["optimiser"]),
        float(config["rate"]),
        rng,
    )

    content = RecordDict(
        {
            "arrays": ArrayRecord(uploaded(attack, sent, network.state_dict())),
            "metrics": MetricRecord({"num-examples": len(own.labels)}),
        }
    )
    return Message(content, reply_to=message)


@app.query()
def partition(message: Message, context: Context) -> Message:
    """Which images this node has, so that the end of the run can say who was who."""
    who = MetricRecord({"partition": int(context.node_config["partition-id"])})
    return Message(RecordDict({"who": who}), reply_to=message)
