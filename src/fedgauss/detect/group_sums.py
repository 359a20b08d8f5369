"""A monitor of clients of whom nothing is seen but two numbers a round: how far each went along the model.

Under secure aggregation nobody sees uploads. What a group vouches for are <u_k, c> / |c| for two directions that all
know, the model and its last matrix (`fedgauss.federated.group_sums`). A client that turns its labels round goes back
along the last matrix, one that turns its sign goes back along both.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc, fdtri

from fedgauss import _checks
from fedgauss._types import ArrayLike, BoolArray, FloatArray
from fedgauss.detect.clients.surprise import surprise_of
from fedgauss.detect.clients.verdict import ClientVerdict, Name
from fedgauss.detect.spending import spent

N_NUMBERS = 2
WINDOWS = (1, 2, 3, 5, 8)  # rounds whose mean is compared with those before them
MEMORY = 15  # rounds before a window that it is compared with
LEAST_PAST = 8  # of them, to be judged at all
_LONGEST = 20  # rounds that an onset may lie back
_DROP = 16.0  # of T^2, down to which a round may still be the onset
LENGTH = MEMORY + _LONGEST  # rounds of a client that are looked at
LEFT_OUT_FIRST = 3  # rounds in which a model moves too fast to be a past
FEWEST = 6  # clients in a round, of which a median says what all do
_BORROWED = 8.0  # rounds' worth of the other clients' covariance in each client's own
# Of the degrees of freedom that independent Gaussian rounds would give. With .8 one of 240 honest runs of the settings
# that benchmarks/watch_groups.py calls calibrated came within a factor of 3 of an alarm, with .7 none within 4.
_WORTH = 0.7
_SHARED = 0.3  # quantile over clients: up to two fifths may be bad
_CLIP = 4.0  # deviations, beyond which a round counts as this far in a mean


class Judged(NamedTuple):
    """The last round of R runs."""

    p: FloatArray  # how likely an honest client stands out as much; NaN without a past  (R, K)
    chance: FloatArray  # that any of them does  (R,)
    named: BoolArray  # clients that do not look honest beside the others  (R, K)


def judged(history: FloatArray, rate: float) -> Judged:
    """Each client beside the others, and who stands out.

    Those whose chance is at most rate / m, with m clients left, are set aside and the others judged again without them,
    until nobody is left to set aside or there are half: who only looks strange beside bad company is not named.

    Parameters
    ----------
    history : (R, K, H, 2) array
        Rounds, the newest last; NaN where there was none.
    rate : float
        The chance of naming an honest client.
    """
    kept = np.ones(history.shape[:2], dtype=np.bool_)
    p = first = chances(history, kept)
    known = np.isfinite(p)
    for _ in range(history.shape[1] // 2):
        left = np.maximum((known & kept).sum(axis=1, keepdims=True), 1)
        out = known & (np.nan_to_num(p, nan=1.0) <= rate / left)
        out &= 2 * out.sum(axis=1, keepdims=True) < known.sum(axis=1, keepdims=True)
        if (kept == ~out).all():
            break
        kept = ~out
        p = chances(history, kept)
    smallest = np.min(np.nan_to_num(first, nan=1.0), axis=1, initial=1.0)
    return Judged(p, np.minimum(np.maximum(known.sum(axis=1), 1) * smallest, 1.0), ~kept)


def chances(history: FloatArray, kept: BoolArray) -> FloatArray:
    """How likely an honest client stands out as much in its last rounds as each does, (R, K); NaN without a past.

    T^2 of the mean over the last w rounds is divided by its lower quantile over clients, where that is larger than it
    should be, since a change that most share is nobody's own, and referred to the F law. The smallest chance of five
    windows counts five times.

    Parameters
    ----------
    history : (R, K, H, 2) array
        The newest round last; NaN where there was none.
    kept : (R, K) bool
        Clients from which is learnt what honest ones do.
    """
    values = _less_usual(history, kept)
    smallest = np.full(kept.shape, np.nan)
    for window in WINDOWS:
        t2, n = _t2(values, window, kept)
        dof = _WORTH * (n + _BORROWED - 1.0)
        left = dof - N_NUMBERS + 1.0
        f = t2 * left / (dof * N_NUMBERS)
        ratio = np.where(kept, f / fdtri(N_NUMBERS, left, _SHARED), np.nan)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of runs in which nobody has a past
            share = np.nan_to_num(np.nanquantile(ratio, _SHARED, axis=1, keepdims=True), nan=1.0)
        smallest = np.fmin(smallest, fdtrc(N_NUMBERS, left, f / np.maximum(share, 1.0)))
    return np.minimum(len(WINDOWS) * smallest, 1.0)


def onsets(history: FloatArray, kept: BoolArray, client: int) -> tuple[int, int, int]:
    """How many rounds ago a client of one run (1, K, H, 2) most likely changed, and at most and at least."""
    values = _less_usual(history, kept)
    past = int(np.isfinite(values[0, client, :, 0]).sum())
    windows = range(1, max(1, min(_LONGEST, past - LEAST_PAST)) + 1)
    t2 = np.nan_to_num([_t2(values, window, kept, clip=10.0)[0][0, client] for window in windows])
    possible = np.flatnonzero(t2 >= t2.max() - _DROP) + 1
    return int(t2.argmax()) + 1, int(possible[-1]), int(possible[0])


def _less_usual(history: FloatArray, kept: BoolArray) -> FloatArray:
    """Numbers less the median over clients, round by round."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of rounds in which nobody was there
        return history - np.nanmedian(np.where(kept[..., None, None], history, np.nan), axis=1, keepdims=True)


