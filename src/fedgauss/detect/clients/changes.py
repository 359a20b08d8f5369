"""How far clients are from what they did before an onset, in every feature, and how much a round of theirs varies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgauss._types import BoolArray, FloatArray
from fedgauss.detect.clients.surprise import LEAST_PAST
from fedgauss.detect.clients.watch import ClientWatch

_BORROWED = 8  # rounds' worth of the other clients' covariance in a client's own, as in `surprise`
_TOLERATED = 0.03  # deviation of a feature that no noise explains, as in nearly noiseless runs


class Change(NamedTuple):
    """Of one client; 0 in features that are not known."""

    known: BoolArray  # which features are  (F,)
    origin: FloatArray  # where they were before  (F,)
    moved: FloatArray  # mean since less mean before  (F,)
    covariance: FloatArray  # of a round  (F, F)
    rounds: int  # since

    @property
    def deviations(self) -> FloatArray:
        """Of a round of its own, that its mean has moved by, (F,)."""
        return np.asarray(self.moved / np.sqrt(np.diagonal(self.covariance)))


def changes(watch: ClientWatch, run: int, clients: Sequence[int], onset: int) -> list[Change | None]:
    """Of clients since round `onset`, beside all others, as if they had never been there; None without a past."""
    only = np.array([run])
    out = np.zeros((1, watch.left_out.shape[1]), dtype=np.bool_)
    out[0, list(clients)] = True
    past = watch.beside(only, out)
    rows = np.where((past.numbers[0] > 0)[..., None], past.values[0], np.nan)
    early = past.numbers[0] < onset
    others = np.flatnonzero(~(watch.left_out[run] | out[0]))
    pooled = _pooled([rows[k][early[k]] for k in others], rows.shape[-1])
    return [_change(rows[k][early[k]], rows[k][~early[k]], pooled) for k in clients]


def _change(before: FloatArray, since: FloatArray, pooled: FloatArray) -> Change | None:
    before, since = (part[np.isfinite(part).any(axis=1)] for part in (before, since))
    if len(before) < LEAST_PAST or not len(since):
        return None
    known = np.isfinite(before).all(axis=0) & np.isfinite(since).all(axis=0) & np.isfinite(np.diagonal(pooled))
    before, since = np.where(known, before, 0.0), np.where(known, since, 0.0)
    origin = before.mean(axis=0)
    residual = before - origin
    scatter = residual.T @ residual + _BORROWED * np.where(known & known[:, None], pooled, 0.0)
    covariance = scatter / (len(before) + _BORROWED - 1.0) + _TOLERATED**2 * np.eye(len(known))
    return Change(known, origin, since.mean(axis=0) - origin, covariance, len(since))


def _pooled(pasts: list[FloatArray], n_features: int) -> FloatArray:
    """Covariance of a round among clients, each about its own mean; NaN for features that are not known."""
    enough = [past[np.isfinite(past).any(axis=1)] for past in pasts]
    residual = [past - past.mean(axis=0) for past in enough if len(past) >= LEAST_PAST]
    if not residual:
        return np.full((n_features, n_features), np.nan)
    return np.asarray(sum(r.T @ r for r in residual) / sum(len(r) - 1 for r in residual))
