"""What the benchmarks share: the base job, a fresh process to measure in, and a clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).parent

N_STEPS, N_CLIENTS, DIM, SYNC_EVERY, REPLICATES = 500, 10, 2, 20, 1000


class Figure(NamedTuple):
    """One number worth printing. `goal` is what the project aims for, where it aims for something."""

    quantity: str
    value: float
    unit: str = ""
    goal: str = ""


Say = Callable[[str], None]  # shows what is being measured


def base_job(replicates: int = REPLICATES, n_steps: int = N_STEPS, seed: int = 0) -> Any:
    """FRand-eff, n = 500, K = 10, d = 2, tau = 20 on a ring: the job that the headline figures are about."""
    import fedgauss as fg

    problem = fg.problems.random_effects(N_CLIENTS, DIM, seed=1907)
    return simulate_on_ring(problem, replicates, n_steps, SYNC_EVERY, seed)


def simulate_on_ring(problem: Any, replicates: int, n_steps: int, sync_every: int, seed: int = 0) -> Any:
    """One call of the engine, as a user makes it."""
    import fedgauss as fg

    network = fg.networks.ring(problem.n_clients)
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)
    return fg.simulate(
        problem, network, steps, n_steps, sync_every=sync_every, replicates=replicates, seed=seed, progress=False
    )


def seconds(work: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fresh(module: str, measure: str, arguments: dict[str, Any], one_core: bool = False) -> dict[str, Any]:
    """Call `module.measure(**arguments)` in a new process, on one core if asked, and return what it returned."""
    # A compilation cache on disk would hide what a first call costs.
    environment = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    order = json.dumps({"module": module, "measure": measure, "one_core": one_core, "arguments": arguments})
    command = [sys.executable, str(HERE / "child.py"), order]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def spread(times: list[float]) -> tuple[float, float]:
    """Minimum and median."""
    return min(times), float(np.median(times))
