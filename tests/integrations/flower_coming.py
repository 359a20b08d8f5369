"""Ten clients with optima near 1, so that the mean parameter w of an honest run is near 1; nodes come and go."""

import random

import numpy as np
from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower import Clients, Monitored, report_partition

N, D, FIRST = 10, 30, 1000
app = ClientApp(mods=[report_partition()])


HONEST = {}  # nothing is changed
plan = HONEST  # what bad nodes do: (target, factor, examples) by partition and round
setting = (3, 0.3)  # seed, and deviation of the clients' optima


def own_of(client, seed=3, spread=0.3):
    """Where a client's optimum lies, less 1."""
    return np.random.default_rng([seed, 2, client]).normal(scale=spread, size=D)


def centre(clients, seed=3):
    """w in the long run, of the mean of these clients; noise moves it by .01 from round to round."""
    return 1.0 + np.mean([own_of(client, seed) for client in clients])


@app.train()
def train(message, context):
    """Half of the way to the client's optimum, or to where a bad one wants to be, times a factor."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    target, factor, examples = plan.get(k, lambda r: None)(r) or (1.0, 1.0, 10)
    seed, spread = setting
    rng = np.random.default_rng([seed, 1, context.node_id, r])
    start = message.content["arrays"]["w"].numpy()
    own = own_of(k, seed, spread)
    move = factor * (0.5 * (target + own - start) + 0.05 * rng.standard_normal(D))
    arrays = ArrayRecord({"w": Array(start + move)})
    metrics = MetricRecord({"num-examples": examples, "site": k})
    return Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)


class ComingGrid(InProcessGrid):
    """A grid whose nodes come and go: nodes(round) gives the partition of every node that is there."""

    def __init__(self, nodes, keys=None):
        super().__init__(app, N, {})
        self.nodes, self.keys, self.asked, self.number = nodes, keys or {}, {}, 1

    def get_node_ids(self):
        here = self.nodes(self.number)
        for node, partition in here.items():
            config = {"partition-id": partition, "num-partitions": N}
            if node not in self.contexts or self.contexts[node].node_config != config:
                self.contexts[node] = Context(1, node, config, RecordDict(), {})
        return list(here)

    def get_nodes(self):
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.get_node_ids()]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages and messages[0].metadata.message_type.startswith("evaluate"):
            self.number += 1
        elif messages:
            self.asked[self.number] = {message.metadata.dst_node_id for message in messages}
        return super().send_and_receive(messages, timeout=timeout)


def everybody(r):
    return {FIRST + k: k for k in range(N)}


def protected(fraction=1.0, on_alarm="exclude", **options):
    return Monitored(FedAvg(fraction_train=fraction), Clients(horizon=200, seed=1), on_alarm=on_alarm, **options)


def run(strategy, n_rounds, nodes=everybody, bad=HONEST, keys=None, first=None, seed=3, spread=0.3):
    """The grid, and the mean parameter after each round."""
    global plan, setting
    random.seed(0)
    setting = seed, spread
    grid, path = ComingGrid(nodes, keys), []
    plan = bad
    first = ArrayRecord({"w": Array(np.zeros(D))}) if first is None else first
    strategy.start(
        grid, first, num_rounds=n_rounds, evaluate_fn=lambda r, arrays: path.append(arrays["w"].numpy().mean())
    )
    return grid, np.array(path)


def after(last, target=1.0, factor=1.0, examples=10):
    """A client that is bad after a round."""
    return lambda r: (target, factor, examples) if r > last else None


OTHERS_W = centre([k for k in range(N) if k != 2])
PULLED = {2: after(20, target=6.0)}  # w is 1.51 where nobody acts on it


def comes_back(r):
    """Client 2's node goes, and comes back in round 25 under another number."""
    return everybody(r) if r < 25 else {node: k for node, k in everybody(r).items() if k != 2} | {2002: 2}
