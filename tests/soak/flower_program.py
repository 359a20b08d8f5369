"""Flower in one process: `python -m soak.flower_program`; an order is a run, or the rest of one that was killed."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import flower_grid  # noqa: F401  before flwr, which it tells to keep silent
import numpy as np
from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Clients, Monitored
from fedgauss.integrations.sinks import Sinks, client_log, json_lines
from soak.flower import CLIENTS, ROUNDS
from soak.workers import serve

DIM, BAD, ONSET = 30, (2, 7), 21
_OPTIMA = np.random.default_rng(5).normal(size=(CLIENTS, DIM)) + 1.0
app = ClientApp()


@app.train()
def train(message: Message, context: Any) -> Message:
    """Some steps of noisy SGD towards the client's own optimum; bad clients send the opposite."""
    k = int(context.node_config["partition-id"])
    number = int(message.content["config"]["server-round"]) + int(context.run_config["before"])
    rng = np.random.default_rng([k, number])
    start = message.content["arrays"]["a"].numpy()
    y = start.copy()
    for _ in range(10):
        y -= 0.02 * (y - _OPTIMA[k] + 0.1 * rng.standard_normal(DIM))
    if k in BAD and number >= ONSET:
        y = 2 * start - y
    arrays = ArrayRecord({"a": Array(y)})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Verdicts by round, and where the model ended.

    folder   for the log, the verdicts and what a resumed run needs; whatever is there is gone on from
    tamper   what happens to replies: [kind, client, round]; "nobody" answers, or one's is "nan", "shape" or "lost"
    pause    seconds that a round takes besides
    """
    folder, tampered = Path(order["folder"]), order.get("tamper")
    before, first, watcher = _restored(folder)
    tell = Sinks([json_lines(folder / "verdicts.jsonl"), client_log(folder / "run.jsonl", watcher.monitor)])
    strategy = Monitored(
        FedAvg(min_train_nodes=2, min_available_nodes=CLIENTS, fraction_evaluate=0.0),
        watcher, on_alarm="go on", sink=lambda number, verdict: tell(before + number, verdict),
    )  # fmt: skip

    def tamper(reply: Message, k: int, number: int) -> Message | None:
        if tampered is None or before + number != tampered[2]:
            return reply
        if tampered[0] == "nobody" or (tampered[0] == "lost" and k == tampered[1]):
            return None
        return _spoilt(reply, tampered[0]) if k == tampered[1] else reply

    def after_round(number: int, arrays: ArrayRecord) -> None:
        random.seed(before + number)  # Flower shuffles its nodes with it, and their order is the order of its sums
        if number:
            _keep(folder, before + number, arrays["a"].numpy(), watcher.monitor)
            time.sleep(order.get("pause", 0.0))

    if before < ROUNDS:
        grid = InProcessGrid(app, CLIENTS, {"before": before}, tamper)
        random.seed(before)
        strategy.start(grid, ArrayRecord({"a": Array(first)}), num_rounds=ROUNDS - before, evaluate_fn=after_round)
    tell.close()
    return {"end": _restored(folder)[1].tolist(), "verdicts": _verdicts(folder)}


def _spoilt(reply: Message, kind: str) -> Message:
    value = reply.content["arrays"]["a"].numpy().copy()
    value[3] = np.nan
    reply.content["arrays"] = ArrayRecord({"a": Array(value if kind == "nan" else value[:-1])})
    return reply


def _keep(folder: Path, number: int, y: Any, monitor: fg.ClientMonitor) -> None:
    """What a run needs to go on: the number is written last."""
    monitor.save(folder / f"monitor-{number}.npz")
    np.save(folder / f"model-{number}.npy", y)
    (folder / "round.new").write_text(str(number))
    (folder / "round.new").replace(folder / "round")


def _restored(folder: Path) -> tuple[int, Any, Clients]:
    """Rounds so far, the model after them, and who watches."""
    watcher = Clients(horizon=ROUNDS, seed=1)
    if not (folder / "round").exists():
        return 0, np.zeros(DIM), watcher
    number = int((folder / "round").read_text())
    watcher.monitor = fg.ClientMonitor.load(folder / f"monitor-{number}.npz")
    return number, np.load(folder / f"model-{number}.npy"), watcher


def _verdicts(folder: Path) -> dict[int, Any]:
    """By round; one that was judged again after a kill counts as it was judged last."""
    told: dict[int, Any] = {}
    for line in (folder / "verdicts.jsonl").read_text().splitlines():
        said = json.loads(line)
        told[said["round"]] = [said["alarm"], said["statistic"], said["threshold"], said.get("suspects"), said["onset"]]
    return told


if __name__ == "__main__":
    serve(run)
