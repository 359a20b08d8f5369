"""The robust means of `benchmarks/robust_means.py` are those of Flower's own strategies."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Bulyan, FedMedian, FedTrimmedAvg, Krum, MultiKrum
from flwr.supercore.task_identity import TaskIdentity

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from robust_means import RULES

pytestmark = pytest.mark.study
N = 11
STRATEGIES = {
    "median": lambda f: FedMedian(),
    "trimmed mean": lambda f: FedTrimmedAvg(beta=(f + 0.5) / N),
    "Krum": lambda f: Krum(num_malicious_nodes=f),
    "MultiKrum": lambda f: MultiKrum(num_malicious_nodes=f, num_nodes_to_select=N - f),
    "Bulyan": lambda f: Bulyan(num_malicious_nodes=f),
}


def aggregated(strategy, uploads):
    """What a strategy makes of these, in two arrays each."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # who sends a Message
    replies = []
    for node, upload in enumerate(uploads, 1):
        asked = Message(RecordDict(), dst_node_id=node, message_type="train")
        arrays = ArrayRecord({"a": Array(upload[:20].reshape(4, 5)), "b": Array(upload[20:])})
        content = RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 600})})
        replies.append(Message(content, reply_to=asked))
    arrays, _ = strategy.aggregate_train(1, replies)
    return np.concatenate([array.numpy().ravel() for array in arrays.values()])


@pytest.mark.parametrize("name", list(RULES))
@pytest.mark.parametrize("f", [1, 2])
def test_as_in_flower(name, f):
    rng = np.random.default_rng(f)
    sent, moves = rng.normal(size=30), rng.normal(size=(N, 30))
    moves[:f] = 3 * moves[0] + 1  # bad clients that agree, far from the others
    found = sent + np.asarray(RULES[name](moves.astype(np.float32), f))
    np.testing.assert_allclose(found, aggregated(STRATEGIES[name](f), sent + moves), atol=1e-5)
