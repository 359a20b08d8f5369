"""Thresholds that hold over a whole run: from the table in the package, or by simulation where it does not reach."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import FloatArray
from fedgauss.detect.calibration import null_maxima
from fedgauss.detect.tails import tail_point
from fedgauss.detect.watch import rounds_to_drop
from fedgauss.detect.whitening import Whitening, freedom_needed

MARGIN = 1.015  # gradients away from the optimum are a little noisier than V
MEAN_SHARE = 0.9  # of alpha goes to the mean channel, the rest to the spread channel
FIRST_EPOCH = 500  # steps
_GROWTH = 4.0  # how much likelier a window twice as long makes an exceedance; simulated: 2.0 to 3.9 at 4,000 steps
_EPOCHS = 40  # enough for 2^48 steps
_SIMULATED_PATHS = 2_000  # paths of a simulation where the table has no column

Channel = Literal["mean", "spread"]


@dataclass(frozen=True)
class Boundary:
    """The thresholds in force: over steps up to `ends[0]`, then up to `ends[1]`, and so on; margin included."""

    ends: npt.NDArray[np.int64]
    mean: FloatArray
    spread: FloatArray

    def at(self, step: int) -> tuple[float, float]:
        """Of the mean and of the spread channel after this many steps; the last ones hold beyond the end."""
        i = min(int(np.searchsorted(self.ends, step)), len(self.ends) - 1)
        return float(self.mean[i]), float(self.spread[i])


def boundary(
    dim: int, sync_every: int, alpha: float, horizon: int | None, seed: int = 0, whitening: Whitening | None = None
) -> Boundary:
    """Thresholds under which any false alarm over the run has probability alpha, nine tenths of it for the mean.

    With a horizon they are constant, and hold for that many steps. Without one, epoch i = 0, 1, ... ends at step
    500 2^i and spends 6 alpha / (pi (i + 1))^2, which sums to alpha over all epochs. A `whitening` by an estimated V
    has thresholds of its own, simulated. An alpha above .2 has the thresholds of .2.
    """
    dim, sync_every = _checks.whole("dim", dim), _checks.whole("sync_every", sync_every)
    alpha = _checks.probability("alpha", alpha, fix="Use 0.05, one false alarm in 20 runs?")
    if horizon is not None:
        least = (2 * rounds_to_drop(sync_every) + 1) * sync_every
        fix = f"With sync_every = {sync_every} nothing can be seen before step {least}; None is no end."
        horizon = _checks.whole("horizon", horizon, at_least=least, fix=fix)
    law = None if whitening is None or whitening.in_table else _law(whitening)
    shares: dict[Channel, float] = {"mean": MEAN_SHARE * alpha, "spread": (1.0 - MEAN_SHARE) * alpha}
    if horizon is not None:
        wanted = [_Wanted(dim, sync_every, name, p, horizon, seed, law) for name, p in shares.items()]
        return Boundary(np.array([horizon]), *(MARGIN * np.array([_level(w)]) for w in wanted))
    epochs = np.arange(_EPOCHS)
    spent = 6.0 / (np.pi * (epochs + 1.0)) ** 2
    ends = [FIRST_EPOCH << int(i) for i in epochs]
    levels = [
        [
            _level(_Wanted(dim, sync_every, name, p * s, end, seed, law, epoch=True))
            for s, end in zip(spent, ends, strict=True)
        ]
        for name, p in shares.items()
    ]
    return Boundary(np.array(ends), *(MARGIN * np.array(channel) for channel in levels))


class _Wanted(NamedTuple):
    """The level that the channel exceeds with probability p before step `last`, in its epoch or from the beginning."""

    dim: int
    sync_every: int
    channel: Channel
    p: float
    last: int
    seed: int
    law: _Law | None
    epoch: bool = False


class _Law(NamedTuple):
    """A whitening as a calibration sees it: something to look up what was simulated before."""

    spectrum: tuple[float, ...]
    ridge: float
    freedom: float
    tempering: float

    def whitening(self) -> Whitening:
        values = np.array(self.spectrum)
        return Whitening(np.diag(values**-0.5), values, self.ridge, self.freedom, self.tempering)


def _law(given: Whitening) -> _Law:
    """Without a ridge the spectrum does not matter, and roundings let monitors share a simulation."""
    shape = given.spectrum / given.spectrum.mean() if given.ridge else np.ones_like(given.spectrum)
    freedom = given.freedom
    if np.isfinite(freedom):
        unit = 10.0 ** (np.floor(np.log10(freedom)) - 1.0)  # two digits
        freedom = max(np.floor(freedom / unit) * unit, float(freedom_needed(len(shape))))
    return _Law(tuple(shape.tolist()), given.ridge, float(freedom), float(np.round(given.tempering, 2)))


def _level(wanted: _Wanted) -> float:
    """From the table in the package, or from a simulation where it has no column.

    A sync_every between two columns takes the smaller: it looks more often, and its threshold is higher. A horizon
    between two takes the larger. Past the end of the table every doubling of the window multiplies the
    probability by 4 at most: short segments get twice as many chances, and the longest, least tempered, are new.
    """
    table = _table()
    horizons, dims = table["horizons"], table["dims"]
    doublings = max(float(np.log2(wanted.last / horizons[-1])), 0.0)
    reach = min(wanted.last, horizons[-1])
    column = int(np.searchsorted(horizons, reach))
    end = horizons[column]
    if wanted.epoch and reach > FIRST_EPOCH:
        column = len(horizons) + [end for _, end in table["epochs"]].index(reach)
    q = wanted.p / _GROWTH**doublings
    tau = max(t for t in table["taus"] if t <= wanted.sync_every)
    tails = np.array(table["tails"])
    dim, channel, law = wanted.dim, wanted.channel, wanted.law
    if law is not None or dim > dims[-1]:
        levels = _simulated(dim, tau, end, wanted.seed, law)[channel][column]
        # The spread channel's residuals are capped, so that an estimated V makes no heavier tail there.
        freedom = np.inf if law is None or channel == "spread" else law.freedom
        return tail_point(q, tails, levels, _SIMULATED_PATHS, _dof(channel, dim), freedom)

    def at(d: int) -> float:
        i, j = dims.index(d), table["taus"].index(tau)
        return tail_point(q, tails, np.array(table[channel][i][j][column]), table["paths"][i][j], _dof(channel, d))

    if dim in dims:
        return at(dim)
    above = next(i for i, d in enumerate(dims) if d > dim)
    low, high = dims[above - 1], dims[above]
    return float(np.interp(np.sqrt(dim), np.sqrt([low, high]), [at(low), at(high)]))


def _dof(channel: Channel, dim: int) -> int:
    """The spread channel looks at one number, a ratio of sizes; the mean channel at a vector."""
    return dim if channel == "mean" else 1


@cache
def _table() -> dict[str, Any]:
    return json.loads(resources.files("fedgauss.detect").joinpath("thresholds.json").read_text())


@cache
def _simulated(dim: int, tau: int, last: int, seed: int, law: _Law | None) -> dict[Channel, FloatArray]:
    """Columns that the table does not have: simulated once in a process, with a progress bar."""
    from fedgauss._progress import ProgressBar

    table = _table()
    windows = [(0, h) for h in table["horizons"]] + [tuple(epoch) for epoch in table["epochs"]]
    needed = [w for w in windows if w[1] <= last]
    whitening = None if law is None else law.whitening()
    with ProgressBar(f"thresholds for d = {dim}", _SIMULATED_PATHS) as bar:
        maxima = null_maxima(
            dim, tau, needed, _SIMULATED_PATHS, [seed, dim, tau], chunk=200, advance=bar.advance, whitening=whitening
        )
    tails = 1.0 - np.array(table["tails"])
    levels: dict[Channel, FloatArray] = {}
    for name, channel in (("mean", maxima.mean), ("spread", maxima.spread)):
        full = np.zeros((len(windows), len(tails)))
        full[[windows.index(w) for w in needed]] = np.quantile(channel, tails, axis=1).T
        levels[name] = full  # type: ignore[index]
    return levels
