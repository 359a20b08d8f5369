"""Rounds: the steps between two mixings, and how many clients take part in each."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from fedgauss import _checks
from fedgauss._types import BoolArray, Int32Array


def participants(participation: Any, n_clients: int) -> int:
    """How many clients take part in a round: a float is a share of all K, a whole number a count."""
    fix = f"Use a share such as 0.3, or a count such as {max(2, n_clients // 3)}."
    if isinstance(participation, numbers.Integral) and not isinstance(participation, bool):
        if participation == 1 and n_clients > 1:
            raise ValueError(
                "participation must say whether it is a share or a count; got 1, which may be either. "
                f"Use 1.0 for all clients, or {1 / n_clients:.3g} for one of {n_clients}."
            )
        return _checks.whole("participation", participation, at_most=n_clients, fix=fix)
    share = _checks.real("participation", participation, fix=fix)
    if not 0.0 < share <= 1.0:
        raise ValueError(f"participation as a share of clients must lie in (0, 1]; got {share:g}. {fix}")
    count = round(share * n_clients)
    if count == 0:
        raise ValueError(
            f"participation must leave at least one client in a round; {share:g} of {n_clients} leaves none. {fix}"
        )
    return count


def round_numbers(mask: BoolArray) -> Int32Array:
    """The number of the round that step t belongs to: how many mixings came before it, (n,)."""
    return (np.cumsum(mask) - mask).astype(np.int32)


def need_rounds(what: str, mask: BoolArray) -> None:
    """Require that clients mix at all."""
    if not mask.any():
        raise ValueError(f"{what} needs rounds, which end where clients mix; they never do. Use sync_every=20?")
