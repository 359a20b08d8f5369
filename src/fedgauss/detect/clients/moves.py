"""What a user hands over as clients' moves: an array, or a mapping from names to arrays or lists of arrays."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import ArrayLike, FloatArray
from fedgauss.detect.clients.verdict import Name

LARGEST = 1e15  # squares of sums of such numbers are still far from overflow in float32 products
ClientMoves = ArrayLike | Mapping[Name, ArrayLike | Sequence[ArrayLike]]


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
        table = np.asarray(moves)
    except ValueError as error:
        raise ValueError("moves must be an array (clients, parameters), or arrays by the clients' names.") from error
    if table.ndim != 2 or table.dtype.kind not in "fiu":
        raise ValueError(
            "moves must be an array (clients, parameters) of real numbers, or arrays by the clients' names; got "
            f"{reprlib.repr(moves)}."
        )
    rows = {k: row for k, row in enumerate(table) if not np.isnan(row).all()}
    if participants is not None:
        present = [_checks.whole("participants", k, at_least=0, at_most=len(table) - 1) for k in participants]
        if len(set(present)) != len(present):
            raise ValueError(f"participants must name each client once; got {present}.")
        if set(rows) - set(present):
            extra = sorted(set(rows) - set(present))
            raise ValueError(f"rows of clients that took no part must be NaN; client {extra[0]} has numbers.")
        rows = {k: table[k] for k in present}
    return {k: _flat(f"the move of client {k}", row) for k, row in rows.items() if k not in left_out}


def _name(name: Any) -> Name:
    if isinstance(name, bool) or not isinstance(name, str | int | np.integer):
        raise ValueError(f"a client's name must be a string or a whole number; got {reprlib.repr(name)}.")
    return int(name) if isinstance(name, np.integer) else name


def _flat(what: str, move: Any) -> FloatArray:
    layers = move if isinstance(move, list | tuple) and not _is_vector(move) else [move]
    parts = []
    for layer in layers:
        array = np.asarray(layer)
        if array.dtype.kind not in "fiu":
            raise ValueError(f"{what} must consist of real numbers; got {reprlib.repr(layer)}.")
        parts.append(array.ravel())
    vector = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0)
    largest = np.abs(vector).max(initial=0.0)
    if not largest <= LARGEST:  # NaN is not
        raise ValueError(f"{what} must be finite and at most {LARGEST:g}; got {largest:g}. Leave that client out?")
    if not vector.size:
        raise ValueError(f"{what} must have at least one parameter; it is empty.")
    return np.asarray(vector)


def _is_vector(move: list[Any] | tuple[Any, ...]) -> bool:
    """Whether a list is one layer: of numbers, not of arrays."""
    return bool(move) and all(np.ndim(entry) == 0 for entry in move)
