r"""Results on quantiles of U_n, the largest partial sum: Aggr-GA, Client-GA and the functional CLT beside local SGD.

The gap of an approximation at level alpha is |q_alpha / q_alpha(U_n) - 1|, and Q is the largest gap over all levels. By
itself Q is noisy, for the few smallest values decide it; trimmed to levels 5 to 95 % it is stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedgauss._types import FloatArray
from fedgauss.paper.comparison import Column, agreement, comparison_drawing, point_table, summary
from fedgauss.paper.curves import Curve, CurvesCell
from fedgauss.paper.judging import SHARE, Measurement, Part, Points, error_of_mean, outcome, points_of
from fedgauss.paper.readings import READINGS, SHORT
from fedgauss.paper.result import OtherRows, Result, Scale, Section
from fedgauss.paper.trends import title_of, trend_sentence, trend_table, trends
from fedgauss.report.text import listed, number

if TYPE_CHECKING:
    from fedgauss._linearization import Linearization
    from fedgauss.engine.observers import Observer
    from fedgauss.engine.simulate import Setting
APPROXIMATIONS = ("Aggr-GA", "Client-GA", "f-CLT")
LEVELS = tuple(float(level) for level in np.round(np.arange(0.02, 0.99, 0.02), 2))
Q, TRIMMED, QUANTILE = "Q", "Q trimmed", "quantile"


@dataclass(frozen=True)
class QuantileRow:
    """Q of one approximation, over all levels or trimmed, with its error; or a pair of quantiles at a level x.

    reference   the quantile of U_n, where `estimate` is that of the approximation
    """

    result: str
    reading: str
    draw: int
    seed: int
    curve: str
    approximation: str
    n: int
    K: int
    replicates: int
    measure: str
    estimate: float
    error: float | None = None
    x: float | None = None
    reference: float | None = None
    tau: int | None = None
    gamma: float | None = None


@dataclass(frozen=True)
class QuantileCell(CurvesCell):
    """U_n of local SGD and of its three approximations: quantiles, and their largest relative gap Q.

    named   the coordinate that tells the curves apart: K, tau or gamma
    """

    named: str
    n_steps: int

    def __str__(self) -> str:
        return f"{self.result} with K = {self.n_clients}, n = {self.n_steps}"

    @property
    def cost(self) -> float:
        """In draws; Client-GA costs as much as the run itself."""
        return 2.0 * self.draws(self.n_steps)

    @property
    def group(self) -> str:
        """Cells of one group share compiled programs: those with as many clients all of them, others Aggr-GA's."""
        return f"quantile {self.replicates} {self.lanes}"

    def run(self) -> list[QuantileRow]:
        """For each curve and approximation: Q, Q trimmed to [.05, .95], and pairs of quantiles."""
        from fedgauss.problems.linearize import linearize

        lins = [linearize(curve.problem()) for curve in self.filled]
        reference, others = self._local_sgd(lins), self._approximations(lins)
        rows: list[QuantileRow] = []
        for i, curve in enumerate(self.curves):
            for name in APPROXIMATIONS:
                rows += self._rows(curve, name, reference[i], others[name][i])
        return rows

    def _local_sgd(self, lins: Sequence[Linearization]) -> list[FloatArray]:
        """U_n of each curve, in its own norm; both are folded, so that one program serves all."""
        from fedgauss.engine.observers import at, sup_partial_sum

        def watch(lin: Linearization) -> tuple[Observer, ...]:
            both = ((sup_partial_sum(lin.optimum, norm), f"_{norm}") for norm in ("euclidean", "max"))
            return tuple(at((self.n_steps,), observer, suffix) for observer, suffix in both)

        settings = [curve.setting(watch(lin)) for curve, lin in zip(self.filled, lins, strict=True)]
        return [
            runs.observed[f"sup_partial_sum_{curve.norm}"][:, 0].astype(float)
            for curve, runs in zip(self.filled, self.together(settings, self.n_steps), strict=True)
        ]

    def _approximations(self, lins: Sequence[Linearization]) -> dict[str, list[FloatArray]]:
        """U_n of each approximation of each curve."""
        from fedgauss import approx, networks, step_sizes
        from fedgauss.engine.observers import sup_partial_sum

        ring, watch = networks.ring(self.n_clients), (sup_partial_sum(np.zeros(lins[0].dim)),)
        settings: dict[str, list[Setting]] = {name: [] for name in APPROXIMATIONS}
        for curve, lin in zip(self.filled, lins, strict=True):
            steps = step_sizes.polynomial(curve.eta0, curve.beta, shift=float(curve.shift))
            settings["Aggr-GA"].append(approx.aggregated_setting(lin, steps, watch))
            settings["Client-GA"].append(approx.client_setting(lin, ring, steps, curve.sync_every, 0, watch))
            settings["f-CLT"].append(approx.brownian_setting(lin, watch))
        return {
            name: [runs.sup_partial_sum.astype(float) for runs in self.together(listed, self.n_steps)]
            for name, listed in settings.items()
        }

    def _rows(self, curve: Curve, name: str, u: FloatArray, g: FloatArray) -> list[QuantileRow]:
        from fedgauss.theory.distances import max_relative_quantile_gap as gap
        from fedgauss.theory.distances import quantile_gap_error

        row = partial(QuantileRow, **self.place(curve, [self.named], self.n_steps), approximation=name)
        gaps = [
            row(measure=measure, estimate=gap(u, g, trim=trim), error=quantile_gap_error(u, g, trim=trim))
            for measure, trim in ((Q, 0.0), (TRIMMED, 0.05))
        ]
        pairs = zip(LEVELS, np.quantile(u, LEVELS), np.quantile(g, LEVELS), strict=True)
        return gaps + [row(measure=QUANTILE, estimate=float(r), x=level, reference=float(q)) for level, q, r in pairs]


