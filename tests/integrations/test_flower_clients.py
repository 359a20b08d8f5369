"""`Clients`: a run whose clients turn bad is seen, taken back and gone on with, whatever the strategy."""

import random

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM

import fedgauss as fg
from fedgauss.integrations.flower import Alarmed, Clients, Monitored, ServerOnly

N, D, ROUNDS, ATTACK, BAD = 10, 30, 40, 20, (2, 7)  # clients 2 and 7 turn bad in round 21
CURVATURE = np.linspace(0.2, 1.0, D)
OPTIMA = np.random.default_rng(5).normal(scale=0.3, size=(N, D)) + 1.0  # clients are not alike

app = ClientApp()


@app.train()
def train(message, context):
    """Ten steps of noisy SGD towards the client's own optimum, in two arrays; bad clients send the opposite."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    rng = np.random.default_rng([context.run_config["seed"], k, r])
    sent = message.content["arrays"]
    start = np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()])
    y = start.copy()
    for _ in range(10):
        y -= 0.02 * (CURVATURE * (y - OPTIMA[k]) + 0.5 * rng.standard_normal(D))
    if context.run_config["attack"] and k in BAD and r > ATTACK:
        y = start - (y - start)
    arrays = ArrayRecord({"a": Array(y[:20].reshape(4, 5)), "b": Array(y[20:])})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)


def inner(kind=FedAvg, **options):
    return kind(min_train_nodes=2, min_available_nodes=N, fraction_evaluate=1.0, **options)


def loss(y, clients=range(N)):
    return float(np.mean([0.5 * np.sum(CURVATURE * (y - OPTIMA[k]) ** 2) for k in clients]))


def start(strategy, attack=True, tamper=None, n_rounds=ROUNDS, seed=0, client=app):
    """The arrays after each round, as one vector each."""
    random.seed(0)  # Flower samples its nodes with it, and their order is the order of its sums
    path = {}

    def look(server_round, arrays):
        path[server_round] = np.concatenate([arrays["a"].numpy().ravel(), arrays["b"].numpy()])

    first = ArrayRecord({"a": Array(np.zeros((4, 5))), "b": Array(np.zeros(10))})
    grid = InProcessGrid(client, N, {"attack": attack, "seed": seed}, tamper)
    strategy.start(grid, first, num_rounds=n_rounds, evaluate_fn=look)
    return path
