"""Ten Flower nodes without processes, for the smoke test: they answer when they are asked."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

DIM = 40


def zeros():
    """Where the model begins."""
    return ArrayRecord({"w": Array(np.zeros(DIM))})


class Nodes(Grid):
    """Nodes 1 to 10. Each moves in a direction of its own; after a while the bad ones move the other way."""

    def __init__(self, bad, after):
        # A Message reads who sends it from the process's task, which a SuperLink would have set.
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self._rng = np.random.default_rng(3)
        self._own = 1.0 + self._rng.normal(size=(11, DIM))
        self._bad, self._after, self._run = bad, after, Run.create_empty(1)

    def set_run(self, run):
        """Flower's own record of the run."""
        self._run = run

    @property
    def run(self):
        """That record."""
        return self._run

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        """All nodes."""
        return list(range(1, 11))

    def push_messages(self, messages):
        """Not used: see `send_and_receive`."""
        raise NotImplementedError("the strategies of Flower send and receive at once")

    def pull_messages(self, message_ids):
        """Not used: see `send_and_receive`."""
        raise NotImplementedError("the strategies of Flower send and receive at once")

    def send_and_receive(self, messages, *, timeout=None):
        """Every node's answer."""
        return [self._answer(message) for message in messages]

    def _answer(self, message):
        node = message.metadata.dst_node_id
        move = 0.1 * (self._own[node] + 0.3 * self._rng.normal(size=DIM))
        if node in self._bad and message.content["config"]["server-round"] > self._after:
            move = -move
        arrays = ArrayRecord({"w": Array(message.content["arrays"]["w"].numpy() + move)})
        return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)
