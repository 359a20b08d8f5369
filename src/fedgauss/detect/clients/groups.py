"""Clients that stand out together: each judged beside those who are not under suspicion."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import binom

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.surprise import surprise
from fedgauss.detect.clients.watch import ClientWatch

_SUSPICIOUS = 1.0  # the smallest p-value times the number of clients, above which no groups are looked for
_FIRST = 0.5  # of a round's share, for one client alone; the rest is for groups


class Group(NamedTuple):
    """As many clients of each of R runs, who stand out together."""

    clients: IntArray  # the most surprising first  (R, j)
    p: FloatArray  # of each, beside those outside the group
    chance: FloatArray  # that any group of this size stands out like this among honest clients  (R,)


def groups(watch: ClientWatch, runs: IntArray) -> list[Group]:
    """The group of every size that stands out most.

    Bad clients make honest ones look strange: they move the medians, and the model. So a group S is judged as if it had
    never been there, each of its clients beside those outside it. The search goes forward: the next group are the
    clients that are most surprising beside those outside the last one.

    If honest clients are independent given what they share, all of a given S of j have p-values below x with
    probability x^j at most, and those of any of the binom(K, j) groups with

        binom(K, j) x^j.

    For what is left of dependence the power is (j + 1) / 2 only. Half of a round's share is for j = 1, which needs no
    independence; the rest for the larger sizes, evenly.
    """
    judged, p = judged_lately(watch, runs)
    found = []
    for size in _sizes((int(judged.sum(axis=1).max(initial=0)) - 1) // 2):
        clients = np.argsort(p, axis=1, kind="stable")[:, :size]  # NaN last
        group, p = group_of(watch, runs, judged, clients)
        found.append(group)
    return found


def judged_lately(watch: ClientWatch, runs: IntArray) -> tuple[BoolArray, FloatArray]:
    """Who can be judged, and their p-values beside all others, (R, K) each; NaN for the rest."""
    lately = watch.lately(runs)
    past = watch.beside(runs, np.zeros_like(lately))
    p = np.where(lately, surprise(past, lately, watch.features).p, np.nan)
    return np.isfinite(p), p


def group_of(watch: ClientWatch, runs: IntArray, judged: BoolArray, clients: IntArray) -> tuple[Group, FloatArray]:
    """A group (R, j), and the p-values of all clients beside those outside it, (R, K)."""
    size, count = clients.shape[1], judged.sum(axis=1)
    rows = np.arange(len(runs))[:, None]
    inside = np.zeros_like(judged)
    inside[rows, clients] = True
    past = watch.beside(runs, inside)
    p = np.nan_to_num(surprise(past, judged & ~inside, watch.features).p, nan=1.0)
    p = np.where(judged, p, np.nan)
    ordered = np.take_along_axis(clients, np.argsort(p[rows, clients], axis=1, kind="stable"), axis=1)
    of_each = p[rows, ordered]
    others = len(_sizes((int(count.max(initial=0)) - 1) // 2)) - 1
    share = _FIRST if size == 1 else (1.0 - _FIRST) / others
    chances = np.minimum(binom(count, size) * of_each[:, -1] ** ((size + 1) / 2) / share, 1.0)
    return Group(ordered, of_each, np.where(2 * size < count, chances, 1.0)), p


def chance(watch: ClientWatch, p: FloatArray) -> FloatArray:
    """That honest clients stand out as much as those of the last round, one or several at once, (R,).

    Parameters
    ----------
    watch : ClientWatch
    p : (R, P) array
        Of the last round.
    """
    count = np.isfinite(p).sum(axis=1)
    first = np.min(np.where(np.isfinite(p), p, 1.0), axis=1, initial=1.0)
    chances = np.where(count > 0, np.minimum(count * first / _FIRST, 1.0), 1.0)
    suspicious = np.flatnonzero((count * first <= _SUSPICIOUS) & (count > 0))
    if len(suspicious):
        chances[suspicious] = np.min([group.chance for group in groups(watch, suspicious)], axis=0, initial=1.0)
    return chances


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 9, ...: few of the large ones."""
    sizes = []
    size = 1
    while size <= most:
        sizes.append(size)
        size = max(size + 1, size * 3 // 2)
    return sizes