def _t2(values: FloatArray, window: int, kept: BoolArray, clip: float = _CLIP) -> tuple[FloatArray, FloatArray]:
    """T^2 of the mean over the last w rounds, and rounds before them, (R, K); NaN where these are too few.

    With D the mean of the last w rounds less that of the n before them, at most 15, and V = (S_k + 8 C) / (n + 7) from
    the scatter S_k of a client's own rounds and C of all,

        T^2 = D' V^-1 D / (c_w / w + c_n / n),

    where c_m is what the correlation of a round with the next one does to a mean of m. In a mean a round counts for at
    most `clip` deviations.
    """
    past, last = values[:, :, -window - MEMORY : -window], values[:, :, -window:]
    seen = np.isfinite(past[..., :1])
    n = seen.sum(axis=2).astype(np.float64)  # (R, K, 1)
    mean = np.where(seen, past, 0.0).sum(axis=2) / np.maximum(n, 1.0)
    residual = np.where(seen, past - mean[:, :, None], 0.0)
    scatter = np.swapaxes(residual, -1, -2) @ residual
    enough = (n >= LEAST_PAST) & kept[..., None]
    pooled = np.where(enough[..., None], scatter, 0.0).sum(axis=1, keepdims=True)
    pooled = pooled / np.maximum(np.where(enough, n - 1.0, 0.0).sum(axis=1), 1.0)[:, None, None]
    ridge = 1e-9 * np.trace(pooled, axis1=-1, axis2=-2)[..., None, None] + 1e-30
    cov = (scatter + _BORROWED * pooled) / (n[..., None] + _BORROWED - 1.0) + ridge * np.eye(N_NUMBERS)
    cov = np.where((n >= LEAST_PAST)[..., None], cov, np.eye(N_NUMBERS))
    shared = residual * kept[..., None, None]
    lagged = (shared[:, :, 1:] * shared[:, :, :-1]).sum(axis=(1, 2))
    rho = np.clip(lagged / np.maximum((shared**2).sum(axis=(1, 2)), 1e-300), 0.0, 0.95)[:, None]
    moved = last - mean[:, :, None]
    if window > 1:
        most = clip * np.sqrt(np.diagonal(cov, axis1=-1, axis2=-2))[:, :, None]
        moved = np.clip(moved, -most, most)
    d = moved.mean(axis=2) / np.sqrt(_of_mean(rho, np.float64(window)) + _of_mean(rho, np.maximum(n, 1.0)))
    t2 = (d * np.linalg.solve(cov, np.nan_to_num(d)[..., None])[..., 0]).sum(axis=-1)
    n = np.where(n >= LEAST_PAST, n, np.nan)[..., 0]
    return np.where(np.isfinite(n), t2, np.nan), n


def _of_mean(rho: FloatArray, m: FloatArray | np.float64) -> FloatArray:
    """Variance of the mean of m values with unit variance and correlation rho^h at lag h."""
    return np.asarray(((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**m) / (m * (1 - rho) ** 2)) / m)


