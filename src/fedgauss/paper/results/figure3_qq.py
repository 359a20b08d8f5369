"""Figure 3: QQ plots of the largest partial sum. No numbers are printed, so the claim itself is judged."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedgauss._figures import LIGHT, styled
from fedgauss.paper.comparison import DRAWN, errors_shown, over_draws, series_look
from fedgauss.paper.curves import Curve, readings_of
from fedgauss.paper.judging import Panel, Points, ResultVerdict, points_of
from fedgauss.paper.quantile import (
    APPROXIMATIONS,
    QUANTILE,
    TRIMMED,
    Order,
    QuantileCell,
    QuantileRow,
    measured,
    order_sentences,
    orders,
    quantile_cells,
)
from fedgauss.paper.readings import CODED, OPTIMUM, READINGS, SHORT, TEXT, Reading
from fedgauss.paper.result import OtherRows, Result, Scale, Section
from fedgauss.report.output import Drawing, few_ticks, grid, key
from fedgauss.report.text import Table, listed, sentence

_INNER = (0.095, 0.955)  # 10 to 95 %, with room for rounding
_CODED = Reading(CODED, "optimum")


def _cells(scale: Scale) -> list[QuantileCell]:
    """As coded: n = 300, tau = 10, eta_t = .3 t^-.8, U_n in the maximum norm, approximations with steps eta_{t+1}."""
    cells = []
    for n_clients in scale.grid((10, 25, 50), (10,)):
        text = Curve(n_clients=n_clients, sync_every=20, eta0=0.7, beta=0.85)
        coded = Curve(n_clients=n_clients, sync_every=10, eta0=0.3, beta=0.8, norm="max", shift=1)
        cells += quantile_cells("figure3_qq", scale, readings_of([text], *TEXT), "K")
        cells += quantile_cells("figure3_qq", scale, readings_of([coded], _CODED), "K", 300)
    return cells


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
        inside = [_INNER[0] < level < _INNER[1] for level in self.level]
        ratio = np.array(self.quantile)[inside] / np.array(self.reference)[inside]
        return float(np.max(np.abs(ratio - 1.0)))


Curves = Sequence[QuantileCurve]


def quantile_curves(rows: Sequence[QuantileRow]) -> list[QuantileCurve]:
    """Every curve of the QQ plots."""
    found: dict[tuple[str, int, str], dict[float, list[tuple[float, float]]]] = {}
    for row in measured(rows, QUANTILE):
        assert row.x is not None
        assert row.reference is not None
        levels = found.setdefault((row.reading, row.K, row.approximation), {})
        levels.setdefault(row.x, []).append((row.reference, row.estimate))
    curves = []
    for place, levels in found.items():
        means = np.array([np.mean(levels[level], axis=0) for level in sorted(levels)])
        curves.append(QuantileCurve(*place, tuple(sorted(levels)), tuple(means[:, 0]), tuple(means[:, 1])))
    return curves


def clt_verdict(found: Sequence[Order]) -> tuple[ResultVerdict, str | None]:
    """Whether the functional CLT is the worst, by the rule for numbers: the text's readings first.

    At best it is reproduced in part: that Aggr-GA comes before Client-GA cannot be.
    """
    able = [order.reading for order in found if order.shows_clt_worst]
    text = [reading for reading in able if reading != CODED]
    if text:
        return ResultVerdict.IN_PART, text[-1]
    return (ResultVerdict.IN_PART_AS_CODED, CODED) if able else (ResultVerdict.NOT_REPRODUCED, None)


@dataclass(frozen=True)
class QuantileResult(Result):
    """QQ plots against K. There are no numbers to compare with, so the claim itself is judged.

    It is that the functional CLT is the worst of the three, and that Aggr-GA is better than Client-GA. The second
    cannot be: averaging Client-GA over its clients gives Aggr-GA, so both have one law.
    """

    row = QuantileRow

    why: tuple[str, ...] = ()

    def section(self, rows: Sequence[QuantileRow], others: OtherRows) -> Section:
        """How far quantiles are apart, and which approximation is the worst."""
        curves = quantile_curves(rows)
        trimmed = points_of(Panel("K", "approximation"), measured(rows, TRIMMED))
        ranked = orders(trimmed)
        verdict, reading = clt_verdict(ranked)
        order = "that Aggr-GA comes before Client-GA cannot be, for they have one law"
        if reading is None:
            summary = f"The functional CLT is not clearly the worst under any reading; {order}."
        else:
            summary = f"That the functional CLT is worst is reproduced ({reading}); {order}."
        readings = [r for r in READINGS if any(curve.reading == r for curve in curves)]
        title = _title(OPTIMUM if OPTIMUM in readings else readings[0], curves)
        return Section(
            self,
            verdict,
            summary,
            (*(_within(r, curves) for r in readings), *order_sentences(ranked)),
            (_drawing(self.name, title, curves),),
            _tables(readings, curves, trimmed),
            self.why,
        )


@styled
def _drawing(name: str, title: str, curves: Curves) -> Drawing:
    """Quantiles of the approximations against those of U_n, both over the median of U_n; on the diagonal they agree."""
    readings = [r for r in READINGS if any(c.reading == r for c in curves)]
    sizes = sorted({c.n_clients for c in curves})
    looks = {name: series_look(name) for name in APPROXIMATIONS}
    legend = [key(name, role, marker=mark, ms=4) for name, (role, mark) in looks.items()]
    legend.append(key("agreement", lw=0.8, ls=(0, (4, 3))))
    figure, lines = grid(title, len(readings), len(sizes), legend, height=1.35, head=0.46)
    for reading, line in zip(readings, lines, strict=True):
        for n_clients, axes in zip(sizes, line, strict=True):
            own = [c for c in curves if (c.reading, c.n_clients) == (reading, n_clients)]
            for c in sorted(own, key=lambda c: DRAWN.index(c.approximation)):
                median = float(np.interp(0.5, c.level, c.reference))
                x, y = np.array(c.reference) / median, np.array(c.quantile) / median
                role, mark = looks[c.approximation]
                axes.plot(x, y, mark, ms=2.2, mew=0, color=LIGHT[role])
            axes.axline((1.0, 1.0), slope=1.0, color=LIGHT["ink"], lw=0.8, ls=(0, (4, 3)), zorder=0)
            axes.set_title(
                f"{sentence(SHORT[reading])}\n$K$ = {n_clients}", y=1.0, pad=4, fontsize=10, color=LIGHT["muted"]
            )
            few_ticks(axes.xaxis, 3)
            few_ticks(axes.yaxis, 3)
        line[0].set_ylabel("approximation")
    for axes in lines[-1]:
        axes.set_xlabel("$U_n$ / median")
    return Drawing(
        name,
        figure,
        "Quantiles of the three approximations at levels 2 to 98 % against those of $U_n$, all over the median of "
        "$U_n$. On the dashed line they agree.",
        f"A grid of QQ plots, a row for each reading and a column for each number of clients. {title}.",
    )


def _gap(reading: str, name: str, curves: Curves, n_clients: int | None = None) -> str:
    """The largest gap at levels 10 to 95 %, over all K or at one, in per cent."""
    own = [c for c in curves if (c.reading, c.approximation) == (reading, name) and n_clients in (None, c.n_clients)]
    return f"{100 * max(curve.gap for curve in own):.0f} %"


def _title(reading: str, curves: Curves) -> str:
    aggr, client, clt = (_gap(reading, name, curves) for name in APPROXIMATIONS)
    return (
        f"{SHORT[reading].capitalize()}, quantiles are within {aggr} (Aggr-GA), {client} (Client-GA) and {clt} (f-CLT) "
        "of those of $U_n$"
    )


def _within(reading: str, curves: Curves) -> str:
    each = [f"{_gap(reading, name, curves)} ({name})" for name in APPROXIMATIONS]
    return (
        f"{SHORT[reading].capitalize()}, quantiles at levels 10 to 95 % lie within {listed(each)} of those of $U_n$, "
        "over all $K$."
    )


def _tables(readings: Sequence[str], curves: Curves, points: Points) -> tuple[Table, Table]:
    """The largest gaps, and trimmed Q: a row for each reading and number of clients."""
    sizes = sorted({curve.n_clients for curve in curves})
    ours = {(point.series, point.x): point.ours for point in points}
    errors = errors_shown([estimate for found in ours.values() for estimate in found.values()])
    settings = [(f"{SHORT[r]}, $K$ = {size}", r, size) for r in readings for size in sizes]
    gaps = [(name, *(_gap(r, one, curves, k) for one in APPROXIMATIONS)) for name, r, k in settings]
    trimmed = [(name, *(over_draws(ours[one, k][r], 2) for one in APPROXIMATIONS)) for name, r, k in settings]
    apart = "The largest relative difference between quantiles of an approximation and of $U_n$, at levels 10 to 95 %"
    header = ("setting", *APPROXIMATIONS)
    return Table(header, tuple(gaps), apart), Table(header, tuple(trimmed), f"$Q$ over levels 5 to 95 % ({errors})")


RESULT = QuantileResult(
    name="figure3_qq",
    title="QQ plots of the largest partial sum",
    where="Section 4.3, Figure 3",
    claim="Aggr-GA follows U_n best, Client-GA next, and the functional CLT worst",
    cells=_cells,
    why=(
        "When mixing preserves the mean, the average of Client-GA over clients is the Aggr-GA recursion driven "
        "by $∑_k w_k Z_k$, which has the law of its own noise. The two cannot differ but by chance, or by "
        "implementation. What does differ is who must share what: Client-GA needs no pooled covariance.",
        "The functional CLT replaces the path by independent steps of covariance $Σ/K$. Early iterates have not"
        " spread that far yet, so its smallest maxima are too large: it is off most in the lower tail.",
        "From zero, $U_n$ also contains the bias of the start, which none of the approximations has.",
        "The published program takes the maximum norm for $U_n$ and the Euclidean norm for the Gaussian sums, "
        "which can only make the latter look larger.",
    ),
)
