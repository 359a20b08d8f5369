"""A result in one file of its own, as a user would add it: how often a biased coin shows heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss.paper.comparison import Column, agreement, comparison_drawing, point_table, summary
from fedgauss.paper.judging import Panel, Part, outcome
from fedgauss.paper.readings import OPTIMUM, ZERO
from fedgauss.paper.result import Result, Scale, Section
from fedgauss.paper.trends import trends

PART = Part(
    "coin",
    (Panel("bias", "coin", "rises", {"fair": {0.2: 0.2, 0.5: 0.5, 0.8: 0.8}}),),
    reason="the coin was exchanged",
    why=("Every second coin is a trick coin.",),
)


@dataclass(frozen=True)
class CoinRow:
    result: str
    reading: str
    draw: int
    coin: str
    bias: float
    estimate: float
    error: float
    replicates: int


@dataclass(frozen=True)
class CoinCell:
    reading: str
    replicates: int

    experiment = "coin"

    def run(self) -> list[CoinRow]:
        rng = np.random.default_rng(5)
        wrong = 0.15 if self.reading == ZERO else 0.0
        rows = []
        for bias in (0.2, 0.5, 0.8):
            share = float(np.mean(rng.random(self.replicates) < bias)) + wrong
            error = (bias * (1 - bias) / self.replicates) ** 0.5
            rows.append(CoinRow("coin", self.reading, 0, "fair", bias, share, error, self.replicates))
        return rows


def cells(scale: Scale) -> list[CoinCell]:
    return [CoinCell(reading, scale.replicates(10_000)) for reading in (ZERO, OPTIMUM)]


@dataclass(frozen=True)
class CoinResult(Result):
    row = CoinRow

    def section(self, rows: Sequence[CoinRow], others: Mapping[str, Sequence[Any]]) -> Section:
        found, (panel,) = outcome(PART, rows), PART.panels
        (points,) = found.points
        drawing = comparison_drawing(
            self.name,
            "Heads come up as often as they should",
            [Column(panel, points)],
            "share of heads",
            "Measured and printed shares.",
            "A line chart of shares.",
        )
        return Section(
            self,
            found.verdict,
            summary([found], [(panel, trends(panel, points))]),
            tuple(agreement(found)),
            (drawing,),
            (point_table(panel, points, "Share of heads", PART.runs),),
            PART.why,
            (found,),
        )


RESULT = CoinResult("coin", "A biased coin", "nowhere in the paper", "heads come up as often as the bias says", cells)
