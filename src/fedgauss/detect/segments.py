"""A stretch of rounds as attribution sees it: sums from which every client's mean and spread follow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgauss._linearization import Linearization
from fedgauss._types import BoolArray, FloatArray

_RIDGE = 1e-8  # of the trace: keeps a singular noise covariance invertible
_HUGE = 1e100  # a larger number is no innovation: the monitor refuses such updates, and here they count as missing


class Segment(NamedTuple):
    """Of client innovations less a reference e_k: rounds seen, sum of e, and sum of e' Var(W^k)^-1 e."""

    seen: FloatArray  # (K,)
    total: FloatArray  # (K, d)
    square: FloatArray  # (K,)

    def __sub__(self, other: Segment) -> Segment:
        return Segment(*(a - b for a, b in zip(self, other, strict=True)))

    def plus(self, rows: FloatArray, reference: FloatArray, inverses: FloatArray) -> Segment:
        """One more round (K, d), NaN for clients that took no part."""
        here = _usable(rows)
        e = np.where(here[:, None], rows - reference, 0.0)
        return Segment(self.seen + here, self.total + e, self.square + np.einsum("ki,kij,kj->k", e, inverses, e))


def empty(n_clients: int, dim: int) -> Segment:
    """No rounds yet."""
    return Segment(np.zeros(n_clients), np.zeros((n_clients, dim)), np.zeros(n_clients))


def noise_inverses(lin: Linearization) -> FloatArray:
    """Var(W^k)^-1, (K, d, d)."""
    noise = lin.client_noise_cov
    ridge = _RIDGE * np.trace(noise, axis1=1, axis2=2)[:, None, None] * np.eye(lin.dim)
    return np.linalg.inv(noise + ridge)


def first_seen(reference: FloatArray, rows: FloatArray) -> FloatArray:
    """The reference, with the first usable row of clients that have none (NaN): sums stay small and lose no digits."""
    fresh = np.isnan(reference).any(axis=1) & _usable(rows)
    return np.where(fresh[:, None], rows, reference)


def _usable(rows: FloatArray) -> BoolArray:
    """Which clients' rows are innovations: finite and not absurd, (K,)."""
    return np.asarray((np.abs(rows) < _HUGE).all(axis=1))
