"""A million replicates on an accelerator: `PYTHONPATH=src python3 benchmarks/gpu.py --out gpu.json`.

Needs fedgauss, a JAX that sees the accelerator, and nothing else of this folder. On a CPU it works, slowly:
`--scale 0.001` runs a thousandth of the replicates, to try it out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import fedgauss as fg

REPEATS = 5


def ring_job(n_clients: int, replicates: int, n_steps: int, sync_every: int, budget: float) -> Callable[[int], Any]:
    """FRand-eff in two dimensions on a ring, as a function of the seed."""
    problem = fg.problems.random_effects(n_clients, 2, seed=1907)
    network = fg.networks.ring(n_clients)
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)

    def call(seed: int) -> Any:
        return fg.simulate(
            problem,
            network,
            steps,
            n_steps,
            sync_every=sync_every,
            replicates=replicates,
            seed=seed,
            memory_budget=budget,
            progress=False,
        )

    return call


def timed(call: Callable[[int], Any], seed: int) -> tuple[float, Any]:
    """Seconds until the results are NumPy arrays on the host, and the results."""
    began = time.perf_counter()
    runs = call(seed)
    return time.perf_counter() - began, runs


def measure(name: str, call: Callable[[int], Any]) -> dict[str, Any]:
    """The first call, which compiles, and then the timed ones."""
    first, runs = timed(call, 0)
    times = [timed(call, seed)[0] for seed in range(1, REPEATS + 1)]
    sd = runs.average.std(axis=0, ddof=1)
    row = {
        "job": name,
        "first_s": first,
        "times_s": times,
        "min_s": min(times),
        "median_s": float(np.median(times)),
        "average_mean": runs.average.mean(axis=0).tolist(),
        "average_sd": sd.tolist(),
    }
    print(f"{name:52} first {first:8.3f} s   min {min(times):8.4f} s   median {row['median_s']:8.4f} s", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--budget", type=float, default=64.0, help="memory for the runs in hand, GiB (default 64)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the replicates to run (default 1)")
    options = parser.parse_args()
    budget = options.budget * 2**30
    device = jax.devices()[0]
    print(f"JAX {jax.__version__} on {device.device_kind} ({device.platform})", flush=True)
    rows = []
    for n_clients, replicates, n_steps, sync_every in (
        (10, 10_000, 500, 20),
        (10, 100_000, 500, 20),
        (10, 1_000_000, 500, 20),
        (1_000, 10_000, 500, 20),
    ):
        some = max(1, round(replicates * options.scale))
        name = f"K = {n_clients:,}, R = {some:,}, n = {n_steps}, tau = {sync_every}"
        rows.append(measure(name, ring_job(n_clients, some, n_steps, sync_every, budget)))
    if options.out:
        about = {"jax": jax.__version__, "device": device.device_kind, "platform": device.platform}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**about, "fedgauss": fg.__version__, "rows": rows}, indent=2) + "\n")
        print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
