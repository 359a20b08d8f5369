"""What protection adds to a round of `flwr run`: python benchmarks/flower_run.py [rounds]

Needs Flower and PyTorch. Runs a copy of examples/flower_cnn in which the calls of `Monitored` are timed where they
happen, less those of FedAvg within them, by the clock: the difference of two runs would drown in what else a machine
does.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "flower_cnn"
TIMED = """

_untimed, _spent = strategy_of, {"whole": 0.0, "within": 0.0}


def _timed(what, call):
    def inner(*args, **kwargs):
        began = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            _spent[what] += time.perf_counter() - began

    return inner


def strategy_of(config):
    strategy = _untimed(config)
    for name in ("configure_train", "aggregate_train"):
        setattr(strategy.strategy, name, _timed("within", getattr(strategy.strategy, name)))
        setattr(strategy, name, _timed("whole", getattr(strategy, name)))
    return strategy


_story_of = _story


def _story(config, outcome):
    outcome["added"] = _spent["whole"] - _spent["within"]
    return _story_of(config, outcome)
"""


def main() -> None:
    n_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    with tempfile.TemporaryDirectory() as folder:
        app, out = Path(folder) / "app", Path(folder) / "outcome.json"
        shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("__pycache__"))
        server = app / "flower_cnn" / "server_app.py"
        server.write_text(server.read_text() + TIMED)
        config = f'attack="none" n-rounds={n_rounds} output="{out}"'
        flwr = Path(sys.executable).parent / "flwr"
        found = os.environ | {"PATH": os.pathsep.join([str(flwr.parent), os.environ["PATH"]])}
        words = [flwr, "run", app, "--run-config", config, "--stream"]
        done = subprocess.run(words, env=found, capture_output=True, text=True, check=False)
        if not out.exists():
            sys.exit(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)[-3000:])
        outcome = json.loads(out.read_text())
    whole, added = statistics.median(outcome["seconds"]), outcome["added"] / n_rounds
    print(
        f"{n_rounds} rounds of flwr run: {1e3 * whole:.0f} ms a round (median), of which Monitored "
        f"{1e3 * added:.1f} ms (mean): it adds {100 * added / (whole - added):.1f} %"
    )


if __name__ == "__main__":
    main()
