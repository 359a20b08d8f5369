"""What watching costs: time of an update, memory and size of a saved monitor, up to 100,000 rounds in 40 dimensions."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import Figure, Say

DIM, SYNC_EVERY, ROUNDS, EARLY = 40, 5, 100_000, 1_000
MEGABYTE = 1e6


def resident() -> int:
    """Bytes resident now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def watch_long() -> dict[str, Any]:
    """Median update times near round 1,000 and at the end, and how much memory grew in between."""
    import fedgauss as fg

    identity = np.stack([np.eye(DIM)] * 5)
    steps = fg.step_sizes.polynomial(0.3, 0.75)
    monitor = fg.Monitor(fg.linearization(identity, identity), steps, sync_every=SYNC_EVERY)
    generator = np.random.default_rng(1)
    times = np.zeros(ROUNDS)
    early = 0
    for j in range(ROUNDS):
        y = generator.standard_normal(DIM) * 0.01  # the cost of an update does not depend on what it holds
        began = time.perf_counter()
        monitor.update(y)
        times[j] = time.perf_counter() - began
        if j == EARLY:
            early = resident()
    grown = resident() - early
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "monitor.npz"
        monitor.save(file)
        size = file.stat().st_size
    near = slice(EARLY - 500, EARLY + 500)
    return {"early": np.median(times[near]), "late": np.median(times[-1000:]), "grown": grown, "size": size}


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say(f"{ROUNDS:,} rounds, d = {DIM}")
    seen = common.fresh("monitor", "watch_long", {}, one_core=True)
    return [
        Figure(f"update near round {EARLY:,} (d = {DIM})", 1e6 * seen["early"], "us"),
        Figure(f"update near round {ROUNDS:,}", 1e6 * seen["late"], "us"),
        Figure("their ratio", seen["late"] / seen["early"], "x", "<= 3"),
        Figure(f"resident memory, round {EARLY:,} to {ROUNDS:,}", seen["grown"] / MEGABYTE, "MB", "< 5"),
        Figure("size of a saved monitor", seen["size"] / 1e3, "kB"),
    ]
