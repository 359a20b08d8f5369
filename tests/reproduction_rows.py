"""Rows as a sweep would leave them, made from the printed numbers by a rule that a test chooses."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedgauss.paper.comparison import DistanceResult
from fedgauss.paper.distance_cells import DistanceRow
from fedgauss.paper.judging import Part
from fedgauss.paper.quantile import APPROXIMATIONS, QuantileRow
from fedgauss.paper.readings import CODED, OPTIMUM, ZERO
from fedgauss.paper.result import Result, catalogue

Rule = Callable[[str, float, float], float]  # (reading, x, printed) -> estimate

DISTANCES = {name: one for name, one in catalogue().items() if isinstance(one, DistanceResult)}
PARTS = {part.name: part for one in DISTANCES.values() for part in one.parts}
PAPER = {name: one for name, one in catalogue().items() if one.quick}  # those on Gaussian approximation


def as_printed(reading: str, x: float, value: float) -> float:
    """Wrong from zero, right from the optimum and as coded."""
    return value + 0.3 if reading == ZERO else value


def distance_rows(part: str, rule: Rule = as_printed, draws: int = 1, error: float = 0.01) -> list[DistanceRow]:
    """A row for each printed number, reading and draw; draws lie .01 apart around what the rule says.

    The rule is told n or K, whichever the figure or table has for its columns.
    """
    rows = []
    for reading in (ZERO, OPTIMUM, CODED):
        for draw in range(draws):
            for place, value in _printed(PARTS[part]):
                x = place.get("K", place.get("n", 300))
                estimate = rule(reading, x, value) + 0.01 * (draw - (draws - 1) / 2)
                rows.append(_distance_row(PARTS[part], reading, draw, place, estimate, error))
    return rows


def _printed(part: Part) -> list[tuple[dict[str, float], float]]:
    """Every printed number of a part with its coordinates."""
    return [
        ({panel.by: float(series), panel.across: x} | dict([panel.only] if panel.only else []), value)
        for panel in part.panels
        for (series, x), value in panel.printed_points.items()
    ]


def _distance_row(
    part: Part, reading: str, draw: int, place: dict[str, float], estimate: float, error: float
) -> DistanceRow:
    coordinates = {"n": 300, "K": 10, "tau": 10, "gamma": 1.0, "beta": 0.75} | place
    coordinates |= {name: int(coordinates[name]) for name in ("n", "K", "tau")}
    return DistanceRow(
        part.name,
        reading,
        draw,
        seed=draw,
        curve=" ".join(f"{name}={value:g}" for name, value in place.items() if name not in ("n", "K")),
        x=coordinates["K"] if "K" in place else coordinates["n"],
        estimate=estimate,
        error=error,
        low=0.0,
        high=1.0,
        floor=0.027,
        half_spaces=0.5,
        replicates=part.runs,
        **coordinates,
    )


def quantile_rows(result: str, named: str, values: tuple[float, ...], gaps: dict, coded: bool = False) -> list:
    """Q's and quantiles for each value of a coordinate; `gaps` says by how much each approximation is off."""
    rows: list[QuantileRow] = []
    for reading in (ZERO, OPTIMUM, CODED) if coded else (ZERO, OPTIMUM):
        for value in values:
            for name in APPROXIMATIONS:
                coordinates = {"K": 15, "tau": 20, "gamma": 1.0} | {named: value}

                def row(measure, estimate, name=name, reading=reading, value=value, place=coordinates, **more):
                    return QuantileRow(
                        result, reading, 0, 0, f"{named}={value:g}", name, 500, measure=measure, estimate=estimate,
                        replicates=500, **place, **more,
                    )  # fmt: skip

                rows += [row(measure, gaps[name], error=0.02) for measure in ("Q", "Q trimmed")]
                for level in np.round(np.arange(0.02, 0.99, 0.02), 2):
                    q = 1.0 + float(level)
                    rows.append(row("quantile", q * (1.0 + gaps[name]), x=float(level), reference=q))
    return rows


GAPS = {"Aggr-GA": 0.11, "Client-GA": 0.12, "f-CLT": 0.5}


def rows_of(result: str, draws: int = 2) -> list:
    """Rows of a whole result of the paper; of quantiles there is one draw."""
    if result == "figure3_qq":
        return quantile_rows(result, "K", (10, 25, 50), GAPS, coded=True)
    if result == "ablation_tau":
        return quantile_rows(result, "tau", (5, 10, 15, 50, 100), GAPS)
    if result == "ablation_gamma":
        return quantile_rows(result, "gamma", (1, 5, 10), GAPS)
    return [row for part in DISTANCES[result].parts for row in distance_rows(part.name, draws=draws)]


@dataclass(frozen=True)
class MadeUp:
    """A cell that gives the made-up rows of one reading, and notes in `log` that it ran."""

    result: str
    reading: str
    log: str = field(compare=False)
    seconds: float = field(default=0.0, compare=False)

    def run(self) -> list:
        with Path(self.log).open("a") as log:
            log.write(f"{self.result} {self.reading}\n")
        time.sleep(self.seconds)
        return [row for row in rows_of(self.result) if row.reading == self.reading]


def made_up_results(log: str, seconds: float = 0.0) -> dict[str, Result]:
    """The paper's results with made-up cells, one for each reading; the one as coded takes some seconds."""

    def cells(name: str) -> list[MadeUp]:
        waits = {ZERO: 0.0, OPTIMUM: 0.0, CODED: seconds}
        return [MadeUp(name, reading, log, wait) for reading, wait in waits.items()]

    return {name: replace(one, cells=lambda scale, name=name: cells(name)) for name, one in PAPER.items()}
