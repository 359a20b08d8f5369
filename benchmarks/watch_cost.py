"""What a client monitor costs beside the mean of the same uploads: ratios within one process.

PYTHONPATH=src python benchmarks/watch_cost.py 100 1000000
PYTHONPATH=src python benchmarks/watch_cost.py 1000 100000
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import fedgauss as fg

ROUNDS = 30  # from the twelfth on clients are judged


def best(run: Callable[[], object], times: int) -> float:
    """Seconds of the quickest of so many."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return min(found)


def main() -> None:
    """The ratio for one size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clients", type=int)
    parser.add_argument("parameters", type=int)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    moves = rng.standard_normal((given.clients, given.parameters), dtype=np.float32)
    by_name = dict(enumerate(moves))
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monitor = fg.ClientMonitor(seed=1)
    means, seconds = [], []
    for _ in range(given.rounds):  # in turns, so that both meet the same machine
        means.append(best(lambda: moves.mean(axis=0), 1))
        seconds.append(best(lambda: monitor.update(by_name), 1))
    mean = min(means)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
    update = min(seconds[12:])
    print(
        f"K = {given.clients:,}, d = {given.parameters:,}: mean {mean * 1e3:.0f} ms, update {update * 1e3:.0f} ms, ",
        end="",
    )
    print(f"{update / mean:.1f} times (measured alone {min(seconds[:10]) / mean:.1f}); {more:.0f} MB more")


if __name__ == "__main__":
    main()
