"""Clients of one run or of thousands, watched round by round: their past, and how surprising each new round is."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedgauss._types import BoolArray, FloatArray, IntArray
from fedgauss.detect.clients.features import FEATURES, Feature, Known, Moves, rows_of, together
from fedgauss.detect.clients.surprise import LEAST_PAST, LENGTH, MEMORY, Past, surprise

LEFT_OUT_FIRST = 3  # rounds in which a model moves too fast to be a past
RECENT = 64  # rounds of which the inner products are kept, to judge the others without those that were named
_JUMP = 0.5  # of the log size that all clients share, plus five deviations of its usual steps
FEWEST = 4  # clients in a round that can be compared
ORDINARY = 0.01  # the p-value above which a round of a client in quarantine is one, and joins its past
_SAME = 0.99  # the cosine from which on two moves are one
_LATELY = 6  # rounds in one of which a client must have been there to be judged
_LARGEST = 1e4  # of features, which are logarithms
_ROUNDS = (("values", np.nan), ("known", 0), ("numbers", 0))  # of every client, and what stands for no round
_SAVED = ("values", "known", "numbers", "scores", "left_out", "held", "sizes", "tolerances")


class Judged(NamedTuple):
    """One round of R runs."""

    p: FloatArray  # of every client present; NaN where it cannot be judged  (R, P)
    jumped: BoolArray  # whether the size that all clients share jumped  (R,)


class ClientWatch:
    """The past of K clients in R runs.

    Each client has a clock of its own, which stands still while it is absent. A sudden jump of the size that all
    clients share, as when the rate falls by ten, makes all pasts worthless: unless it is an alarm, `forget` them.
    """

    def __init__(self, n_runs: int, n_clients: int, features: tuple[Feature, ...] = FEATURES) -> None:
        self.features = features
        self.values = np.full((n_runs, n_clients, LENGTH, len(features)), np.nan)
        self.known = np.zeros((n_runs, n_clients, LENGTH, len(features)), dtype=np.int8)  # what values say
        self.numbers = np.zeros((n_runs, n_clients, LENGTH), dtype=np.int64)  # rounds; 0 for none
        self.scores = np.full((n_runs, n_clients, MEMORY + 1, len(together(features))), np.nan)
        self.left_out = np.zeros((n_runs, n_clients), dtype=np.bool_)
        self.tolerances = np.zeros((n_runs, len(features)))  # in the last round
        self.held = np.zeros((n_runs, n_clients), dtype=np.bool_)  # of these, those in quarantine: judged all the same
        self.sizes = np.full((n_runs, MEMORY + 1), np.nan)  # that all clients share, the newest last
        self.recent: deque[tuple[int, Moves]] = deque(maxlen=RECENT)
        self.round = 0

    def copied(self) -> ClientWatch:
        """Another one with a past of its own."""
        other = copy.copy(self)
        for name in (*_SAVED, "recent"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def repeated(self, times: int, back_to: int) -> ClientWatch:
        """So many of this one run, side by side, as it was after round `back_to`, which is a recent one.

        A client's past stays as long as it is: the rounds before those that are undone count twice.
        """
        other = copy.copy(self)
        count, undone = (self.numbers > 0).sum(axis=2), (self.numbers > back_to).sum(axis=2)
        for name, empty in _ROUNDS:
            rounds = _earlier(getattr(self, name), undone, empty)
            for client in np.flatnonzero(undone[0]):
                n, u = count[0, client], undone[0, client]
                if n >= 2 * u:
                    rounds[0, client, LENGTH - n : LENGTH - n + u] = rounds[0, client, LENGTH - u :]
            setattr(other, name, np.repeat(rounds, times, axis=0))
        other.scores = np.repeat(_earlier(self.scores, undone, np.nan), times, axis=0)
        for name in ("left_out", "held", "sizes", "tolerances"):
            setattr(other, name, np.repeat(getattr(self, name), times, axis=0))
        kept = [(number, moves) for number, moves in self.recent if number <= back_to]
        gone = len(self.recent) - len(kept)
        other.sizes = np.roll(other.sizes, gone, axis=1)
        other.sizes[:, :gone] = np.nan
        first = np.zeros(times, dtype=np.int64)
        other.recent = deque(((number, moves.of_runs(first)) for number, moves in kept), maxlen=RECENT)
        return other

    def has_past(self, run: int, clients: IntArray) -> BoolArray:
        """Which of these clients had enough rounds before the last to be judged in it, (P,)."""
        before = self.numbers[run, clients][:, -MEMORY - 1 : -1]
        return (self.numbers[run, clients, -1] == self.round) & ((before > 0).sum(axis=1) >= LEAST_PAST)

    def update(self, moves: Moves) -> Judged:
        """Take in a round."""
        self.round += 1
        runs = np.arange(len(moves.who))[:, None]
        kept = ~self.left_out[runs, moves.who]
        rows, known, self.tolerances, size = rows_of(moves, kept, self.features)
        self.recent.append((self.round, moves))
        needed = together(self.features)[0].places
        held = self.held[runs, moves.who]
        usable = np.asarray(np.isfinite(rows[..., needed]).all(axis=-1) & (kept | held) & (self.round > LEFT_OUT_FIRST))
        taken: dict[str, npt.NDArray[Any]] = {
            "values": rows,
            "known": known,
            "numbers": np.full(usable.shape, self.round),
        }
        old = {name: getattr(self, name)[runs, moves.who] for name in taken}
        new = {name: _with_newest(old[name], newest, usable) for name, newest in taken.items()}
        scores = self.scores[runs, moves.who]
        p, score = surprise(Past(**new, scores=scores[:, :, 1:], tolerances=self.tolerances), kept, self.features)
        judged = usable & np.isfinite(p)
        joins = ~(held & judged & (p <= ORDINARY))
        for name, rounds in new.items():
            getattr(self, name)[runs, moves.who] = _where(joins, rounds, old[name])
        self.scores[runs, moves.who] = _with_newest(scores, score, judged & joins)
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
        for name, empty in _ROUNDS:
            getattr(self, name)[runs, :, :-1] = empty
        self.scores[runs] = np.nan
        self.sizes[runs, :-1] = np.nan

    def grow(self, n_clients: int) -> None:
        """Room for clients that join."""
        for name, empty in (*_ROUNDS, ("scores", np.nan), ("left_out", False), ("held", False)):
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
        values, known, numbers = self.values[runs], self.known[runs], self.numbers[runs]  # copies
        for present in {moves.who.shape[1] for _, moves in self.recent}:
            rounds = [(number, moves) for number, moves in self.recent if moves.who.shape[1] == present]
            run, at = np.tile(np.arange(len(runs)), len(rounds)), np.repeat([number for number, _ in rounds], len(runs))
            moves = joined([moves.of_runs(runs) for _, moves in rounds])
            rows = rows_of(moves, ~out[run[:, None], moves.who], self.features)
            i, client, place = np.nonzero(numbers[run[:, None], moves.who] == at[:, None, None])
            values[run[i], moves.who[i, client], place] = rows.rows[i, client]
            known[run[i], moves.who[i, client], place] = rows.known[i, client]
        return Past(values, known, numbers, self.scores[runs, :, :-1], self.tolerances[runs])

    def same_as(self, run: int, clients: IntArray) -> BoolArray:
        """Which clients of a run sent the same in the last round as one of these, copies and copied alike, (K,)."""
        moves = self.recent[-1][1]
        who, products = moves.who[run], moves.products[run]
        size = np.sqrt(np.maximum(np.diagonal(products), np.finfo(np.float64).tiny))
        copies = (products >= _SAME * size[:, None] * size) & ~np.eye(len(who), dtype=np.bool_)
        named = np.isin(who, clients)
        same = np.zeros(self.values.shape[1], dtype=np.bool_)
        same[who[copies[:, named].any(axis=1) | (named & copies.any(axis=1))]] = True
        return same

    def leave_out(self, run: int, named: Iterable[int], back_to: int, held: bool = False) -> None:
        """From now on without these clients, from where the run was after round `back_to`; held are judged on."""
        self.left_out[run, list(named)] = True
        self.held[run, list(named)] = held
        beside = self.beside(np.array([run]), self.left_out[[run]])
        self.values[run], self.known[run] = beside.values[0], beside.known[0]
        self.scores[run, list(named)] = np.nan
        undone = (self.numbers[run] > back_to).sum(axis=1)
        for name, empty in _ROUNDS:
            getattr(self, name)[run] = _earlier(getattr(self, name)[run], undone, empty)

    def take_back(self, run: int, clients: Iterable[int], anew: bool = False) -> None:
        """These clients count again, with the past that they have, or none."""
        who = list(clients)
        self.left_out[run, who] = self.held[run, who] = False
        if anew:
            for name, empty in (*_ROUNDS, ("scores", np.nan)):
                getattr(self, name)[run, who] = empty

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything, as arrays by name; of one run."""
        held = {name: getattr(self, name) for name in _SAVED}
        held["round"] = np.array(self.round)
        held["recent.round"] = np.array([number for number, _ in self.recent], dtype=np.int64)
        held["recent.present"] = np.array([moves.who.shape[1] for _, moves in self.recent], dtype=np.int64)
        parts = [{"who": moves.who, "products": moves.products, **moves.fields} for _, moves in self.recent]
        for name in ("who", "products", *(feature.field for feature in self.features if feature.field)):
            held[f"recent.{name}"] = np.concatenate([part[name].ravel() for part in parts] or [np.empty(0)])
        return held

    @classmethod
    def from_state(
        cls, arrays: Mapping[str, npt.NDArray[Any]], n_clients: int, last: int, features: tuple[Feature, ...] = FEATURES
    ) -> ClientWatch:
        """The watch of one run that `state` took apart after round `last`, or a ValueError."""
        watch = cls(1, 0, features)
        for name in _SAVED:
            kept, given = getattr(watch, name), arrays[name]
            shape = kept.shape if name in ("sizes", "tolerances") else (1, n_clients, *kept.shape[2:])
            if given.shape != shape or given.dtype != kept.dtype:
                raise ValueError(f"{name} must be {kept.dtype} of shape {shape}")
            setattr(watch, name, given.copy())
        if not (watch.tolerances >= 0).all():  # NaN is not
            raise ValueError("tolerances must not be negative")
        for name, most in (
            ("values", _LARGEST),
            ("tolerances", _LARGEST),
            ("sizes", _LARGEST),
            ("scores", np.finfo(np.float64).max),
        ):
            if (np.abs(getattr(watch, name)) > most).any():  # NaN stands for what there was not
                raise ValueError(f"{name} must be NaN or at most {most:g}")
        if watch.known.size and not 0 <= watch.known.min() <= watch.known.max() <= max(Known):
            raise ValueError(f"known must lie in 0, ..., {max(Known)}")
        number = arrays["round"]
        if number.shape != () or number.dtype != np.int64 or not 0 <= number <= last:
            raise ValueError(f"the last round that was judged must lie in 0, ..., {last}")
        watch.round = int(number)
        numbers = watch.numbers
        disorder = np.diff(numbers) < (numbers[..., 1:] > 0)  # zeros come first
        if disorder.any() or numbers.min(initial=0) < 0 or numbers.max(initial=0) > watch.round:
            raise ValueError("the rounds of every client must be in order")
        if (watch.held & ~watch.left_out).any():
            raise ValueError("clients in quarantine must be left out")
        if np.isfinite(watch.values[numbers == 0]).any():
            raise ValueError("only rounds of a client can have values")
        watch.recent.extend(_recent(arrays, n_clients, watch.round, features))
        return watch


