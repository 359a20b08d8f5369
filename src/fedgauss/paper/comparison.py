"""Results that set distances beside printed ones: how many agree, in words and tables, and the section of a result."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgauss._figures import LIGHT, styled
from fedgauss.paper.distance_cells import DistanceRow
from fedgauss.paper.judging import Measurement, Outcome, Panel, Part, Point, ResultVerdict, outcome, symbol
from fedgauss.paper.readings import CODED, READINGS, SHORT
from fedgauss.paper.result import OtherRows, Result, Section
from fedgauss.paper.trends import Trends, claimed, title_of, trend_sentence, trend_table, trends
from fedgauss.report.output import Drawing, area, few_ticks, grid, key, log_ticks
from fedgauss.report.text import Table, listed, number, numbers, sentence, with_error

AGREES = "✓"
DRAWN = ("Aggr-GA", "f-CLT", "Client-GA")  # the functional CLT in the colour that stands out

# Reasons that several results share.
UNSTATED_START = (
    r"The paper never says where runs start, and that decides the numbers. In this model the mean of the average is "
    r"known exactly: $E\bar{Y}_n − θ^* = n^{−1} ∑_t ∏_{j≤t} (1 − η_j) (Y_0 − θ^*)$. From zero, about 3.6 away from "
    r"$θ^*$, this bias $D_1$ is still several standard deviations of the average; from the optimum it is nil."
)
ONLY_D4 = (
    "With equal weights and equal Hessians the error terms $D_2$ and $D_3$ vanish, and $D_3$ is where the bound has"
    " its leading $n^{1/2−β} √K$. So from the optimum only $D_4$ is left, the moving gradient noise: clients that "
    "drift towards their own optima see less gradient noise there than $Σ_n$ counts."
)
HABITS = (
    "The published programs are those of Sections 4.1 to 4.3. The setting called “as coded” here follows their "
    "habits and was found by trying: offsets and noise of standard deviations 5 and 1 to 5, clients started at the "
    "optimum plus noise of standard deviation 0.25, mixing after steps 1, $τ$ + 1, 2$τ$ + 1 and so on."
)
NEAR_OPTIMUM = "client offsets of standard deviation 5, start near the optimum"
HIDDEN = "the text’s setting has too little heterogeneity, and from zero the start hides the effect"

# --- agreement with printed numbers ---


def verdict_words(outcomes: Sequence[Outcome]) -> str:
    """One verdict, or one for each part where they differ."""
    if len({outcome.verdict for outcome in outcomes}) == 1:
        return outcomes[0].verdict.value
    return "; ".join(f"{outcome.part.side}: {outcome.verdict.value}" for outcome in outcomes)


def summary(outcomes: Sequence[Outcome], moving: Sequence[tuple[Panel, Trends]]) -> str:
    """One line: what agrees, the reason if not enough does, and where the claimed trends are."""
    texts = [text for outcome in outcomes for text in _outcome_texts(outcome)]
    return " ".join(sentence(text) for text in [*texts, *(claimed(panel, one) for panel, one in moving)])


def _outcome_texts(outcome: Outcome) -> list[str]:
    part, best = outcome.part, outcome.agreement(outcome.reading)
    side = f"{part.side} panel: " if part.side else ""
    if best is None:
        draws = _drawn([a.draws for a in outcome.agreements])
        texts = [
            f"{side}{part.reason}; of {outcome.compared} points {_counts(outcome)} agree, over {draws}; the mean is "
            f"{numbers(a.rms for a in outcome.agreements)} off (root mean square)."
        ]
    else:
        setting = f" ({part.coded})" if best.reading == CODED else ""
        others = listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements if a is not best])
        wide = " within wide margins" if best.wide else ""
        texts = [
            f"{side}{SHORT[best.reading]}{setting} {best.agree} of {best.compared} points agree{wide}, over "
            f"{_drawn([best.draws])}, with a mean that is {number(best.rms)} off (root mean square); "
            f"{others or 'nothing else was computed'}."
        ]
    if outcome.verdict is ResultVerdict.LEFT_OPEN:
        texts.append("each point has clients of its own, drawn once here: more draws, at a larger scale, decide.")
    return texts


def agreement(outcome: Outcome) -> list[str]:
    """How many printed points agree, and how many were computed at all."""
    of = f"{outcome.part.side} panel: of" if outcome.part.side else "of"
    draws = _drawn([a.draws for a in outcome.agreements])
    texts = [
        f"{of} {outcome.compared} printed points {_counts(outcome)} agree, over {draws}; the root mean square "
        f"difference of the mean is {numbers(a.rms for a in outcome.agreements)}."
    ]
    if outcome.compared < outcome.n_printed:
        texts.append(f"the paper prints {outcome.n_printed} points; at this scale {outcome.compared} are computed.")
    return [sentence(text) for text in texts]


def _counts(outcome: Outcome) -> str:
    return listed([f"{a.agree} {SHORT[a.reading]}" for a in outcome.agreements])


def _drawn(draws: Sequence[int]) -> str:
    """4 draws of the clients; 4, 4 and 1 where readings differ."""
    shown = [str(draws[0])] if len(set(draws)) == 1 else [str(count) for count in draws]
    return f"{listed(shown)} draw{'' if shown == ['1'] else 's'} of the clients"


# --- tables ---


def over_draws(estimate: Measurement, digits: int = 3) -> str:
    """0.123 (0.004) for one draw of the clients; for several the mean and their range, 0.123 [0.10–0.15]."""
    if estimate.draws == 1:
        return with_error(estimate.mean, estimate.error, digits)
    return f"{number(estimate.mean, digits)} [{number(estimate.low, 2)}–{number(estimate.high, 2)}]"


def errors_shown(estimates: Sequence[Measurement]) -> str:
    """What stands beside the means that `over_draws` writes, for a caption."""
    several = [estimate for estimate in estimates if estimate.draws > 1]
    if not several:
        return "Monte-Carlo errors in brackets"
    count = listed([str(draws) for draws in sorted({estimate.draws for estimate in several})], "or")
    noise = number(max(estimate.noise for estimate in several))
    some = "; one draw with its Monte-Carlo error" if len(several) < len(estimates) else ""
    return f"means over {count} draws of the clients with their range, Monte-Carlo errors of means up to {noise}{some}"


def point_table(panel: Panel, points: Sequence[Point], what: str, runs_of_paper: int) -> Table:
    """A row for each point: printed, and ours with its error or range over draws, marked where they agree."""
    readings = [reading for reading in READINGS if any(reading in point.ours for point in points)]
    name, ours = panel.heading, [estimate for point in points for estimate in point.ours.values()]

    def cell(point: Point, reading: str) -> str:
        if reading not in point.ours:
            return ""
        agrees = point.ours[reading].agrees(point.printed, runs_of_paper)
        return over_draws(point.ours[reading]) + (f" {AGREES}" if agrees else "")

    return Table(
        (symbol(panel.by), symbol(panel.across), "printed", *(SHORT[reading] for reading in readings)),
        tuple(
            (
                point.series,
                f"{point.x:g}",
                "" if point.printed is None else number(point.printed),
                *(cell(point, reading) for reading in readings),
            )
            for point in points
        ),
        f"{what}{', ' + name if name else ''}: printed, and measured ({errors_shown(ours)}); {AGREES} where they agree",
    )


# --- the figure ---


@dataclass(frozen=True)
class Column:
    """The points of a panel; `title` says what tells it from the other columns."""

    panel: Panel
    points: Sequence[Point]
    title: str = ""


@styled
def comparison_drawing(
    name: str, title: str, columns: Sequence[Column], y_label: str, caption: str, alt: str
) -> Drawing:
    """Filled marks: ours with two Monte-Carlo errors to either side. Open marks, dashed: printed. Band: the floor."""
    readings = [r for r in READINGS if any(r in point.ours for column in columns for point in column.points)]
    series = list(dict.fromkeys(point.series for column in columns for point in column.points))
    legend = _legend(columns[0].panel, series, columns)
    figure, lines = grid(title, len(readings), len(columns), legend, height=1.6)
    for reading, line in zip(readings, lines, strict=True):
        for column, axes in zip(columns, line, strict=True):
            names = [sentence(SHORT[reading]), column.title or column.panel.heading]
            axes.set_title(", ".join(filter(None, names)), y=1.0, pad=7, fontsize=10.5, color=LIGHT["muted"])
            for i, one in enumerate(series):
                _draw_curve(axes, [p for p in column.points if p.series == one], reading, i, len(series))
            ours = [point.ours[reading] for point in column.points if reading in point.ours]
            if floors := [one.floor for one in ours if one.floor is not None]:
                axes.axhspan(0.0, max(floors), color=LIGHT["faint"], lw=0, zorder=0)
            _x_axis(axes, sorted({point.x for point in column.points}))
        line[0].set_ylim(bottom=0.0)
        line[0].set_ylabel(y_label)
        few_ticks(line[0].yaxis, 5)
    for column, axes in zip(columns, lines[-1], strict=True):
        axes.set_xlabel(symbol(column.panel.across))
    return Drawing(name, figure, caption, f"{alt} {title}.")


def series_look(series: str, i: int = 0) -> tuple[str, str]:
    """The colour of a curve and its mark, by its place in `DRAWN` or in its panel."""
    place = DRAWN.index(series) if series in DRAWN else i
    return ("exact", "limit", "finite")[place], ("o", "s", "^")[place]


def _legend(panel: Panel, series: Sequence[str], columns: Sequence[Column]) -> list[Any]:
    keys: list[Any] = []
    for i, one in enumerate(series):
        role, mark = series_look(one, i)
        keys.append(key(panel.curve_name(one), role, marker=mark, ms=4))
    keys.append(key("printed", lw=0.9, ls=(0, (3, 2)), marker="o", mfc="none"))
    ours = [one for column in columns for point in column.points for one in point.ours.values()]
    if any(one.floor is not None for one in ours):
        keys.append(area("noise floor", "faint"))
    if any(one.draws > 1 for one in ours):
        keys.append(area("range over draws", "exact", alpha=0.15, lw=0))
    return keys


def _draw_curve(axes: Any, points: Sequence[Point], reading: str, i: int, count: int) -> None:
    points = [point for point in points if reading in point.ours]
    if not points:
        return
    role, mark = series_look(points[0].series, i)
    colour = LIGHT[role]
    x = np.array([point.x for point in points])
    # A little apart, so that error bars of curves that coincide can be told from each other.
    x = x + 0.012 * (x.max() - x.min()) * (i - (count - 1) / 2)
    ours: list[Measurement] = [point.ours[reading] for point in points]
    if any(estimate.draws > 1 for estimate in ours):
        low, high = [e.low for e in ours], [e.high for e in ours]
        axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    mean, error = [e.mean for e in ours], [2 * e.noise for e in ours]
    axes.errorbar(x, mean, error, color=colour, marker=mark, ms=3.5, lw=1.2, elinewidth=0.8)
    printed = [(place, point.printed) for place, point in zip(x, points, strict=True) if point.printed is not None]
    if printed:
        axes.plot(
            *zip(*printed, strict=True), color=colour, marker=mark, ms=4.5, mfc="none", mew=0.9, lw=0.9, ls=(0, (3, 2))
        )


def _x_axis(axes: Any, places: Sequence[float]) -> None:
    """Marks at the places, but none where it would touch another; logarithmic where places lie close together."""
    width = places[-1] - places[0]
    if len(places) > 2 and min(np.diff(places)) < 0.06 * width:
        log_ticks(axes, "x", places)
        return
    shown = [places[0]]
    for x in places[1:]:
        if x - shown[-1] > 0.14 * width:
            shown.append(x)
    axes.set_xticks(shown, [f"{x:g}" for x in shown])


# --- the section ---


@dataclass(frozen=True)
class DistanceResult(Result):
    """A figure or table of distances.

    parts    what is judged, each by itself
    symbol   of the distance
    more     further sentences on the rows, given the outcomes and the rows of other results
    """

    row = DistanceRow

    parts: tuple[Part, ...] = ()
    symbol: str = r"$\tilde{d}_c$"
    more: Callable[[Sequence[Outcome], OtherRows], list[str]] = lambda outcomes, others: []

    def section(self, rows: Sequence[DistanceRow], others: OtherRows) -> Section:
        """What a distance result shows."""
        outcomes = [outcome(part, rows) for part in self.parts]
        panels = [
            (panel, points, one.part.runs)
            for one in outcomes
            for panel, points in zip(one.part.panels, one.points, strict=True)
        ]
        moving = [(panel, found) for panel, points, _ in panels if (found := trends(panel, points))]
        title = title_of(moving)
        drawing = comparison_drawing(
            self.name,
            title,
            [Column(panel, points) for panel, points, _ in panels],
            self.symbol,
            "Filled marks and full lines: measured, the mean over draws of the clients with two Monte-Carlo errors to "
            "either side; a coloured band is the range over draws. Open marks and dashed lines: printed, the same in "
            "every row. The grey band is what a normal law would show at this many runs. Each row has its own scale.",
            "Line charts of the distance, a row for each reading, with the printed curves in each.",
        )
        return Section(
            self,
            ResultVerdict.of_parts([one.verdict for one in outcomes]),
            summary(outcomes, moving),
            (
                *(text for one in outcomes for text in agreement(one)),
                *(trend_sentence(panel, found) for panel, found in moving),
                *self.more(outcomes, others),
                _half_spaces(rows),
                _floor(panels[0][1]),
            ),
            (drawing,),
            (
                *(trend_table(panel, found) for panel, found in moving),
                *(point_table(panel, points, "Distance", runs) for panel, points, runs in panels),
            ),
            tuple(text for part in self.parts for text in part.why),
            tuple(outcomes),
            verdict_words(outcomes),
        )


def _floor(points: Sequence[Point]) -> str:
    """What a normal law would show at this many runs."""
    some = next(iter(points[0].ours.values()))
    assert some.floor is not None  # every distance has one
    return (
        f"Each draw of the clients has {some.runs:,} runs; with as many, a law that is exactly normal would show a "
        f"distance of {number(some.floor)} on average."
    )


def _half_spaces(rows: Sequence[DistanceRow]) -> str:
    """Whether the choice of sets matters: distances over half-spaces beside those over balls."""
    each = []
    for reading in READINGS:
        own = [row for row in rows if row.reading == reading]
        if own:
            half = float(np.mean([row.half_spaces for row in own]))
            ball = float(np.mean([row.estimate for row in own]))
            each.append(f"{number(half)} ({number(ball)}) {SHORT[reading]}")
    return f"Over half-spaces in eight directions the mean distance is {listed(each)}; over balls it is in brackets."
