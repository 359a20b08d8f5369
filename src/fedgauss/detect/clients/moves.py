"""What a user hands over as moves: an array, or by client's name arrays, lists of arrays or what `state_dict()` has."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.clients.verdict import Name
from fedgauss.detect.trained import is_trained, real_numbers

LARGEST = 1e15  # squares of sums of such numbers are still far from overflow in float32 products
ClientMoves = ArrayLike | Mapping[Name, ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike]]
Numbers = npt.NDArray[Any]


def flat_moves(moves: Any, participants: Iterable[int] | None, left_out: Collection[Name]) -> dict[Name, FloatArray]:
    """Every present client's move as one vector; a ValueError says what is wrong with whose.

    What clients that are left out send is not looked at: no nonsense of theirs can stop the watch.
    """
    if isinstance(moves, Mapping):
        if participants is not None:
            raise ValueError("participants must be left out where moves are given by name: leave absent clients out.")
        named = {_name(name): move for name, move in moves.items()}
        return {name: _flat(f"the move of client {name!r}", u) for name, u in named.items() if name not in left_out}
    try:
        table = _array(moves)
    except ValueError as error:
        raise ValueError("moves must be an array (clients, parameters), or arrays by the clients' names.") from error
    if table.ndim != 2:
        raise ValueError(
            f"moves must be an array (clients, parameters), or arrays by the clients' names; got {reprlib.repr(moves)}."
        )
    table = real_numbers("moves", table)
    rows = {k: row for k, row in enumerate(table) if not (np.isnan(row[:1]).all() and np.isnan(row).all())}
    if participants is not None:
        present = [_checks.whole("participants", k, at_least=0, at_most=len(table) - 1) for k in participants]
        if len(set(present)) != len(present):
            raise ValueError(f"participants must name each client once; got {present}.")
        if set(rows) - set(present):
            extra = sorted(set(rows) - set(present))
            raise ValueError(f"rows of clients that took no part must be NaN; client {extra[0]} has numbers.")
        rows = {k: table[k] for k in present}
    return {k: _flat(f"the move of client {k}", row) for k, row in rows.items() if k not in left_out}


def check_lengths(moves: Mapping[Name, FloatArray], lengths: FloatArray) -> None:
    """Refuse moves that are not finite or too large, which the lengths of nearly all show without another look."""
    for (name, move), length in zip(moves.items(), lengths, strict=True):
        if not length <= LARGEST:  # NaN is not
            largest = np.abs(move).max()
            if not largest <= LARGEST:
                raise ValueError(
                    f"the move of client {name!r} must be finite and at most {LARGEST:g}; got {largest:g}. "
                    "Leave that client out?"
                )


def checked_weights(weights: Mapping[Name, float] | None, present: Collection[Name]) -> dict[Name, float] | None:
    """What each client that is there counts for in the mean; a ValueError where one has no such number."""
    if weights is None:
        return None
    if missing := [name for name in present if name not in weights]:
        raise ValueError(f"weights must have a number for every client that is there; {missing[0]!r} has none.")
    found = {name: _checks.real(f"the weight of client {name!r}", weights[name]) for name in present}
    if wrong := [name for name, weight in found.items() if not 0 <= weight <= LARGEST]:
        raise ValueError(
            f"weights must lie between 0 and {LARGEST:g}; client {wrong[0]!r} has {found[wrong[0]]:g}. "
            "Leave that client out?"
        )
    return found


def _name(name: Any) -> Name:
    if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
        raise ValueError(f"a client's name must be a string or a whole number; got {reprlib.repr(name)}.")
    return int(name) if isinstance(name, np.integer) else name


def _flat(what: str, move: Any) -> FloatArray:
    parts = [real_numbers(what, array).ravel() for array in _judged(move)]
    vector = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
    if not vector.size:
        raise ValueError(
            f"{what} must have at least one parameter to judge; whole numbers and running statistics are none."
        )
    return np.asarray(vector)


def _judged(move: Any) -> list[Numbers]:
    """The arrays of a move that are trained, in an order that no client chooses; one array alone is what there is."""
    if isinstance(move, Mapping):
        layers = sorted(((str(name), layer) for name, layer in move.items()), key=itemgetter(0))
    elif isinstance(move, list | tuple) and not _is_vector(move):
        layers = [("", layer) for layer in move]
    else:
        return [_array(move)]
    # Plain numbers have no type: 0 may stand for 0.0.
    named = [(name, _array(layer), hasattr(layer, "dtype")) for name, layer in layers]
    return [array for name, array, typed in named if is_trained(name, array.dtype if typed else np.dtype(float))]


def _array(value: Any) -> Numbers:
    """An array of any library; a tensor of torch, which may be on a GPU or part of a graph, by its own methods."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value  # a type that NumPy does not have
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _is_vector(move: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list is one layer: of numbers, not of arrays."""
    return bool(move) and all(isinstance(entry, int | float | np.generic) for entry in move)
