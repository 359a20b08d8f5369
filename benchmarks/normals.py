"""The engine against NumPy drawing the same 15 million normals and nothing else, on one core."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
from common import Figure, Say


def draw(seed: int, scratch: np.ndarray[Any, Any]) -> None:
    """All normals of the base job, a step at a time: two for x and one for y, each client and replicate."""
    generator = np.random.Generator(np.random.SFC64(seed))
    for _ in range(common.N_STEPS):
        generator.standard_normal(out=scratch, dtype=np.float32)


def measure(repeats: int) -> dict[str, Any]:
    """Import, first call, then engine and NumPy in turn, so that a disturbance hits both alike."""
    loading = common.seconds(load)
    first = common.seconds(common.base_job)
    scratch = np.empty((common.DIM + 1, common.N_CLIENTS, common.REPLICATES), np.float32)
    draw(0, scratch)
    engine, normals = [], []
    for seed in range(1, repeats + 1):
        engine.append(common.seconds(partial(common.base_job, seed=seed)))
        normals.append(common.seconds(partial(draw, seed, scratch)))
    return {"import": loading, "first": first, "engine": engine, "normals": normals}


def load() -> None:
    """Import everything that a simulation needs, JAX included."""
    import fedgauss

    fedgauss.simulate  # noqa: B018  (loaded on first use)


def figures(say: Say) -> list[Figure]:
    """The figures of this benchmark."""
    say("engine and NumPy in turn, one core")
    result = common.fresh("normals", "measure", {"repeats": 9}, one_core=True)
    engine, normals = common.spread(result["engine"]), common.spread(result["normals"])
    return [
        Figure("import of fedgauss and JAX", result["import"], "s"),
        Figure("first call, compilation included", result["first"], "s", "< 3"),
        Figure("engine, minimum of 9", engine[0], "s"),
        Figure("engine, median of 9", engine[1], "s"),
        Figure("NumPy's 15 million normals, minimum of 9", normals[0], "s"),
        Figure("NumPy's 15 million normals, median of 9", normals[1], "s"),
        Figure("engine over normals, minima", engine[0] / normals[0], "x", "<= 1.2"),
        Figure("engine over normals, medians", engine[1] / normals[1], "x", "<= 1.2"),
    ]
