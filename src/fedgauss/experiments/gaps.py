r"""How well quantiles of U_n are approximated: Aggr-GA, Client-GA and the functional CLT beside local SGD.

The gap of an approximation at level alpha is |q_alpha / q_alpha(U_n) - 1|. Figure 3 has no numbers to compare with, so
its claim is judged: that the functional CLT is the worst of the three, and that Aggr-GA is better than Client-GA. The
second cannot be: averaging Client-GA over its clients gives Aggr-GA, so both have one law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgauss.experiments.cells import APPROXIMATIONS
from fedgauss.experiments.draws import error_of_mean
from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.verdicts import CODED, OPTIMUM, SHARE, ZERO, Estimate, Point, Verdict, points_of
from fedgauss.sweep.cell import Row

LEVELS = (0.095, 0.955)  # 10 to 95 %, with room for rounding
_FIGURE = Panel("figure3_qq", "approximation", "K", "approximation", "none")


@dataclass(frozen=True)
class QuantileCurve:
    """Quantiles of one approximation against those of U_n, averaged over draws."""

    reading: str
    n_clients: int
    approximation: str
    level: tuple[float, ...]
    reference: tuple[float, ...]
    quantile: tuple[float, ...]

    @property
    def gap(self) -> float:
        """The largest gap at levels 10 to 95 %."""
        inside = [LEVELS[0] < level < LEVELS[1] for level in self.level]
        ratio = np.array(self.quantile)[inside] / np.array(self.reference)[inside]
        return float(np.max(np.abs(ratio - 1.0)))


@dataclass(frozen=True)
class Order:
    """How the three approximations rank in the panels of one reading, by Q trimmed to levels 5 to 95 %.

    worst           panels in which the functional CLT has the largest Q
    clearly_worst   ... by more than two errors of the difference to the next
    aggregated      panels in which Aggr-GA has a smaller Q than Client-GA
    largest_z       the largest |Q(Aggr-GA) - Q(Client-GA)| in errors of the difference
    """

    reading: str
    panels: int
    worst: int
    clearly_worst: int
    aggregated: int
    largest_z: float

    @property
    def shows_clt_worst(self) -> bool:
        """The functional CLT is clearly the worst in at least 90 % of the panels."""
        return self.clearly_worst >= SHARE * self.panels


def quantile_curves(rows: list[Row]) -> list[QuantileCurve]:
    """Every curve of the QQ plots."""
    found: dict[tuple[str, int, str], dict[float, list[tuple[float, float]]]] = {}
    for row in rows:
        if row["measure"] == "quantile":
            key = (str(row["reading"]), int(row["K"] or 0), str(row["approximation"]))
            pair = (float(row["reference"] or 0.0), float(row["estimate"] or 0.0))
            found.setdefault(key, {}).setdefault(float(row["x"] or 0.0), []).append(pair)
    curves = []
    for key, levels in found.items():
        means = np.array([np.mean(levels[level], axis=0) for level in sorted(levels)])
        curves.append(QuantileCurve(*key, tuple(sorted(levels)), tuple(means[:, 0]), tuple(means[:, 1])))
    return curves


def trimmed_points(rows: list[Row]) -> tuple[Point, ...]:
    """Q of Figure 3, trimmed to levels 5 to 95 %, at each K."""
    renamed = [row | {"curve": f"K={row['K']}"} for row in rows]
    return points_of(_FIGURE, renamed, "Q trimmed")


def orders(points: Sequence[Point]) -> list[Order]:
    """How the approximations rank, for each reading that occurs."""
    readings = list(dict.fromkeys(reading for point in points for reading in point.ours))
    return [_order(reading, points) for reading in sorted(readings, key=(ZERO, OPTIMUM, CODED).index)]


def clt_verdict(found: Sequence[Order]) -> tuple[Verdict, str | None]:
    """Whether the functional CLT is the worst, by the rule for numbers: the text's readings first."""
    able = [order.reading for order in found if order.shows_clt_worst]
    text = [reading for reading in able if reading != CODED]
    if text:
        return "reproduced", text[-1]
    return ("reproduced as coded", CODED) if able else ("not reproduced", None)


def _order(reading: str, points: Sequence[Point]) -> Order:
    places = sorted({point.x for point in points if reading in point.ours})
    worst = clearly = aggregated = 0
    largest = 0.0
    for x in places:
        q = {point.series: point.ours[reading] for point in points if point.x == x}
        aggr, client, clt = (q[name] for name in APPROXIMATIONS)
        rival = max(aggr, client, key=lambda estimate: estimate.mean)
        worst += int(clt.mean > rival.mean)
        clearly += int(clt.mean - rival.mean > 2.0 * _error(clt, rival))
        aggregated += int(aggr.mean < client.mean)
        largest = max(largest, abs(aggr.mean - client.mean) / _error(aggr, client))
    return Order(reading, len(places), worst, clearly, aggregated, largest)


def _error(one: Estimate, other: Estimate) -> float:
    """Of the difference of two means, taken draw by draw: both see the same clients."""
    return error_of_mean(np.subtract(one.values, other.values), np.hypot(one.errors, other.errors))
