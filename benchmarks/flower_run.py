"""What protection adds to a round of examples/flower_cnn under `flwr run`.

    python benchmarks/flower_run.py [pairs [rounds]]

Needs Flower with its simulation, and PyTorch. Runs with and without `Monitored` take turns (plain, protected,
protected, plain, ...), since a machine is not as fast in one minute as in the next. `benchmarks/flower_round.py` times
the work of `Monitored` alone, in processor time.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "integrations"))

from test_flower_processes import SIMULATION, TEN_NODES, flower  # noqa: E402

SETTLING = 10  # rounds at the start of a run: workers are started, and the monitor has no past


def main() -> None:
    n_pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    n_rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    rounds: dict[bool, list[float]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory() as folder,
        flower(Path(folder), *SIMULATION, example=ROOT / "examples" / "flower_cnn") as link,
    ):
        for pair in range(n_pairs):
            medians = {}
            for protect in (False, True) if pair % 2 == 0 else (True, False):
                found = link.run_with({"protect": protect, "attack": "none", "n-rounds": n_rounds}, *TEN_NODES)
                seconds = found["seconds"][SETTLING:]
                rounds[protect] += seconds
                medians[protect] = statistics.median(seconds)
            plain, ours = 1e3 * medians[False], 1e3 * medians[True]
            more = 100 * (ours / plain - 1)
            print(f"pair {pair + 1}: {plain:.0f} ms a round plain, {ours:.0f} protected ({more:+.1f} %)")
    plain, ours = (1e3 * statistics.median(rounds[protect]) for protect in (False, True))
    more = 100 * (ours / plain - 1)
    print(f"all {len(rounds[True])} rounds each: {plain:.0f} and {ours:.0f} ms: protection adds {more:.1f} %")


if __name__ == "__main__":
    main()
