"""A round as what its clients are compared by: enough to judge it elsewhere, too little to know what they changed.

And who was left out, which whoever judges it elsewhere must know, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.detect.clients.features import Feature, Moves
from fedgauss.detect.clients.verdict import Name


class Compared(NamedTuple):
    """P clients of a round, with u_k what client k changed, or its sketch.

    clients    their names
    products   <u_k, u_l>                                                                     (P, P)
    fields     what features take from moves beside that, by the name of their field          (P,) each
    """

    clients: tuple[Name, ...]
    products: FloatArray
    fields: Mapping[str, FloatArray]

    def checked(self, features: Iterable[Feature]) -> Compared:
        """The same, or a ValueError where something is not finite or does not fit: nobody could be judged by it."""
        count = len(self.clients)
        needed = [feature for feature in features if feature.field and not (feature.optional and self._lacks(feature))]
        if self.fields.keys() != {feature.field for feature in needed}:
            raise ValueError(
                f"clients must be compared by {', '.join(feature.field for feature in needed)} beside products; got "
                f"{', '.join(self.fields) or 'nothing'}."
            )
        shapes = [np.shape(part) for part in (self.products, *self.fields.values())]
        if shapes[0] != (count, count) or set(shapes[1:]) - {(count,)} or len(set(self.clients)) != count:
            raise ValueError(
                f"{count} clients must each have a row of products and a number in each field; got shapes {shapes}."
            )
        lengths = np.diagonal(self.products)
        wrong = ~np.isfinite(self.products).all(axis=1) | (lengths < 0)
        size = np.sqrt(np.maximum(np.nan_to_num(lengths), 0.0))
        for feature in needed:
            wrong |= ~feature.allowed(self.fields[feature.field], size)
        if wrong.any():
            worst = int(np.argmax(np.where(wrong, np.nan_to_num(lengths, nan=np.inf), -1.0)))
            raise ValueError(
                f"products of moves must be finite; those of client {self.clients[worst]!r} are not: its move is too "
                "large. Leave that client out?"
            )
        return self

    def _lacks(self, feature: Feature) -> bool:
        return feature.field not in self.fields

    def without(self, names: Collection[Name]) -> Compared:
        """The round as if these clients had not been there."""
        kept = [place for place, name in enumerate(self.clients) if name not in names]
        fields = {name: values[kept] for name, values in self.fields.items()}
        return Compared(tuple(self.clients[place] for place in kept), self.products[np.ix_(kept, kept)], fields)

    def moves(self, numbers: IntArray, features: Iterable[Feature]) -> Moves:
        """The same as a round of one run, of clients with these numbers; NaN for optional fields that it lacks."""
        unknown = np.full(len(self.clients), np.nan)
        fields = {one.field: self.fields.get(one.field, unknown)[None] for one in features if one.field}
        return Moves(numbers[None], self.products[None], fields)


HOW = ("excluded", "quarantined", "accepted")


class Exclusion(NamedTuple):
    """Clients that were left out after a round, and the round whose model the run went on from.

    how    "excluded" for good, or "quarantined"; or "accepted", which ends a quarantine and goes back to no round
    """

    clients: tuple[Name, ...]
    round: int
    back_to: int
    how: str = "excluded"
