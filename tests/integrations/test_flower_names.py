"""Who is who, what claims are worth, and who acts: adversaries who take other names and weights.

Ten clients share one optimum at 1, with noise, so that the mean parameter w is 1 in an honest run; one client shifts what
it sends.
"""

import random
import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower import Clients, Monitored, report_partition
from fedgauss.integrations.flower.roster import Roster

N, D, FIRST = 10, 30, 1000
app = ClientApp(mods=[report_partition()])


@app.train()
def train(message, context):
    """Half of the way to the client's optimum, near 1 for everybody; the grid says where another one goes instead."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    rng = np.random.default_rng([3, context.node_id, r])
    start = message.content["arrays"]["w"].numpy()
    own = np.random.default_rng([4, k]).normal(scale=0.3, size=D)
    move = 0.5 * (1.0 + own - start) + 0.05 * rng.standard_normal(D)
    arrays = ArrayRecord({"w": Array(start + move)})
    metrics = MetricRecord({"num-examples": 10, "site": k})
    return Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)


class Grid(InProcessGrid):
    """A grid whose nodes come, go, and may have keys.

    nodes(round) gives the partition of every node that is there; `reply_of` changes replies.
    """

    def __init__(self, nodes, tamper=None, keys=None):
        super().__init__(app, N, {}, tamper)
        self.nodes, self.keys, self.asked, self.number = nodes, keys or {}, {}, 1

    def get_node_ids(self):
        here = self.nodes(self.number)
        for node, partition in here.items():
            if node not in self.contexts:
                context = self.contexts[FIRST + partition]
                self.contexts[node] = type(context)(
                    run_id=1, node_id=node, node_config=context.node_config, state=RecordDict(), run_config={}
                )
        return list(here)

    def get_nodes(self):
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.get_node_ids()]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages and messages[0].metadata.message_type.startswith("evaluate"):
            self.number += 1
        elif messages:
            self.asked[self.number] = sorted(message.metadata.dst_node_id for message in messages)
        return super().send_and_receive(messages, timeout=timeout)


ALL = {FIRST + k: k for k in range(N)}


def run(n_rounds, nodes=lambda r: ALL, tamper=None, keys=None, on_alarm="exclude", seed=0, fraction=1.0, **options):
    """The strategy, its grid, and the mean parameter after each round."""
    random.seed(seed)
    grid, path = Grid(nodes, tamper, keys), []
    strategy = Monitored(FedAvg(fraction_train=fraction), Clients(horizon=200, seed=1), on_alarm=on_alarm, **options)
    go_on(strategy, grid, n_rounds, path)
    return strategy, grid, path


def go_on(strategy, grid, n_rounds, path, first=None):
    first = ArrayRecord({"w": Array(np.zeros(D))}) if first is None else first
    strategy.start(
        grid, first, num_rounds=n_rounds, evaluate_fn=lambda r, arrays: path.append(arrays["w"].numpy().mean())
    )
    return path


def moved(reply, start_of, by):
    """What the client sent, `by` times its move away from where the round began, shifted against it."""
    sent = reply.content["arrays"]["w"].numpy()
    reply.content["arrays"] = ArrayRecord({"w": Array(sent + by)})
    return reply
