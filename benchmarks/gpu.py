"""A million replicates on an accelerator: `PYTHONPATH=src python3 benchmarks/gpu.py --out gpu.json`.

Needs fedgauss, a JAX that sees the accelerator, and nothing else of this folder. Runs are shared by all local devices;
`--one` keeps them on the first. On a CPU it works, slowly: `--scale 0.001` runs a thousandth of the replicates.

Two more lines take a million replicates apart: their random words alone, and their normals alone. What a run takes
beyond its normals is the recursion, its traffic with memory and starting programs. docs/cost.md has the arithmetic.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import fedgauss as fg
from fedgauss._random import Noise, stage_key
from fedgauss.engine.devices import mesh_for

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


def draws_job(n_clients: int, replicates: int, n_steps: int, normal: bool) -> Callable[[int], Any]:
    """The draws of `ring_job` and nothing else, on one device: each step adds them up, so that none can be left out."""

    @jax.jit
    def drawn(key: Any) -> Any:
        def step(t: Any, total: Any) -> Any:
            noise = Noise(key, jnp.uint32(0), n_clients, replicates).at_step(t)
            for name, count in (("design", 2), ("response", 1)):
                stream = noise.stream(name)
                total = total + (stream.normal(count) if normal else stream.words(count)).sum(axis=(0, 1))
            return total

        return lax.fori_loop(1, n_steps + 1, step, jnp.zeros(replicates, jnp.float32 if normal else jnp.uint32))

    return lambda seed: np.asarray(drawn(stage_key(seed, "data")))


def timed(call: Callable[[int], Any], seed: int) -> tuple[float, Any]:
    """Seconds until the results are NumPy arrays on the host, and the results."""
    began = time.perf_counter()
    runs = call(seed)
    return time.perf_counter() - began, runs


def measure(name: str, call: Callable[[int], Any]) -> dict[str, Any]:
    """The first call, which compiles, and then the timed ones."""
    first, runs = timed(call, 0)
    times = [timed(call, seed)[0] for seed in range(1, REPEATS + 1)]
    row: dict[str, Any] = {
        "job": name,
        "first_s": first,
        "times_s": times,
        "min_s": min(times),
        "median_s": float(np.median(times)),
    }
    if isinstance(runs, fg.Runs):
        row["average_mean"] = runs.average.mean(axis=0).tolist()
        row["average_sd"] = runs.average.std(axis=0, ddof=1).tolist()
    print(f"{name:52} first {first:8.3f} s   min {min(times):8.4f} s   median {row['median_s']:8.4f} s", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--budget", type=float, default=64.0, help="memory for the runs in hand, GiB (default 64)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the replicates to run (default 1)")
    parser.add_argument("--one", action="store_true", help="use the first device only")
    options = parser.parse_args()
    if options.one:
        jax.config.update("jax_default_device", jax.devices()[0])
    budget = options.budget * 2**30
    device = jax.devices()[0]
    mesh = mesh_for(round(1_000_000 * options.scale))
    devices = 1 if mesh is None else mesh.size
    print(f"JAX {jax.__version__} on {devices} x {device.device_kind} ({device.platform})", flush=True)
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
    some = max(1, round(1_000_000 * options.scale))
    for what, normal in (("words", False), ("normals", True)):
        rows.append(measure(f"the {what} of K = 10, R = {some:,}, n = 500 alone", draws_job(10, some, 500, normal)))
    if options.out:
        about = {"jax": jax.__version__, "device": device.device_kind, "platform": device.platform, "devices": devices}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**about, "fedgauss": fg.__version__, "rows": rows}, indent=2) + "\n")
        print(f"Written to {options.out}")


if __name__ == "__main__":
    main()
