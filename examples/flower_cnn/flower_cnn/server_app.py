"""The server: FedAvg as usual, inside `Monitored`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedgauss.integrations.flower import Alarmed, Clients, Monitored
from flower_cnn import data, model
from flower_cnn.attack import bad_clients

app = ServerApp()
_LAST = 10  # rounds at the end: under an attack accuracy leaps from round to round


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, and tell the story."""
    outcome = run(grid, context.run_config)
    print("\n".join(outcome["words"]))
    if context.run_config["output"]:
        Path(str(context.run_config["output"])).write_text(json.dumps(outcome))


def strategy_of(config: data.Config) -> Strategy:
    """FedAvg over all clients in every round; with `protect`, inside `Monitored`."""
    n = int(config["n-clients"])
    # Waiting for all nodes: else FedAvg may begin with those that happen to be there.
    fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
    if not config["protect"]:
        return fedavg
    return Monitored(fedavg, Clients(horizon=int(config["n-rounds"])), on_alarm="exclude")


def run(grid: Grid, config: data.Config) -> dict[str, Any]:
    """A whole run: accuracy by round, what the monitor said, and how long rounds took."""
    strategy, network, test = strategy_of(config), model.network(int(config["seed"])), data.held_out(config)
    accuracies: list[float] = []
    ends: list[float] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        network.load_state_dict(arrays.to_torch_state_dict())
        accuracies.append(model.accuracy(network, test))
        ends.append(time.perf_counter())
        return MetricRecord({"accuracy": accuracies[-1]})

    stopped = ""
    first = ArrayRecord(network.state_dict())
    try:
        strategy.start(grid, first, num_rounds=int(config["n-rounds"]), evaluate_fn=evaluate)
    except Alarmed as alarm:  # more clients are named than may be left out
        stopped = f"Round {alarm.server_round}, and the run stops, since too many would be left out: {alarm}"
    seconds = [after - before for before, after in pairwise(ends)]
    outcome = {"accuracy": accuracies, "seconds": seconds, "alarms": []}
    if isinstance(strategy, Monitored):
        outcome["alarms"] = _alarms(strategy, grid)
    return outcome | {"words": [*_story(config, outcome), *filter(None, [stopped])]}


def _alarms(strategy: Monitored, grid: Grid) -> list[dict[str, Any]]:
    """By alarm that was acted on: when, who, and back to where."""
    partition = _partitions(grid, strategy.nodes.values())
    return [
        {
            "round": number,
            "partitions": sorted(partition[strategy.nodes[k]] for k in named),
            "back_to": strategy.verdicts[number].rollback,
        }
        for number, named in strategy.excluded.items()
    ]


def _partitions(grid: Grid, nodes: Iterable[int]) -> dict[int, int]:
    """Asks nodes whose images they have. Only an example can: a server would know its nodes by their ids."""
    replies = grid.send_and_receive([Message(RecordDict(), node, "query") for node in nodes])
    return {reply.metadata.src_node_id: int(reply.content.metric_records["who"]["partition"]) for reply in replies}


def _story(config: data.Config, outcome: dict[str, Any]) -> list[str]:
    """What happened, in words."""
    bad, last = bad_clients(config), len(outcome["accuracy"]) - 1
    after = int(config["attack-after"])
    words = [f"Bad from round {after + 1} on ({config['attack']}): {_listed(bad)}." if bad else "All clients honest."]
    for alarm in outcome["alarms"]:
        words.append(
            f"Alarm in round {alarm['round']}: {_listed(alarm['partitions'])} named. "
            f"The run went back to round {alarm['back_to']} and on without them."
        )
    if not outcome["alarms"]:
        words.append("No alarm." if config["protect"] else "Not watched.")
    final, mean = outcome["accuracy"][last], fmean(outcome["accuracy"][-_LAST:])
    return [*words, f"Accuracy after round {last}: {final:.3f}; mean of the last {_LAST} rounds: {mean:.3f}."]


def _listed(partitions: list[int]) -> str:
    return ("partition " if len(partitions) == 1 else "partitions ") + " and ".join(map(str, partitions))
