"""Runs that go on in several ways from one past: changes at some clients, honest ones and others."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
from watch_runs import CLASSES, Attack, Round, Runs, Single, Whole, start

# What clients do that nobody should be banned for.
HONEST = ("twice the steps", "new data", "new scanner", "restart", "noisy labels")
HARMFUL = {
    "sign": 1.0, "flip": 1.0, "seven to one": 1.0, "backdoor": 1.0, "scale": 5.0, "noise": 1.0, "idle": 1.0,
    "lie": 1.0, "min-max": 1.0, "fang": 1.0, "replacement": 10.0, "last": 1.0,
}  # fmt: skip


class Changing(Runs):
    """R runs whose first clients may change, as `attack` says, from now on."""

    def split(self, name: str, bad: int, strength: float = 1.0) -> Changing:
        """The same runs, to go on in another way."""
        fixed = {id(part): part for part in (self._x, self._y)}
        other = copy.deepcopy(self, fixed)
        other.attack = Attack(name, bad, self.number + 1, strength)
        if name == "new data":
            x, y = other._deal()
            other._x, other._y = self._x.copy(), self._y.copy()
            other._x[:, :bad], other._y[:, :bad] = x[:, :bad], y[:, :bad]
        if name == "new scanner":  # brighter, with less contrast
            other._x = self._x.copy()
            other._x[:, :bad] = 0.25 + 0.75 * np.sqrt(np.maximum(self._x[:, :bad], 0.0))
        return other

    def rows(self) -> list[Single]:
        """The next round of each run as clients' rows (K, d), of NaN for the absent."""
        seen: Round = self.step()
        table = np.full((self.n_runs, self.federation.clients, seen.uploads.shape[-1]), np.nan, dtype=np.float32)
        np.put_along_axis(table, seen.who[..., None], seen.uploads, axis=1)
        return list(table)

    def _trained(self, who: Whole, bad: np.ndarray) -> Single:
        """What clients change before it is clipped."""
        moved, name = super()._trained(who, bad), self.attack.name
        if not bad.any():
            return moved
        if name in ("doubling", "replacement"):
            return np.where(bad[..., None], np.float32(self.attack.strength) * moved, moved)
        if name == "twice the steps":
            once = self.federation
            self.federation = replace(once, local_steps=2 * once.local_steps)
            moved = np.where(bad[..., None], super()._trained(who, bad), moved)
            self.federation = once
        if name == "restart" and self.number == self.attack.onset:
            model = self.model
            self.model = start(self.federation.model, self.n_runs, self._rng)
            new = super()._trained(who, bad) + (self.model - model)[:, None]
            moved, self.model = np.where(bad[..., None], new, moved), model
        if name == "noisy labels":
            labels = self._y
            self._y = self._rng.integers(0, CLASSES, labels.shape)
            noisy = bad & (self._rng.random((self.n_runs, 1)) < 0.1)
            moved = np.where(noisy[..., None], super()._trained(who, bad), moved)
            self._y = labels
        return moved
