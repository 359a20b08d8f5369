"""Clients that are seldom seen: a few bytes a name, how alike a client is to itself, and who is behind an alarm."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from fedgauss._types import FloatArray
from fedgauss.detect.clients.verdict import Name

_STEP = 1 / 16  # of a remembered feature, whose usual spread is 1: a byte reaches from -8 to 8
_UNKNOWN = -128  # in place of a feature that is not known
_NAMED = 50  # at most


class Sightings:
    """What each client looked like when it was last seen, in 8 + F bytes a name.

    From it comes how alike a client is to itself from one sighting to the next, in each feature: the share of the
    variance between clients that is their own,

        rho = sum x_now x_before / sum (x_now^2 + x_before^2) / 2.

    Without it, an honest client that is always unlike the others would seem surprising anew each time.
    """

    def __init__(self, n_features: int, seed: int) -> None:
        self.seed = seed
        self.keys = np.empty(0, dtype=np.uint64)  # hashes of names, in order
        self.last = np.empty((0, n_features), dtype=np.int8)
        self.products = np.zeros((2, n_features))  # sums over sightings again, above and below in the equation

    def __len__(self) -> int:
        return len(self.keys)

    def copied(self) -> Sightings:
        """Another one; arrays are replaced and never changed in place."""
        return copy.copy(self)

    def add(self, names: Sequence[Name], rows: npt.NDArray[np.float32]) -> None:
        """Remember clients (P,) with scaled features (P, F)."""
        bytes_ = np.where(np.isfinite(rows), np.clip(np.rint(rows / _STEP), -127, 127), _UNKNOWN).astype(np.int8)
        keys = np.array([self._key(name) for name in names], dtype=np.uint64)
        keys, first = np.unique(keys, return_index=True)
        bytes_ = bytes_[first]
        at = np.searchsorted(self.keys, keys)
        again = np.zeros(len(keys), dtype=np.bool_)
        inside = at < len(self.keys)
        again[inside] = self.keys[at[inside]] == keys[inside]
        now, before = (x * _STEP for x in (bytes_[again].astype(float), self.last[at[again]].astype(float)))
        known = (bytes_[again] != _UNKNOWN) & (self.last[at[again]] != _UNKNOWN)
        pairs = np.stack([now * before, (now**2 + before**2) / 2])
        self.products = self.products + np.where(known, pairs, 0.0).sum(axis=1)
        last = self.last.copy()
        last[at[again]] = bytes_[again]
        self.last = np.insert(last, at[~again], bytes_[~again], axis=0)
        self.keys = np.insert(self.keys, at[~again], keys[~again])

    def knows(self, name: Name) -> bool:
        """Whether it was ever seen."""
        return bool(np.isin(np.uint64(self._key(name)), self.keys))

    def likeness(self, feature: int) -> float:
        """rho, from 0 to 1; with a sighting's worth of 1 in it, so that nothing known is taken for likeness."""
        above, below = self.products[:, feature]
        return float(np.clip((above + 1.0) / (below + 1.0), 0.0, 1.0))

    def _key(self, name: Name) -> int:
        told = f"{type(name).__name__}:{name}".encode()
        return int.from_bytes(blake2b(told, digest_size=8, key=self.seed.to_bytes(8, "big")).digest(), "big")

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything but the seed, as arrays by name."""
        return {"sightings.keys": self.keys, "sightings.last": self.last, "sightings.products": self.products}

    def fill(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """What `state` took apart, or a ValueError."""
        keys, last, products = (arrays[f"sightings.{name}"] for name in ("keys", "last", "products"))
        fits = keys.shape == (len(last),) and last.shape[1:] == self.last.shape[1:] == products.shape[1:]
        kinds = (keys.dtype, last.dtype, products.dtype) == (np.uint64, np.int8, np.float64)
        if not fits or not kinds or (keys[1:] <= keys[:-1]).any() or not np.isfinite(products).all():
            raise ValueError("sightings must be bytes for each name, in the order of their keys, and finite sums")
        self.keys, self.last, self.products = keys, last, products


def names_behind(
    seen: Sequence[tuple[Sequence[Name], npt.NDArray[Any]]], before: FloatArray, likeness: float, rate: float
) -> tuple[Name, ...]:
    """Who is behind an alarm, the most surprising first, by all sightings since its onset.

    A value counts as the normal score y of its rank among honest values from before. Of a client that was seen n times
    the mean of y has variance rho + (1 - rho) / n where it is honest, with rho how alike clients are to themselves, and

        p = Phi(-mean(y) / sqrt(rho + (1 - rho) / n)).

    Benjamini and Hochberg's rule at `rate` names the smallest. Clients come out as they are seen again.

    Parameters
    ----------
    seen : sequence of (names, values)
        Rounds since the onset.
    before : (n,) array
        Honest values, ascending.
    """
    sums: dict[Name, tuple[float, int]] = {}
    for names, values in seen:
        above = len(before) - np.searchsorted(before, values, side="left") + 1
        for name, y, value in zip(names, -ndtri(above / (len(before) + 2)), values, strict=True):
            if np.isfinite(value):
                total, count = sums.get(name, (0.0, 0))
                sums[name] = (total + float(y), count + 1)
    if not sums:
        return ()
    total, n = np.array([*sums.values()], dtype=np.float64).T
    p = ndtr(-(total / n) / np.sqrt(likeness + (1.0 - likeness) / n))
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / len(p))
    names = list(sums)
    return tuple(names[k] for k in order[: min(int(passed.max(initial=-1)) + 1, _NAMED)])