def _where(which: BoolArray, one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of some clients (R, P) one, of the rest the other, (R, P, *)."""
    return np.where(which.reshape(*which.shape, *(1,) * (one.ndim - which.ndim)), one, other)


def _with_newest(rounds: npt.NDArray[Any], newest: npt.NDArray[Any], which: BoolArray) -> npt.NDArray[Any]:
    """Rounds (R, P, H, *), with one more of some clients in place of the oldest."""
    added = np.concatenate([rounds[:, :, 1:], newest[:, :, None].astype(rounds.dtype)], axis=2)
    return _where(which, added, rounds)


def _earlier(rounds: npt.NDArray[Any], undone: IntArray, empty: float) -> npt.NDArray[Any]:
    """Rounds (..., H, *) without the last ones, as many as `undone` (...) says: the past stays at the right end."""
    lead, length = undone.ndim, rounds.shape[undone.ndim]
    place = np.arange(length) - undone[..., None]
    wide = place.reshape(*place.shape, *[1] * (rounds.ndim - lead - 1))
    taken = np.take_along_axis(rounds, np.maximum(wide, 0), axis=lead)
    return np.where(wide >= 0, taken, np.asarray(empty, dtype=rounds.dtype))


def joined(rounds: Sequence[Moves]) -> Moves:
    """Rounds with as many clients each as one, whose runs follow each other."""
    fields = {name: np.concatenate([moves.fields[name] for moves in rounds]) for name in rounds[0].fields}
    who, products = (np.concatenate([moves[i] for moves in rounds]) for i in (0, 1))
    return Moves(who, products, fields)


def _recent(
    arrays: Mapping[str, npt.NDArray[Any]], n_clients: int, last: int, features: tuple[Feature, ...]
) -> list[tuple[int, Moves]]:
    """The inner products of recent rounds."""
    numbers, present = arrays["recent.round"], arrays["recent.present"]
    fits = numbers.shape == present.shape == (len(present),) and len(present) <= RECENT
    if not fits or numbers.dtype != np.int64 or present.dtype != np.int64:
        raise ValueError(f"recent rounds must be at most {RECENT}, each with the number of its clients")
    if not len(present):
        return []
    ordered = (np.diff(numbers) > 0).all() and numbers[0] > 0 and numbers[-1] == last
    if not ordered or present.min() < FEWEST or present.max() > n_clients:
        raise ValueError(f"recent rounds must be in order, the last one {last}, and of {FEWEST} to {n_clients} clients")
    who = _split("who", arrays, present, np.int64)
    products = _split("products", arrays, present**2, np.float64)
    with_fields = [feature for feature in features if feature.field]
    fields = {feature.field: _split(feature.field, arrays, present, np.float64) for feature in with_fields}
    rounds = []
    for i, p in enumerate(present.tolist()):
        if who[i].min() < 0 or who[i].max() >= n_clients or len(np.unique(who[i])) != p:
            raise ValueError(f"clients of a recent round must lie in 0, ..., {n_clients - 1}, each once")
        if not np.isfinite(products[i]).all():
            raise ValueError("products of recent rounds must be finite")
        size = np.sqrt(np.maximum(np.diagonal(products[i].reshape(p, p)), 0.0))
        for feature in with_fields:
            given = fields[feature.field][i]
            if not (feature.allowed(given, size) | (feature.optional & np.isnan(given))).all():
                raise ValueError(f"of recent rounds {feature.rule}")
        each = {name: parts[i][None] for name, parts in fields.items()}
        rounds.append((int(numbers[i]), Moves(who[i][None], products[i].reshape(1, p, p), each)))
    return rounds


def _split(name: str, arrays: Mapping[str, npt.NDArray[Any]], sizes: IntArray, kind: type) -> list[npt.NDArray[Any]]:
    """What was joined, with so many numbers a round."""
    flat = arrays[f"recent.{name}"]
    if flat.shape != (sizes.sum(),) or flat.dtype != kind:
        raise ValueError(f"{name} of recent rounds must have {sizes.sum()} numbers")
    return np.split(flat, np.cumsum(sizes)[:-1])
