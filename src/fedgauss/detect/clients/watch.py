"""Clients of one run or of thousands, watched round by round: their past, and how surprising each new round is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.features import N_FEATURES, Moves, features
from fedgauss.detect.clients.surprise import LEAST_PAST, LENGTH, MEMORY, surprise

LEFT_OUT_FIRST = 3  # rounds in which a model moves too fast to be a past
RECENT = 64  # rounds of which the inner products are kept, to judge the others without those that were named
_JUMP = 0.5  # of the log size that all clients share, plus five deviations of its usual steps
FEWEST = 4  # clients in a round that can be compared
_SAME = 0.99  # the cosine from which on two moves are one
_LATELY = 6  # rounds in one of which a client must have been there to be judged
_SAVED = ("values", "numbers", "scores", "left_out", "sizes")


class Judged(NamedTuple):
    """One round of R runs."""

    p: FloatArray  # of every client present; NaN where it cannot be judged  (R, P)
    jumped: BoolArray  # whether the size that all clients share jumped  (R,)


class Past(NamedTuple):
    """Of all clients of R runs."""

    values: FloatArray  # (R, K, H, 5)
    numbers: IntArray  # of the rounds, 0 for none  (R, K, H)
    scores: FloatArray  # before the last round of each  (R, K, S)


class ClientWatch:
    """The past of K clients in R runs.

    Each client has a clock of its own, which stands still while it is absent. A sudden jump of the size that all
    clients share, as when the rate falls by ten, makes all pasts worthless: unless it is an alarm, `forget` them.
    """

    def __init__(self, n_runs: int, n_clients: int) -> None:
        self.values = np.full((n_runs, n_clients, LENGTH, N_FEATURES), np.nan)
        self.numbers = np.zeros((n_runs, n_clients, LENGTH), dtype=np.int64)  # rounds; 0 for none
        self.scores = np.full((n_runs, n_clients, MEMORY + 1), np.nan)
        self.left_out = np.zeros((n_runs, n_clients), dtype=np.bool_)
        self.sizes = np.full((n_runs, MEMORY + 1), np.nan)  # that all clients share, the newest last
        self.recent: deque[tuple[int, Moves]] = deque(maxlen=RECENT)
        self.round = 0

    def update(self, moves: Moves) -> Judged:
        """Take in a round."""
        self.round += 1
        runs = np.arange(len(moves.who))[:, None]
        kept = ~self.left_out[runs, moves.who]
        rows, size = features(moves, kept)
        self.recent.append((self.round, moves))
        usable = np.asarray(np.isfinite(rows).all(axis=-1) & kept & (self.round > LEFT_OUT_FIRST))
        values, numbers = self.values[runs, moves.who], self.numbers[runs, moves.who]
        values = np.where(usable[..., None, None], np.concatenate([values[:, :, 1:], rows[:, :, None]], axis=2), values)
        added = np.concatenate([numbers[:, :, 1:], np.full_like(numbers[:, :, :1], self.round)], axis=2)
        self.values[runs, moves.who] = values
        self.numbers[runs, moves.who] = np.where(usable[..., None], added, numbers)
        scores = self.scores[runs, moves.who]
        p, score = surprise(values, scores[:, :, 1:], kept)
        judged = usable & np.isfinite(p)
        moved = np.concatenate([scores[:, :, 1:], score[:, :, None]], axis=2)
        self.scores[runs, moves.who] = np.where(judged[..., None], moved, scores)
        return Judged(np.where(judged, p, np.nan), self._jumped(size))

    def _jumped(self, size: FloatArray) -> BoolArray:
        steps = np.diff(self.sizes, axis=1)
        known = np.isfinite(steps)
        count = np.maximum(known.sum(axis=1), 1)
        spread = np.sqrt(np.where(known, steps, 0.0) ** 2 @ np.ones(steps.shape[1]) / count)
        away = np.abs(size - self.sizes[:, -3:].mean(axis=1)) > _JUMP + 5.0 * spread
        self.sizes = np.concatenate([self.sizes[:, 1:], size[:, None]], axis=1)
        return away & (known.sum(axis=1) >= LEAST_PAST)

    def forget(self, runs: BoolArray) -> None:
        """All rounds of these runs but the last: there, all clients changed together."""
        self.values[runs, :, :-1], self.numbers[runs, :, :-1], self.scores[runs] = np.nan, 0, np.nan
        self.sizes[runs, :-1] = np.nan

    def grow(self, n_clients: int) -> None:
        """Room for clients that join."""
        for name, empty in (("values", np.nan), ("numbers", 0), ("scores", np.nan), ("left_out", False)):
            old = getattr(self, name)
            new = np.full((len(old), n_clients, *old.shape[2:]), empty, dtype=old.dtype)
            new[:, : old.shape[1]] = old
            setattr(self, name, new)

    def lately(self, runs: IntArray) -> BoolArray:
        """Which clients of these runs count and were there in one of the last rounds, (R', K)."""
        return (self.numbers[runs, :, -1] > max(self.round - _LATELY, 0)) & ~self.left_out[runs]

    def beside(self, runs: IntArray, clients: BoolArray) -> Past:
        """The past of every client of these runs beside those not in `clients` (R', K), as if these had never been."""
        out = self.left_out[runs] | clients
        values, numbers = self.values[runs], self.numbers[runs]  # copies
        for present in {moves.who.shape[1] for _, moves in self.recent}:
            rounds = [(number, moves) for number, moves in self.recent if moves.who.shape[1] == present]
            run, at = np.tile(np.arange(len(runs)), len(rounds)), np.repeat([number for number, _ in rounds], len(runs))
            arrays = zip(*(moves for _, moves in rounds), strict=True)
            moves = Moves(*(np.concatenate([array[runs] for array in each]) for each in arrays))
            rows = features(moves, ~out[run[:, None], moves.who]).rows
            i, client, place = np.nonzero(numbers[run[:, None], moves.who] == at[:, None, None])
            values[run[i], moves.who[i, client], place] = rows[i, client]
        return Past(values, numbers, self.scores[runs, :, :-1])

    def same_as(self, run: int, clients: IntArray) -> BoolArray:
        """Which clients of a run sent the same in the last round as one of these, copies and copied alike, (K,)."""
        moves = self.recent[-1][1].of_run(run)
        who, products = moves.who[0], moves.products[0]
        size = np.sqrt(np.maximum(np.diagonal(products), np.finfo(np.float64).tiny))
        copies = (products >= _SAME * size[:, None] * size) & ~np.eye(len(who), dtype=np.bool_)
        named = np.isin(who, clients)
        same = np.zeros(self.values.shape[1], dtype=np.bool_)
        same[who[copies[:, named].any(axis=1) | (named & copies.any(axis=1))]] = True
        return same

    def leave_out(self, run: int, named: Iterable[int], back_to: int) -> None:
        """From now on without these clients, from where the run was after round `back_to`."""
        self.left_out[run, list(named)] = True
        self.values[run] = self.beside(np.array([run]), self.left_out[[run]]).values[0]
        self.scores[run, list(named)] = np.nan
        undone = (self.numbers[run] > back_to).sum(axis=1)
        for client in np.flatnonzero(undone):  # the past stays at the right end
            self.values[run, client] = np.roll(self.values[run, client], undone[client], axis=0)
            self.numbers[run, client] = np.roll(self.numbers[run, client], undone[client])
            self.values[run, client, : undone[client]], self.numbers[run, client, : undone[client]] = np.nan, 0

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, as arrays by name; of one run."""
        held = {name: getattr(self, name) for name in _SAVED}
        held["round"] = np.array(self.round)
        held["recent.round"] = np.array([number for number, _ in self.recent], dtype=np.int64)
        held["recent.present"] = np.array([moves.who.shape[1] for _, moves in self.recent], dtype=np.int64)
        for field in Moves._fields:
            flat = [getattr(moves, field).ravel() for _, moves in self.recent]
            held[f"recent.{field}"] = np.concatenate(flat) if flat else np.empty(0)
        return held

    @classmethod
    def from_state(cls, arrays: Mapping[str, npt.NDArray[Any]], n_clients: int) -> ClientWatch:
        """The watch of one run that `state` took apart; a ValueError where something does not fit."""
        watch = cls(1, n_clients)
        for name in _SAVED:
            kept, given = getattr(watch, name), arrays[name]
            fits = given.shape == kept.shape and given.dtype == kept.dtype
            if not fits or (given.dtype.kind == "f" and np.isinf(given).any()):
                raise ValueError(f"{name} must be {kept.dtype} of shape {kept.shape}, and finite or NaN")
            setattr(watch, name, given.copy())
        watch.round = int(arrays["round"])
        present = [int(p) for p in arrays["recent.present"]]
        if len(present) > RECENT or min(present, default=0) < 0 or len(arrays["recent.round"]) != len(present):
            raise ValueError("the recent rounds must be as many as are kept")
        parts = {}
        for field in Moves._fields:
            sizes = [p * p if field == "products" else p for p in present]
            flat = arrays[f"recent.{field}"]
            if len(flat) != sum(sizes) or np.isinf(flat).any():
                raise ValueError(f"{field} of recent rounds must have {sum(sizes)} numbers")
            parts[field] = np.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        for i, (number, p) in enumerate(zip(arrays["recent.round"], present, strict=True)):
            who = parts["who"][i].astype(np.int64)
            if p and (who.min() < 0 or who.max() >= n_clients):
                raise ValueError(f"clients of recent rounds must lie in 0, ..., {n_clients - 1}")
            products = parts["products"][i].reshape(1, p, p)
            moves = Moves(who[None], products, parts["along_own"][i][None], parts["evenness"][i][None])
            watch.recent.append((int(number), moves))
        return watch
