"""Clients' average directions, and a round's moves beside them: where moves are, they are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.detect.clients.compared import Compared
from fedgauss.detect.clients.features import Feature, Sent
from fedgauss.detect.clients.sketch import Single, Sketch
from fedgauss.detect.clients.verdict import Name

_KEPT = 0.9  # of a client's average direction, from round to round


class Directions:
    """The average direction of each client, (K, L); no row, or zeros, before its first round."""

    def __init__(self, sketch: Sketch, features: Sequence[Feature], table: Single | None = None) -> None:
        self.sketch, self.features = sketch, features
        self.table = np.empty((0, 0), dtype=np.float32) if table is None else table

    def compared(
        self, moves: Mapping[Name, FloatArray], numbers: Mapping[Name, int], weights: Mapping[Name, float] | None = None
    ) -> tuple[Compared, Single]:
        """What the clients of a round are compared by, and the sketches of their moves, (P, L)."""
        shorts = [self.sketch(move) for move in moves.values()]
        short = np.stack(shorts) if shorts else np.empty((0, 0), dtype=np.float32)
        past = np.zeros_like(short)
        for place, name in enumerate(moves):
            if (k := numbers.get(name, len(self.table))) < len(self.table):
                past[place] = self.table[k]
        sent = [
            Sent(move, short[place], past[place], math.nan if weights is None else float(weights[name]))
            for place, (name, move) in enumerate(moves.items())
        ]
        fields = {
            feature.field: np.array([feature.measured(one) for one in sent], dtype=np.float64)
            for feature in self.features
            if feature.field and not (feature.optional and weights is None)
        }
        return Compared(tuple(moves), (short @ short.T).astype(np.float64), fields), short

    def grow(self, count: int, length: int) -> None:
        """Room for clients that join."""
        if len(self.table) < count:
            fresh = np.zeros((count, length), dtype=np.float32)
            if self.table.size:
                fresh[: len(self.table)] = self.table
            self.table = fresh

    def turn(self, who: IntArray, sketches: Single) -> None:
        """Let the round count."""
        lengths = np.maximum(np.linalg.norm(sketches, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        self.table[who] = _KEPT * self.table[who] + np.float32(1.0 - _KEPT) * (sketches / lengths)
