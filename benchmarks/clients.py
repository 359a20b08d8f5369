"""What watching clients costs: time of an update of small and large models, and memory over 10,000 rounds."""

from __future__ import annotations

import time
from typing import Any

import common
import numpy as np
from common import Figure, Say
from monitor import MEGABYTE, resident

ROUNDS, EARLY = 10_000, 500


def update_times(n_clients: int, dim: int, rounds: int) -> dict[str, Any]:
    """Median time of an update after the warm-up, and the longest: where somebody looks strange, groups are judged."""
    import fedgauss as fg

    generator = np.random.default_rng(0)
    own = generator.standard_normal((n_clients, dim), dtype=np.float32)
    monitor, times = fg.ClientMonitor(seed=0), []
    for j in range(rounds):
        moves = own + generator.standard_normal((n_clients, dim), dtype=np.float32)
        began = time.perf_counter()
        monitor.update(moves)
        times.append(time.perf_counter() - began)
        if j == EARLY:
            early = resident()
    grown = resident() - early if rounds > EARLY else 0
    watched = times[len(times) // 2 :]
    return {"median": float(np.median(watched)), "longest": max(watched), "grown": grown}


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    rows = []
    for n_clients, dim in ((10, 25_000), (100, 1_000_000)):
        say(f"{n_clients} clients, {dim:,} parameters")
        seen = common.fresh(
            "clients", "update_times", {"n_clients": n_clients, "dim": dim, "rounds": 36}, one_core=True
        )
        name = f"{n_clients} clients with {dim:,} parameters"
        rows.append(Figure(f"update of {name}", 1e3 * seen["median"], "ms"))
        rows.append(Figure(f"the longest of 18 updates of {name}", 1e3 * seen["longest"], "ms"))
    say(f"{ROUNDS:,} rounds")
    seen = common.fresh("clients", "update_times", {"n_clients": 10, "dim": 40, "rounds": ROUNDS}, one_core=True)
    rows.append(Figure("update of 10 clients with 40 parameters", 1e3 * seen["median"], "ms"))
    rows.append(Figure(f"resident memory, round {EARLY:,} to {ROUNDS:,}", seen["grown"] / MEGABYTE, "MB", "< 5"))
    return rows
