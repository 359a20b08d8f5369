"""Clients' average directions, and a round's moves beside them: where moves are, they are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedgauss._types import FloatArray, IntArray
from fedgauss.detect.clients.compared import Compared
from fedgauss.detect.clients.features import Feature, Sent
from fedgauss.detect.clients.features.own import KEPT
from fedgauss.detect.clients.moves import check_lengths
from fedgauss.detect.clients.sketch import Single, Sketch
from fedgauss.detect.clients.verdict import Name


class Directions:
    """The average direction of each client, (K, L); no row, or zeros, before its first round."""

    def __init__(self, sketch: Sketch, features: Sequence[Feature], table: Single | None = None) -> None:
        self.sketch, self.features = sketch, features
        self.table = np.empty((0, 0), dtype=np.float32) if table is None else table
        self.journey = np.empty(0, dtype=np.float32)  # with `course`, kept for clients that are many
        self.course = self.journey

    def compared(
        self,
        moves: Mapping[Name, FloatArray],
        numbers: Mapping[Name, int],
        weights: Mapping[Name, float] | None = None,
        model: FloatArray | None = None,
    ) -> tuple[Compared, Single]:
        """What the clients of a round are compared by, and the sketches of their moves, (P, L)."""
        journey = self.journey
        if model is not None and journey.size:
            journey = self.sketch([model])[0][0]
        short, lengths, totals = self.sketch([*moves.values()])
        check_lengths(moves, lengths)
        past = np.zeros_like(short)
        for place, name in enumerate(moves):
            if (k := numbers.get(name, len(self.table))) < len(self.table):
                past[place] = self.table[k]
        given = np.array([math.nan if weights is None else weights[name] for name in moves])
        sent = Sent([*moves.values()], short, past, lengths, totals, given, journey, self.course)
        optional = {feature.field for feature in self.features if feature.optional}
        fields = {feature.field: feature.measured(sent) for feature in self.features if feature.field}
        there = {name for name, numbers in fields.items() if np.isfinite(numbers).any()} | (fields.keys() - optional)
        fields = {name: numbers for name, numbers in fields.items() if name in there}
        return Compared(tuple(moves), (short @ short.T).astype(np.float64), fields), short

    def grow(self, count: int, dim: int) -> None:
        """Room for clients that join, of a model with so many parameters."""
        if len(self.table) < count:
            fresh = np.zeros((count, self.sketch.length(dim)), dtype=np.float32)
            if self.table.size:
                fresh[: len(self.table)] = self.table
            self.table = fresh

    def forget(self, client: int) -> None:
        """What a client did so far."""
        if client < len(self.table):
            self.table = self.table.copy()
            self.table[client] = 0.0

    def go_on(self, sketches: Single) -> None:
        """Let the round count for where the run goes, of clients that have no row."""
        mean = sketches.mean(axis=0)
        if not self.journey.size:
            self.journey = self.course = np.zeros_like(mean)
        self.journey = self.journey + mean
        self.course = KEPT * self.course + np.float32(1.0 - KEPT) * mean

    def turn(self, who: IntArray, sketches: Single) -> None:
        """Let the round count, where moves are not 0."""
        lengths = np.maximum(np.linalg.norm(sketches, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        turned = KEPT * self.table[who] + np.float32(1.0 - KEPT) * (sketches / lengths)
        self.table[who] = turned if sketches.all() else np.where(sketches != 0, turned, self.table[who])
