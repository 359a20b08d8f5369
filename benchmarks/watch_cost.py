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


def spent(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds on the wall, and of the processor in all threads."""
    began = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began[0], time.process_time() - began[1]


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
        means.append(spent(lambda: moves.mean(axis=0)))
        seconds.append(spent(lambda: monitor.update(by_name)))
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024
    wall, cpu = (min(each[i] for each in seconds[12:]) / min(each[i] for each in means) for i in (0, 1))
    print(f"K = {given.clients:,}, d = {given.parameters:,}: update {wall:.1f} times the mean, ", end="")
    print(f"{cpu:.1f} times its processor time; {more:.0f} MB more")


if __name__ == "__main__":
    main()
