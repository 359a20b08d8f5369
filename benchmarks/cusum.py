"""The exact CUSUM R_t against a compiled naive double loop over t and s, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import common
import numpy as np
from common import Figure, Say

N_STEPS, DIM = 50_000, 2


def gaussian_path(n_steps: int, seed: int) -> np.ndarray[Any, Any]:
    """Aggr-GA with A = V = I and the step sizes of the base job: what R_t is computed of. (n, d)."""
    import fedgauss as fg

    lin = fg.linearization(np.eye(DIM)[None], np.eye(DIM)[None])
    steps = fg.step_sizes.polynomial(0.3, beta=0.75)
    return fg.approx.aggregated(lin, steps, n_steps, seed=seed, keep="path").path[0].astype(float)


def double_loop() -> Any:
    """R_t and its argmax by two nested loops in float64, compiled."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def naive(y: Any) -> Any:
        sums = jnp.cumsum(y - y[0], axis=0)

        def at_step(t: Any, tables: Any) -> Any:
            mean = sums[t - 1] / t

            def compare(s: Any, best: Any) -> Any:
                gap = sums[s - 1] - s * mean
                size = gap[0] * gap[0] + gap[1] * gap[1]
                larger = size > best[0]
                return jnp.where(larger, size, best[0]), jnp.where(larger, s, best[1])

            size, s = lax.fori_loop(1, t + 1, compare, (jnp.asarray(-1.0, y.dtype), jnp.asarray(1, t.dtype)))
            return tables[0].at[t - 1].set(jnp.sqrt(size)), tables[1].at[t - 1].set(s)

        start = jnp.zeros(len(y), y.dtype), jnp.zeros(len(y), int)
        return lax.fori_loop(1, len(y) + 1, at_step, start)

    return jax.jit(naive)


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU time of one call: all three compete on one core, and what else the machine does should not matter."""
    began = time.process_time()
    work()
    return time.process_time() - began


def measure(n_steps: int, repeats: int) -> dict[str, Any]:
    """CPU seconds of the naive loop, of `extend` and of `update` step by step, taken in turn on the same path."""
    import jax

    from fedgauss.detect.cusum import Cusum

    path = gaussian_path(n_steps, seed=1)

    def one_by_one() -> None:
        watch = Cusum(DIM)
        for y in path:
            watch.update(y)

    with jax.enable_x64(True):
        naive = double_loop().lower(path).compile()
        times: dict[str, list[float]] = {"naive": [], "extend": [], "update": []}
        for _ in range(repeats):
            times["naive"].append(cpu_seconds(lambda: jax.block_until_ready(naive(path))))
            times["extend"].extend(cpu_seconds(lambda: Cusum(DIM).extend(path)) for _ in range(5))
            times["update"].append(cpu_seconds(one_by_one))
        expected, where = (np.asarray(a) for a in naive(path))
    statistic, onset = Cusum(DIM).extend(path)
    return {
        **times,
        "difference": float(np.abs(statistic - expected).max() / expected.max()),
        "other_argmax": int((onset != where)[1:].sum()),  # at t = 1 every s ties
    }


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say(f"naive loop, extend and update in turn, n = {N_STEPS:,}, one core")
    result = common.fresh("cusum", "measure", {"n_steps": N_STEPS, "repeats": 3}, one_core=True)
    least, middle = ({name: common.spread(result[name])[k] for name in ("naive", "extend", "update")} for k in (0, 1))
    return [
        Figure(f"naive double loop, compiled, n = {N_STEPS:,}, d = {DIM}, minimum of 3", least["naive"], "CPU s"),
        Figure("Cusum.extend, the whole path at once, minimum of 15", least["extend"], "CPU s"),
        Figure("Cusum.update, step by step, minimum of 3", least["update"], "CPU s"),
        Figure("naive over extend, minima", least["naive"] / least["extend"], "x", ">= 100"),
        Figure("naive over extend, medians", middle["naive"] / middle["extend"], "x", ">= 100"),
        Figure("naive over update, minima", least["naive"] / least["update"], "x"),
        Figure("one update, mean", least["update"] / N_STEPS * 1e6, "CPU us"),
        Figure("largest difference of R_t, over the largest R_t", result["difference"]),
        Figure("steps with another argmax", result["other_argmax"]),
    ]


if __name__ == "__main__":
    for figure in figures(partial(print, flush=True)):
        goal = f"  (goal {figure.goal})" if figure.goal else ""
        print(f"{figure.quantity}: {figure.value:.4g} {figure.unit}{goal}")
