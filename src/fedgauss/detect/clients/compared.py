"""A round as what its clients are compared by: enough to judge it elsewhere, too little to know what they changed.

And who was left out, which whoever judges it elsewhere must know, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.detect.clients.verdict import Name


class Compared(NamedTuple):
    """P clients of a round, with u_k what client k changed, or its sketch.

    clients    their names
    products   <u_k, u_l>                                                                (P, P)
    along_own  <u_k, e_k>, with e_k the unit vector of its own past; NaN without one     (P,)
    evenness   |u_k|_1 / |u_k|_2                                                         (P,)
    """

    clients: tuple[Name, ...]
    products: FloatArray
    along_own: FloatArray
    evenness: FloatArray

    def checked(self) -> Compared:
        """The same, or a ValueError where something is not finite or does not fit: nobody could be judged by it."""
        count = len(self.clients)
        shapes = [np.shape(part) for part in self[1:]]
        if shapes != [(count, count), (count,), (count,)] or len(set(self.clients)) != count:
            raise ValueError(f"{count} clients must each have a row of products and two numbers; got shapes {shapes}.")
        lengths = np.diagonal(self.products)
        wrong = ~np.isfinite(self.products).all(axis=1) | (lengths < 0) | np.isinf(self.along_own)
        wrong |= ~(np.isfinite(self.evenness) & (self.evenness >= 0))
        if wrong.any():
            worst = int(np.argmax(np.where(wrong, np.nan_to_num(lengths, nan=np.inf), -1.0)))
            raise ValueError(
                f"products of moves must be finite; those of client {self.clients[worst]!r} are not: its move is too "
                "large. Leave that client out?"
            )
        return self

    def without(self, names: Collection[Name]) -> Compared:
        """The round as if these clients had not been there."""
        kept = [place for place, name in enumerate(self.clients) if name not in names]
        clients = tuple(self.clients[place] for place in kept)
        return Compared(clients, self.products[np.ix_(kept, kept)], self.along_own[kept], self.evenness[kept])


class Exclusion(NamedTuple):
    """Clients that were left out after a round, and the round whose model the run went on from."""

    clients: tuple[Name, ...]
    round: int
    back_to: int
