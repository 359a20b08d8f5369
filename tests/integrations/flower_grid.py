"""Flower without processes: a grid that hands messages to real ClientApps, through Flower's own serialisation."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}  # read when flwr is imported

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_watch"
if str(EXAMPLE) not in sys.path:
    sys.path.append(str(EXAMPLE))

from flower_watch import data  # noqa: E402

import fedgauss as fg  # noqa: E402

_FIRST_NODE = 1000  # ids that are not the partitions, so that nobody can mix them up


class InProcessGrid(Grid):
    """K nodes with partitions 0, ..., K - 1; messages are answered when they are sent.

    tamper(reply, partition, server_round) may change a reply, or return None: then none comes.
    """

    def __init__(self, app, n_clients, run_config=None, tamper=None):
        # A Message reads who sends it from the process's task, which a SuperLink would have set.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.app, self.tamper = app, tamper
        self.contexts = {
            _FIRST_NODE + k: Context(
                run_id=1,
                node_id=_FIRST_NODE + k,
                node_config={"partition-id": k, "num-partitions": n_clients},
                state=RecordDict(),
                run_config=dict(run_config or {}),
            )
            for k in range(n_clients)
        }
        self._replies = {}
        self._run = Run.create_empty(1)

    def set_run(self, run):
        self._run = run

    @property
    def run(self):
        return self._run

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        ids = []
        for number, message in enumerate(messages, start=len(self._replies)):
            name = str(number)
            self._replies[name] = self._answer(message, name)
            ids.append(name)
        return ids

    def pull_messages(self, message_ids):
        found = [self._replies[name] for name in message_ids]
        return [reply for reply in found if reply is not None]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message, name):
        context = self.contexts[message.metadata.dst_node_id]
        received = _through_the_wire(message)
        received.metadata.__dict__["_message_id"] = name
        config = received.content.config_records.get("config", {})
        server_round = int(config.get("server-round", 0))
        try:
            reply = self.app(received, context)
        except Exception as error:
            reply = Message(Error(code=0, reason=repr(error)), reply_to=received)
        reply = _through_the_wire(reply)
        if self.tamper is not None:
            reply = self.tamper(reply, context.node_config["partition-id"], server_round)
        return reply


def _through_the_wire(message):
    return message_from_proto(message_to_proto(message))


def example_config(**changes):
    """The example's configuration, as its pyproject.toml has it; underscores stand for hyphens."""
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return config | {name.replace("_", "-"): value for name, value in changes.items()}


def example_lin(config):
    """The example's exact linearisation: its rows are finite, and mini-batches are drawn from them."""
    own = [data.rows(config, k) for k in range(int(config["n-clients"]))]
    counts = np.array([len(rows.y) for rows in own])
    hessians = np.stack([rows.x.T @ rows.x / len(rows.y) for rows in own])
    pulls = np.stack([rows.x.T @ rows.y / len(rows.y) for rows in own])
    weights = counts / counts.sum()
    optimum = np.linalg.solve(np.einsum("k,kij->ij", weights, hessians), weights @ pulls)
    single = [rows.x * (rows.x @ optimum - rows.y)[:, None] for rows in own]
    noise = np.stack([np.cov(g.T, bias=True) for g in single]) / int(config["batch-size"])
    gradients = np.stack([g.mean(axis=0) for g in single])
    return fg.linearization(hessians, noise, weights=weights, optimum=optimum, gradients=gradients)