def quantile_cells(
    result: str, scale: Scale, curves: Callable[[int], list[Curve]], named: str, n_steps: int = 500
) -> list[QuantileCell]:
    """A cell for each draw of the clients."""
    size = scale.replicates(500)
    return [
        QuantileCell(result, tuple(curves(draw)), named, n_steps, replicates=size, lanes=10, seed=draw)
        for draw in range(scale.draws)
    ]


# --- how the approximations rank ---


@dataclass(frozen=True)
class Order:
    """How the three approximations rank in the settings of one reading, by Q trimmed to levels 5 to 95 %.

    clearly_worst   settings in which the functional CLT has the largest Q, by more than two errors of the difference
    aggregated      settings in which Aggr-GA has a smaller Q than Client-GA
    largest_z       the largest |Q(Aggr-GA) - Q(Client-GA)| in errors of the difference
    """

    reading: str
    settings: int
    clearly_worst: int
    aggregated: int
    largest_z: float

    @property
    def shows_clt_worst(self) -> bool:
        """The functional CLT is clearly the worst in at least 90 % of the settings."""
        return self.clearly_worst >= SHARE * self.settings


def orders(points: Points) -> list[Order]:
    """How the approximations rank, for each reading that occurs."""
    return [_order(r, points) for r in READINGS if any(r in point.ours for point in points)]


def _order(reading: str, points: Points) -> Order:
    places = sorted({point.x for point in points if reading in point.ours})
    clearly = aggregated = 0
    largest = 0.0
    for x in places:
        q = {point.series: point.ours[reading] for point in points if point.x == x}
        aggr, client, clt = (q[name] for name in APPROXIMATIONS)
        rival = max(aggr, client, key=lambda estimate: estimate.mean)
        clearly += int(clt.mean - rival.mean > 2.0 * _error(clt, rival))
        aggregated += int(aggr.mean < client.mean)
        largest = max(largest, abs(aggr.mean - client.mean) / _error(aggr, client))
    return Order(reading, len(places), clearly, aggregated, largest)


def _error(one: Measurement, other: Measurement) -> float:
    """Of the difference of two means, taken draw by draw: both see the same clients."""
    return error_of_mean(np.subtract(one.values, other.values), np.hypot(one.errors, other.errors))


def order_sentences(found: Sequence[Order]) -> list[str]:
    """Whether the functional CLT is the worst, and whether Aggr-GA and Client-GA can be told apart."""
    worst = [f"{o.clearly_worst} of {o.settings} settings {SHORT[o.reading]}" for o in found]
    better, settings = sum(o.aggregated for o in found), sum(o.settings for o in found)
    largest = max(o.largest_z for o in found)
    # The largest of a dozen absolute normals exceeds 3 once in thirty runs.
    apart = "as between two samples of one law" if largest <= 3.0 else "more than two samples of one law should differ"
    return [
        "By $Q$ trimmed to levels 5 to 95 %, the functional CLT is worse than both others by more than two errors in "
        f"{listed(worst)}.",
        f"Aggr-GA has a smaller gap than Client-GA in {better} of {settings} settings, which share their random "
        f"numbers; the largest difference between the two is {number(largest, 1)} errors, {apart}.",
    ]


def measured(rows: Sequence[QuantileRow], measure: str) -> list[QuantileRow]:
    """The rows of one measure."""
    return [row for row in rows if row.measure == measure]


# --- tables of Q ---


@dataclass(frozen=True)
class GapResult(Result):
    """A table of Q over a coordinate: printed beside ours, and Q trimmed, which chance moves less."""

    row = QuantileRow

    part: Part

    def section(self, rows: Sequence[QuantileRow], others: OtherRows) -> Section:
        """How gaps compare, and how they move along the table."""
        found, (panel,) = outcome(self.part, measured(rows, Q)), self.part.panels
        (full,), trimmed = found.points, points_of(panel, measured(rows, TRIMMED), compared=False)
        moving = trends(panel, trimmed)
        title = title_of([(panel, moving)], "trimmed $Q$")
        drawing = comparison_drawing(
            self.name,
            title,
            [Column(panel, full, "all levels"), Column(panel, trimmed, "5 to 95 %")],
            "$Q$",
            "Left: $Q$ over all levels with two Monte-Carlo errors of the mean to either side (filled), beside the "
            "printed numbers (open, dashed). Right: the same with the maximum taken over levels 5 to 95 %, for which "
            "nothing is printed.",
            "Line charts of quantile gaps, a row for each reading.",
        )
        return Section(
            self,
            found.verdict,
            summary([found], [(panel, moving)]),
            (
                *agreement(found),
                "What follows is for $Q$ trimmed to levels 5 to 95 %, which chance moves less, averaged over "
                "approximations. " + trend_sentence(panel, moving),
                *order_sentences(orders(trimmed)),
            ),
            (drawing,),
            (
                trend_table(panel, moving),
                point_table(panel, full, "$Q$ over all levels", self.part.runs),
                point_table(panel, trimmed, "$Q$ over levels 5 to 95 %", self.part.runs),
            ),
            self.part.why,
            (found,),
        )
