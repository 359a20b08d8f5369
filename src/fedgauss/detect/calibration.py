"""Calibration by simulation: how large the statistics get over a run of independent Gaussian innovations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.channel import TEMPERING, Channel, Conditions, RoundSeen
from fedgauss.detect.watch import DEFAULT_CHANNELS, Watch, rounds_to_drop
from fedgauss.detect.whitening import Whitening, scales


def null_maxima(
    dim: int,
    sync_every: int,
    windows: Sequence[tuple[int, int]],
    replicates: int,
    seed: int | Sequence[int] = 0,
    chunk: int = 500,
    advance: Callable[[int], None] | None = None,
    whitening: Whitening | None = None,
    channels: Sequence[Channel] = DEFAULT_CHANNELS,
) -> dict[str, FloatArray]:
    """Each channel's largest statistic in each window of steps (after, last], under x_j ~ N(0, I / tau).

    With V known the null law of the whitened statistics depends on d, tau and the rounds alone, so these paths stand
    for every problem. With an estimated V each path is whitened by an estimate of its own (`estimated_whiteners`),
    so that the thresholds allow for its error.

    Paths come in chunks, each with a seed of its own (seed, number of the chunk): fewer replicates are the beginning of
    more, and `advance` is told the number of paths done after each chunk.

    Returns
    -------
    dict
        By channel name, (windows, replicates).
    """
    rounds = max(last for _, last in windows) // sync_every
    chunks: list[dict[str, FloatArray]] = []
    for number, begun in enumerate(range(0, replicates, chunk)):
        generator = np.random.Generator(np.random.SFC64([*np.atleast_1d(seed), number]))
        chunks.append(_chunk_maxima(dim, sync_every, windows, rounds, chunk, generator, whitening, channels))
        if advance is not None:
            advance(min(chunk, replicates - begun))
    return {name: np.concatenate([maxima[name] for maxima in chunks], axis=1)[:, :replicates] for name in chunks[0]}


def _chunk_maxima(
    dim: int,
    sync_every: int,
    windows: Sequence[tuple[int, int]],
    rounds: int,
    replicates: int,
    generator: np.random.Generator,
    whitening: Whitening | None,
    channels: Sequence[Channel],
) -> dict[str, FloatArray]:
    """The same for one chunk of paths."""
    dropped, tempering = rounds_to_drop(sync_every), TEMPERING if whitening is None else whitening.tempering
    watch = Watch(channels, Conditions(dim, replicates, sync_every, dropped, tempering))
    whiteners = None if whitening is None else estimated_whiteners(whitening, replicates, generator)
    largest = {channel.name: np.zeros((len(windows), replicates)) for channel in channels}
    for _ in range(dropped):
        watch.skip()
    for j in range(dropped + 1, rounds + 1):
        x = generator.standard_normal((dim, replicates)) / np.sqrt(sync_every)
        if whiteners is not None:
            x = np.einsum("rij,jr->ir", whiteners, x)
        peaks = watch.update(RoundSeen(x, float(sync_every), (j - 1) * sync_every))
        for i, (after, last) in enumerate(windows):
            if after < j * sync_every <= last:
                for top, peak in zip(largest.values(), peaks, strict=True):
                    np.maximum(top[i], peak.statistic, out=top[i])
    return largest


def estimated_whiteners(whitening: Whitening, replicates: int, generator: np.random.Generator) -> FloatArray | None:
    """M_r V^1/2 (R, d, d): the map from a Gaussian innovation to its whitened form in path r.

    Path r has its own estimate V_r, a Wishart matrix with the stated degrees of freedom and mean V, and M_r is made of
    V_r as M was of the estimate at hand. Only the eigenvalues of V matter, so it is taken to be diagonal. None where V
    is known and M whitens it.
    """
    if np.isinf(whitening.dof):
        return None
    dim, root = len(whitening.spectrum), np.sqrt(whitening.spectrum)
    # Bartlett: V_r = root L L' root / dof, L lower triangular, chi variables on its diagonal and normals below.
    lower = np.tril(generator.standard_normal((replicates, dim, dim)), k=-1)
    chi2 = generator.chisquare(whitening.dof - np.arange(dim), size=(replicates, dim))
    lower[:, np.arange(dim), np.arange(dim)] = np.sqrt(chi2)
    factors = root[:, None] * lower / np.sqrt(whitening.dof)
    values, axes = np.linalg.eigh(factors @ factors.transpose(0, 2, 1))
    return (axes * scales(values, whitening.ridge)[:, None, :]) @ (axes.transpose(0, 2, 1) * root)
