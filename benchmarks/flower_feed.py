"""What `Monitored` costs beside a running mean of the same uploads: python benchmarks/flower_feed.py [K] [d]

Needs Flower. Rounds of one model go by in this process, so that processor time and memory are those of the server: its
running mean is the unit of time, and the uploads' own bytes the unit of memory.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integrations"))

from flower_grid import InProcessGrid  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402

from fedgauss.integrations.flower import Clients, Monitored  # noqa: E402

ROUNDS, SETTLED = 18, 13  # clients are judged from round 12 on


class RunningMean(FedAvg):
    """The mean of what came, with its own time and memory taken out of the measurement."""

    def __init__(self) -> None:
        super().__init__(min_available_nodes=2)
        self.seconds = 0.0
        self.peak = 0
        self.mean = ArrayRecord()

    def aggregate_train(self, server_round, replies):
        self.peak = max(self.peak, tracemalloc.get_traced_memory()[1]) if tracemalloc.is_tracing() else 0
        began = time.process_time()
        mean = None
        for reply in replies:
            view = reply.content["arrays"]["w"].numpy()
            mean = view.copy() if mean is None else np.add(mean, view, out=mean)
        mean /= np.float32(len(replies))
        self.seconds = time.process_time() - began
        self.mean = ArrayRecord({"w": Array(mean)})
        return self.mean, None


def replies_of(messages, own, rng):
    """What clients answer: each moves its own way, with noise."""
    replies = []
    for message in messages:
        start = message.content["arrays"]["w"].numpy()
        way = own[message.metadata.dst_node_id % len(own)] * np.float32(rng.uniform(0.9, 1.1))
        arrays = ArrayRecord({"w": Array(start + np.roll(way, int(rng.integers(4))))})
        content = RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})})
        message.metadata.__dict__["_message_id"] = "1"
        replies.append(Message(content, reply_to=message))
    return replies


def measured(n_clients: int, dim: int, traced: bool) -> tuple[list[float], list[float], int]:
    """Seconds of the mean and of what is added to it, by round; and the most bytes that are added at a time."""
    rng = np.random.default_rng(0)
    own = rng.standard_normal((n_clients, dim), dtype=np.float32)
    inner = RunningMean()
    strategy = Monitored(inner, Clients(seed=1), on_alarm="go on")
    grid = InProcessGrid(None, n_clients)
    arrays, means, added, most = ArrayRecord({"w": Array(np.zeros(dim, dtype=np.float32))}), [], [], 0
    for number in range(1, ROUNDS + 1):
        began = time.process_time()
        messages = list(strategy.configure_train(number, arrays, ConfigRecord(), grid))
        configured = time.process_time() - began
        replies = replies_of(messages, own, rng)
        if traced and number >= SETTLED:
            tracemalloc.start()
            inner.peak = 0
        began = time.process_time()
        arrays, _ = strategy.aggregate_train(number, replies)
        whole = time.process_time() - began
        if tracemalloc.is_tracing():
            most = max(most, inner.peak)
            tracemalloc.stop()
        arrays = inner.mean
        if number >= SETTLED:
            means.append(inner.seconds)
            added.append(configured + whole - inner.seconds)
    return means, added, most


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    n_clients, dim = (int(float(x)) for x in (*sys.argv[1:], "20", "1e6")[:2])
    means, added, _ = measured(n_clients, dim, traced=False)
    mean, more = statistics.median(means), statistics.median(added)
    *_, peak = measured(n_clients, dim, traced=True)
    uploads = 4 * n_clients * dim
    print(f"K = {n_clients}, d = {dim:,}: a running mean takes {1e3 * mean:.1f} ms, Monitored adds {1e3 * more:.0f} ms")
    print(
        f"{more / mean:.1f} running means; {peak / uploads:.2f} times the uploads' {uploads / 1e6:.0f} MB at the peak"
    )


if __name__ == "__main__":
    main()