class GroupMonitor:
    """Watches clients by two numbers a round, and names those that change.

    Parameters
    ----------
    alpha : float
        The chance of any false alarm while the monitor watches.
    horizon : int, optional
        The last round that is judged; without one alpha is spent over all rounds to come.
    rate : float
        The chance, for an honest client, of being named beside others that are.

    Attributes
    ----------
    round : int
        Rounds so far.
    alarm : ClientVerdict or None
        The first verdict with an alarm since clients were left out.

    Notes
    -----
    What leaves both numbers as they are is not seen, and neither are clients that are bad from the first round on.

    Examples
    --------
    >>> monitor = GroupMonitor(alpha=0.05)
    >>> verdict = monitor.update({"north": (0.02, -0.01), "south": (0.03, 0.00), ...})
    """

    def __init__(self, alpha: float = 0.05, horizon: int | None = None, rate: float = 0.01) -> None:
        self.alpha, self.rate = _checks.probability("alpha", alpha), _checks.probability("rate", rate)
        self.horizon = None if horizon is None else _checks.whole("horizon", horizon, fix="It counts rounds.")
        self.round = 0
        self.alarm: ClientVerdict | None = None
        self._rows: dict[Name, FloatArray] = {}  # the last rounds of each client  (H, 2)
        self._left_out: set[Name] = set()

    def update(self, numbers: Mapping[Name, ArrayLike]) -> ClientVerdict:
        """Take in a round: two numbers of each client that took part, over what is a usual length in this round."""
        fresh = {name: _checks.real_array(f"numbers of {name}", row, shape=(2,)) for name, row in numbers.items()}
        self.round += 1
        for name in fresh.keys() - self._rows.keys():
            self._rows[name] = np.full((LENGTH, N_NUMBERS), np.nan)
        counts = len(fresh.keys() - self._left_out) >= FEWEST and self.round > LEFT_OUT_FIRST
        for name, rows in self._rows.items():
            row = fresh[name] if counts and name in fresh else np.full(N_NUMBERS, np.nan)
            self._rows[name] = np.concatenate([rows[1:], row[None]])
        names = [name for name in self._rows if name not in self._left_out]
        history = np.stack([self._rows[name] for name in names])[None] if names else np.empty((1, 0, LENGTH, 2))
        verdict = self._verdict(names, history)
        if verdict.alarm and self.alarm is None:
            self.alarm = verdict
        return verdict

    def exclude(self, names: Collection[Name], back_to: int | None = None) -> None:
        """Go on without these clients, and with `back_to` without what was seen after that round: the run went back."""
        self._left_out |= set(names)
        self.alarm = None
        undone = 0 if back_to is None else min(self.round - back_to, LENGTH)
        for rows in self._rows.values():
            rows[LENGTH - undone :] = np.nan

    def _verdict(self, names: list[Name], history: FloatArray) -> ClientVerdict:
        found, share = judged(history, self.rate), spent(self.alpha, self.horizon, self.round)
        chance = float(found.chance[0])
        surprises = {name: surprise_of(float(p)) for name, p in zip(names, found.p[0], strict=True) if np.isfinite(p)}
        note = "" if surprises else f"Clients are judged once {FEWEST} of them have {LEAST_PAST} rounds behind them."
        quiet = ClientVerdict(
            False, surprise_of(chance), surprise_of(share), "clients", self.round, self.round, None, None, self.alpha,
            note=note, watched=len(surprises), surprises=surprises,
        )  # fmt: skip
        if self.alarm is not None:
            since = f"The alarm of round {self.alarm.round} was not acted on: call exclude()."
            return replace(
                quiet, alarm=True, onset=self.alarm.onset, onset_interval=self.alarm.onset_interval,
                rollback=self.alarm.rollback, suspects=self.alarm.suspects, note=since,
            )  # fmt: skip
        accused = np.flatnonzero(found.named[0]).tolist()
        if chance > share or not len(accused):
            return quiet
        suspects = tuple(names[k] for k in sorted(accused, key=lambda k: float(found.p[0, k])))
        back, most, least = (
            max(each) for each in zip(*(onsets(history, ~found.named, k) for k in accused), strict=True)
        )
        first, onset, last = (max(self.round - rounds + 1, 1) for rounds in (most, back, least))
        return replace(
            quiet, alarm=True, onset=onset, onset_interval=(first, last), rollback=first - 1, suspects=suspects
        )
