"""The server: FedAvg as usual, inside `Monitored`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from fedgauss import step_sizes
from fedgauss.integrations.flower import Alarmed, Chained, Monitored, Reported, ServerOnly
from flower_watch.data import DIM, Config
from flower_watch.prediction import predicted_round

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, and say what happened."""
    outcome = run(grid, context.run_config)
    print("\n".join(outcome["words"]))
    if context.run_config["output"]:
        Path(str(context.run_config["output"])).write_text(json.dumps(outcome))


def watched(config: Config) -> Strategy:
    """The strategy: FedAvg over all clients in every round, watched as the configuration says."""
    n = int(config["n-clients"])
    # Waiting for all nodes: else FedAvg may begin with those that happen to be there.
    fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=n, min_available_nodes=n)
    if config["watch"] == "nothing":
        return fedavg
    tau, alpha, warm = int(config["local-steps"]), float(config["alpha"]), int(config["warm-start"])
    horizon = int(config["n-rounds"]) * tau
    steps = step_sizes.constant(float(config["rate"]))
    watcher: Reported | Chained | ServerOnly
    if config["watch"] == "server-only":
        watcher = ServerOnly(warm_up=15, sync_every=tau, after=warm, alpha=alpha, horizon=horizon)
    else:
        kind = Chained if config["watch"] == "chains" else Reported
        watcher = kind(steps, tau, n, after=warm, alpha=alpha, horizon=horizon)
    return Monitored(fedavg, watcher, on_alarm=str(config["on-alarm"]))  # type: ignore[arg-type]


def run(grid: Grid, config: Config) -> dict[str, Any]:
    """A whole run: what the monitor said, and how long rounds took."""
    strategy = watched(config)
    ticks = []
    alarm = None
    try:
        strategy.start(
            grid,
            ArrayRecord({"weight": Array(np.zeros((1, DIM)))}),
            num_rounds=int(config["n-rounds"]),
            evaluate_fn=lambda server_round, arrays: ticks.append(time.perf_counter()),
        )
    except Alarmed as found:
        alarm = found
    outcome: dict[str, Any] = {"seconds": np.diff(ticks).tolist(), "words": [], "verdicts": {}}
    if isinstance(strategy, Monitored):
        outcome |= _said(strategy, alarm, config)
    return outcome


def _said(strategy: Monitored, alarm: Alarmed | None, config: Config) -> dict[str, Any]:
    verdicts = strategy.verdicts
    alarms = [r for r, verdict in verdicts.items() if verdict.alarm]
    predicted = None
    if isinstance(strategy.watcher, Reported) and strategy.monitor is not None and strategy.watcher.lin is not None:
        predicted = predicted_round(strategy.watcher.lin, strategy.monitor, config, min(verdicts) - 1)
    words = [str(verdicts[alarms[0]])] if alarms else ["No alarm."]
    if predicted is not None and int(config["attack-after"]) < int(config["n-rounds"]):
        words.append(f"95 % of runs attacked after round {config['attack-after']} alarm by round {predicted}.")
    if alarm is not None:
        words.append(f"Arrays of round {alarm.rollback.round} are there to go back to.")
    elif (
        alarms and isinstance(strategy.watcher, Reported) and strategy.monitor is not None and alarms[0] < max(verdicts)
    ):
        words.append(str(strategy.monitor.suspects()))
    return {
        "words": words,
        "alarm_round": alarms[0] if alarms else None,
        "onset": verdicts[alarms[0]].onset if alarms else None,
        "predicted_round": predicted,
        "participation": strategy.participation,
        "verdicts": {r: [verdict.alarm, verdict.statistic, verdict.threshold] for r, verdict in verdicts.items()},
    }
