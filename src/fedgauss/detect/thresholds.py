"""Thresholds that hold over a whole run: from the table in the package, or by simulation where it does not reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.channel import TEMPERING, Channel, Conditions, RoundSeen
from fedgauss.detect.innovations import Whitening, dof_needed, scales
from fedgauss.detect.watch import DEFAULT_CHANNELS, Watch, rounds_to_drop

TABLE_FORMAT = "fedgauss thresholds 2"
_MARGIN = 0.03  # by which thresholds are raised where rounds are short: their gradients are not quite Gaussian
_LONG = 20  # steps: a round from which on they are
FIRST_EPOCH = 500  # steps
_GROWTH = 4.0  # how much likelier a window twice as long makes an exceedance; simulated: 2.0 to 3.9 at 4,000 steps
LONGEST_HORIZON = 10**15  # steps: numbers of steps are added up, and must stay whole
_EPOCHS = 40  # enough for 2^48 steps
_SIMULATED_PATHS = 2_000  # paths of a simulation where the table has no column
_ENOUGH = 50  # paths beyond a quantile, below which the tail's formula is better than the simulation


@dataclass(frozen=True)
class Boundary:
    """The thresholds of every channel: up to step `ends[0]`, then up to `ends[1]`, and so on.

    Attributes
    ----------
    ends : (E,) int
        The steps at which epochs end.
    levels : mapping of str to (E,)
        By channel name, the threshold in each epoch; the margin is included.
    """

    ends: npt.NDArray[np.int64]
    levels: Mapping[str, FloatArray]

    def at(self, step: int) -> tuple[float, ...]:
        """The threshold of each channel after this many steps; the last ones hold beyond the end."""
        i = min(int(np.searchsorted(self.ends, step)), len(self.ends) - 1)
        return tuple(float(level[i]) for level in self.levels.values())


def margin(sync_every: int) -> float:
    """What simulated thresholds are multiplied by: 1.03 where rounds have one step, falling to 1 where they have 20.

    Without it .12 of runs of 5 clients with t(5) noise and rounds of one step had a false alarm at a nominal .05, and
    .08 with Gaussian noise; with rounds of 20 steps .05 and .036.
    """
    return 1.0 + _MARGIN * max(_LONG - sync_every, 0) / (_LONG - 1)


def checked_horizon(horizon: int | None, sync_every: int) -> int | None:
    """The number of steps over which alpha holds, or None: enough of them that something can be seen."""
    if horizon is None:
        return None
    least = (2 * rounds_to_drop(sync_every) + 1) * sync_every
    fix = f"With sync_every = {sync_every} nothing can be seen before step {least}; None is no end."
    return _checks.whole("horizon", horizon, at_least=least, fix=fix, at_most=LONGEST_HORIZON)


def epoch_ends(horizon: int | None) -> npt.NDArray[np.int64]:
    """The steps at which thresholds change: that of the horizon, or 500 2^i."""
    return FIRST_EPOCH << np.arange(_EPOCHS) if horizon is None else np.array([horizon])


def boundary(
    dim: int,
    sync_every: int,
    alpha: float,
    horizon: int | None,
    seed: int = 0,
    whitening: Whitening | None = None,
    channels: Sequence[Channel] = DEFAULT_CHANNELS,
) -> Boundary:
    """Thresholds under which any false alarm over the run has probability alpha.

    With a horizon they are constant, and hold for that many steps. Without one, epoch i = 0, 1, ... ends at step
    500 2^i and spends 6 alpha / (pi (i + 1))^2, which sums to alpha over all epochs.

    Parameters
    ----------
    dim, sync_every : int
        Dimension d, and steps between two rounds.
    alpha : float
        Shared out among channels by their `share`. Values above 0.2 are treated as 0.2.
    horizon : int or None
        The number of steps over which alpha holds; None for no end.
    seed : int
        Of the simulation, where the table in the package does not reach.
    whitening : Whitening, optional
        Innovations whitened by an estimated V have thresholds of their own, which are simulated.
    channels : sequence of Channel
        What is watched; the mean, the spread and the quiet channel by default.

    Returns
    -------
    Boundary
    """
    dim, sync_every = _checks.whole("dim", dim), _checks.whole("sync_every", sync_every)
    alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
    horizon = checked_horizon(horizon, sync_every)
    law = None if whitening is None or whitening.in_table else _rounded(whitening)
    ends = epoch_ends(horizon)
    spent = np.ones(1) if horizon is not None else np.asarray(6.0 / (np.pi * (np.arange(_EPOCHS) + 1.0)) ** 2)
    null = _Null(dim, sync_every, seed, law, tuple(c for c in channels if c.threshold(alpha) is None))
    total = sum(channel.share for channel in channels)
    levels = {}
    for channel in channels:
        p = channel.share / total * alpha
        if (known := channel.threshold(p)) is not None:
            levels[channel.name] = np.full(len(ends), known)
            continue
        heights = [null.level(channel, p * s, int(end), horizon is None) for s, end in zip(spent, ends, strict=True)]
        levels[channel.name] = margin(sync_every) * np.array(heights)
    return Boundary(ends, levels)


def _rounded(given: Whitening) -> Whitening:
    """The whitening that a calibration simulates, rounded so that monitors can share the simulation.

    Without a ridge the spectrum does not matter.
    """
    shape = given.spectrum / given.spectrum.mean() if given.ridge else np.ones_like(given.spectrum)
    dof = given.dof
    if np.isfinite(dof):
        unit = 10.0 ** (np.floor(np.log10(dof)) - 1.0)  # two digits
        dof = max(np.floor(dof / unit) * unit, float(dof_needed(len(shape))))
    return Whitening(np.diag(shape**-0.5), shape, given.ridge, float(dof), float(np.round(given.tempering, 2)))


class _Null(NamedTuple):
    """Honest runs whose statistics have a known law: what thresholds are quantiles of."""

    dim: int
    sync_every: int
    seed: int
    law: Whitening | None
    channels: tuple[Channel, ...]

    def level(self, channel: Channel, p: float, last: int, epoch: bool) -> float:
        """The level that a channel exceeds with probability p before step `last`: in its epoch, or from step 1.

        A sync_every between two columns of the table takes the smaller: it looks more often, and its threshold is
        higher. A horizon between two takes the larger. Past the end of the table every doubling of the window
        multiplies the probability by 4 at most: short segments get twice as many chances, and the longest, least
        tempered, are new.
        """
        table = threshold_table()
        horizons, dims = table["horizons"], table["dims"]
        doublings = max(float(np.log2(last / horizons[-1])), 0.0)
        reach = min(last, horizons[-1])
        column = int(np.searchsorted(horizons, reach))
        end = horizons[column]
        if epoch and reach > FIRST_EPOCH:
            column = len(horizons) + [end for _, end in table["epochs"]].index(reach)
        q = p / _GROWTH**doublings
        tau = max(t for t in table["taus"] if t <= self.sync_every)
        tails = np.array(table["tails"])
        if self._is_simulated(channel):
            levels = self._simulated(tau, end)[channel.name][column]
            noise_dof = self.law.dof if self.law is not None and channel.heavier_when_estimated else np.inf
            return tail_point(q, tails, levels, _SIMULATED_PATHS, channel.dof(self.dim), noise_dof)

        def at(d: int) -> float:
            i, j = dims.index(d), table["taus"].index(tau)
            levels = np.array(table[channel.name][i][j][column])
            return tail_point(q, tails, levels, table["paths"], channel.dof(d))

        if self.dim in dims:
            return at(self.dim)
        above = next(i for i, d in enumerate(dims) if d > self.dim)
        low, high = dims[above - 1], dims[above]
        return float(np.interp(np.sqrt(self.dim), np.sqrt([low, high]), [at(low), at(high)]))

    def _is_simulated(self, channel: Channel) -> bool:
        return not channel.tabulated or self.law is not None or self.dim > threshold_table()["dims"][-1]

    def _simulated(self, tau: int, last: int) -> dict[str, FloatArray]:
        """Quantiles by channel, (windows, tails): simulated once in a process for channels with these settings."""
        needed = tuple(channel for channel in self.channels if self._is_simulated(channel))
        kinds = tuple((type(channel), *sorted(vars(channel).items())) for channel in needed)
        law = self.law and (*self.law.spectrum, self.law.ridge, self.law.dof, self.law.tempering)
        key = (self.dim, tau, last, self.seed, law, kinds)
        if key not in _SIMULATED:
            _SIMULATED[key] = self._simulate(tau, last, needed)
        return _SIMULATED[key]

    def _simulate(self, tau: int, last: int, channels: tuple[Channel, ...]) -> dict[str, FloatArray]:
        from fedgauss._progress import ProgressBar

        table = threshold_table()
        windows = [(0, h) for h in table["horizons"]] + [tuple(epoch) for epoch in table["epochs"]]
        needed = [w for w in windows if w[1] <= last]
        with ProgressBar(f"thresholds for d = {self.dim}", _SIMULATED_PATHS) as bar:
            maxima = null_maxima(
                self.dim, tau, needed, _SIMULATED_PATHS, [self.seed, self.dim, tau],
                chunk=200, advance=bar.advance, whitening=self.law, channels=channels,
            )  # fmt: skip
        tails = 1.0 - np.array(table["tails"])
        levels = {name: np.zeros((len(windows), len(tails))) for name in maxima}
        for name, largest in maxima.items():
            levels[name][[windows.index(w) for w in needed]] = np.quantile(largest, tails, axis=1).T
        return levels


_SIMULATED: dict[tuple[Any, ...], dict[str, FloatArray]] = {}


@cache
def threshold_table() -> dict[str, Any]:
    """The table in the package, which `scripts/make_thresholds.py` makes."""
    return json.loads(resources.files("fedgauss.detect").joinpath("thresholds.json").read_text())


def tail_point(
    p: float, tails: FloatArray, levels: FloatArray, paths: int, dof: int, noise_dof: float = np.inf
) -> float:
    """The level exceeded with probability p, given levels at decreasing `tails` from so many paths.

    Between simulated tails h^2 is linear in log p, as Gaussian tails nearly are. Beyond the last tail with 50 paths
    above it, the tail of the maximum of a chi_d field is used, anchored there:

        P(max > h) = const h^2 P(chi^2_d > h^2).

    A larger level is reached in shorter clumps, hence the factor h^2; tempering thins the tail. The exponent fitted
    to simulations between tails of .1 and .001 was at most 1.5, and mostly negative: the level errs upwards. Where V
    was estimated, with `noise_dof` degrees of freedom, Hotelling's law takes the place of chi^2_d, and without the
    factor: its tail is a power, which a factor h^2 could keep from falling.
    """
    trusted = max(int(np.sum(tails * paths >= _ENOUGH)), 1)
    last = trusted - 1
    if levels[last] <= 0.0:  # a window too short for any candidate: nothing was there to calibrate
        return float("inf")
    if p >= tails[last]:
        return float(np.sqrt(np.interp(-np.log(p), -np.log(tails[:trusted]), levels[:trusted] ** 2)))

    def excess(h: float) -> float:
        gained = _log_tail(h, dof, noise_dof) - _log_tail(float(levels[last]), dof, noise_dof)
        return gained - float(np.log(p / tails[last]))

    low = float(max(levels[last], 1.0))
    high = low + 20.0
    while excess(high) > 0:
        high *= 2.0
    return float(optimize.brentq(excess, low, high)) if excess(low) > 0 else low


def _log_tail(h: float, dof: int, noise_dof: float) -> float:
    if np.isinf(noise_dof):
        return 2.0 * float(np.log(h)) + float(np.log(special.gammaincc(dof / 2, h * h / 2)))
    rest = noise_dof - dof + 1.0
    return float(np.log(special.fdtrc(dof, rest, h * h * rest / (noise_dof * dof))))


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
    dropped, tempering = rounds_to_drop(sync_every), TEMPERING if whitening is None else whitening.tempering
    chunks: list[dict[str, FloatArray]] = []
    for number, begun in enumerate(range(0, replicates, chunk)):
        generator = np.random.Generator(np.random.SFC64([*np.atleast_1d(seed), number]))
        watch = Watch(channels, Conditions(dim, chunk, sync_every, dropped, tempering))
        whiteners = None if whitening is None else estimated_whiteners(whitening, chunk, generator)
        largest = {channel.name: np.zeros((len(windows), chunk)) for channel in channels}
        for _ in range(dropped):
            watch.skip()
        for j in range(dropped + 1, rounds + 1):
            x = generator.standard_normal((dim, chunk)) / np.sqrt(sync_every)
            if whiteners is not None:
                x = np.einsum("rij,jr->ir", whiteners, x)
            peaks = watch.update(RoundSeen(x, float(sync_every), (j - 1) * sync_every))
            for i, (after, last) in enumerate(windows):
                if after < j * sync_every <= last:
                    for top, peak in zip(largest.values(), peaks, strict=True):
                        np.maximum(top[i], peak.statistic, out=top[i])
        chunks.append(largest)
        if advance is not None:
            advance(min(chunk, replicates - begun))
    return {name: np.concatenate([maxima[name] for maxima in chunks], axis=1)[:, :replicates] for name in chunks[0]}


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
