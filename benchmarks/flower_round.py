"""What protection adds to a round of examples/flower_cnn: python benchmarks/flower_round.py [rounds]

Needs Flower and PyTorch. Clients answer one after the other in this process, so that the processor time of a round is
all of its work. What `Monitored` does is timed where it happens, as its own calls less those of FedAvg within them: the
difference of two runs would drown in what else a machine does.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "flower_cnn"
sys.path[:0] = [str(EXAMPLE), str(ROOT / "tests" / "integrations")]

from flower_cnn import data, model, server_app  # noqa: E402
from flower_cnn.client_app import app  # noqa: E402
from flower_grid import InProcessGrid  # noqa: E402
from flwr.app import ArrayRecord, MetricRecord  # noqa: E402

HOOKS = ("configure_train", "aggregate_train")


class Stopwatch:
    """Adds up the processor time of calls."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - began

        return inner


def rounds(config: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Processor seconds of each round, and of what `Monitored` adds to it."""
    strategy, whole, within = server_app.strategy_of(config), Stopwatch(), Stopwatch()
    for name in HOOKS:
        setattr(strategy.strategy, name, within.timed(getattr(strategy.strategy, name)))
        setattr(strategy, name, whole.timed(getattr(strategy, name)))
    network, test = model.network(), data.held_out(config)
    ends: list[tuple[float, float]] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        network.load_state_dict(arrays.to_torch_state_dict())
        found = MetricRecord({"accuracy": model.accuracy(network, test)})
        ends.append((time.process_time(), whole.seconds - within.seconds))
        return found

    grid = InProcessGrid(app, config["n-clients"], config)
    strategy.start(grid, ArrayRecord(network.state_dict()), num_rounds=config["n-rounds"], evaluate_fn=evaluate)
    pairs = list(pairwise(ends))
    return [b[0] - a[0] for a, b in pairs], [b[1] - a[1] for a, b in pairs]


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else config["n-rounds"]
    round_s, added_s = rounds(config | {"attack": "none", "n-rounds": n_rounds})
    watched = slice(n_rounds // 2, None)  # with a past to compare with
    for name, part in (("all rounds", slice(None)), ("the second half", watched)):
        whole, added = statistics.median(round_s[part]), statistics.median(added_s[part])
        share = 100 * added / (whole - added)
        print(f"{name}: {1e3 * whole:.1f} ms a round, of which Monitored {1e3 * added:.1f} ms: it adds {share:.1f} %")


if __name__ == "__main__":
    main()
