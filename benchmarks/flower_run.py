"""What protection adds to a round of examples/flower_cnn under `flwr run`: python benchmarks/flower_run.py [rounds]

Needs Flower with its simulation, and PyTorch. `Monitored` is timed inside the run, as its own calls less those of
FedAvg within them, by the clock: the difference of two runs drowns in what else a machine does.
`benchmarks/flower_round.py` takes processor time, in one process.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integrations"))

from test_flower_processes import SIMULATION, TEN_NODES, flower  # noqa: E402

SETTLING = 12  # rounds at the start of a run: workers are started, and nobody is judged
# Goes to the end of the example's server app, in a copy.
STOPWATCH = """

_strategy_of, _run, _added = strategy_of, run, []
_spent = {"whole": 0.0, "within": 0.0}


def _timed(call, part):
    def inner(*args, **kwargs):
        began = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            _spent[part] += time.perf_counter() - began

    return inner


def strategy_of(config):
    strategy = _strategy_of(config)
    for name in ("configure_train", "aggregate_train"):
        setattr(strategy.strategy, name, _timed(getattr(strategy.strategy, name), "within"))
        setattr(strategy, name, _timed(getattr(strategy, name), "whole"))
    aggregate = strategy.aggregate_train

    def noted(*args, **kwargs):
        found = aggregate(*args, **kwargs)
        _added.append(_spent["whole"] - _spent["within"])
        return found

    strategy.aggregate_train = noted
    return strategy


def run(grid, config):
    return _run(grid, config) | {"added": _added}
"""


def main() -> None:
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    with tempfile.TemporaryDirectory() as folder:
        example, place = Path(folder) / "example", Path(folder) / "run"
        shutil.copytree(ROOT / "examples" / "flower_cnn", example, ignore=shutil.ignore_patterns("__pycache__"))
        with (example / "flower_cnn" / "server_app.py").open("a") as program:
            program.write(STOPWATCH)
        place.mkdir()
        with flower(place, *SIMULATION, example=example) as link:
            found = link.run_with({"attack": "none", "n-rounds": n_rounds}, *TEN_NODES)
    added = [after - before for before, after in zip([0.0, *found["added"]], found["added"], strict=False)]
    rounds = found["seconds"][SETTLING:]
    plain, extra = statistics.median(rounds), statistics.median(added[SETTLING:])
    share = 100 * extra / (plain - extra)
    print(
        f"{len(rounds)} rounds of {1e3 * plain:.0f} ms, of which Monitored {1e3 * extra:.1f} ms: it adds {share:.1f} %"
    )


if __name__ == "__main__":
    main()
