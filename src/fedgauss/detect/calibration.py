"""Calibration by simulation: how large the statistics get over a run of independent Gaussian innovations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.watch import Watch, rounds_to_drop


class Maxima(NamedTuple):
    """The largest statistic of each path in each window, for both channels: (windows, R) each."""

    mean: FloatArray
    spread: FloatArray


def null_maxima(
    dim: int,
    sync_every: int,
    windows: Sequence[tuple[int, int]],
    replicates: int,
    seed: int | Sequence[int] = 0,
    chunk: int = 500,
    advance: Callable[[int], None] | None = None,
) -> Maxima:
    """The maximum over rounds in each window of steps (after, last], under x_j ~ N(0, I / tau) with weight tau.

    The null law of the whitened statistics depends on d, tau and the rounds alone, so these paths stand for every
    problem. Paths come in chunks, each with a seed of its own (seed, number of the chunk): more replicates have
    fewer as their beginning, and `advance` is told the number of paths done after each chunk.
    """
    rounds = max(last for _, last in windows) // sync_every
    parts: list[Maxima] = []
    for number, begun in enumerate(range(0, replicates, chunk)):
        generator = np.random.Generator(np.random.SFC64([*np.atleast_1d(seed), number]))
        parts.append(_chunk_maxima(dim, sync_every, windows, rounds, chunk, generator))
        if advance is not None:
            advance(min(chunk, replicates - begun))
    return Maxima(*(np.concatenate(channel, axis=1)[:, :replicates] for channel in zip(*parts, strict=True)))


def _chunk_maxima(
    dim: int,
    sync_every: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    replicates: int,
    generator: np.random.Generator,
) -> Maxima:
    watch = Watch(dim, sync_every, replicates)
    largest = Maxima(np.zeros((len(windows), replicates)), np.zeros((len(windows), replicates)))
    dropped = rounds_to_drop(sync_every)
    for _ in range(dropped):
        watch.skip()
    for j in range(dropped + 1, rounds + 1):
        x = generator.standard_normal((dim, replicates)) / np.sqrt(sync_every)
        peaks = watch.update(x, float(sync_every), (j - 1) * sync_every)
        for i, (after, last) in enumerate(windows):
            if after < j * sync_every <= last:
                for top, peak in zip(largest, peaks, strict=True):
                    np.maximum(top[i], peak.statistic, out=top[i])
    return largest
