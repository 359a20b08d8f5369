"""The main point of a reproduction: what the start alone does to every distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss.experiments.paper import Result
from fedgauss.experiments.verdicts import CODED, OPTIMUM, READINGS, ZERO, Outcome
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction import findings
from fedgauss.report.reproduction.pictures import Level, level_figure
from fedgauss.report.reproduction.section import Section
from fedgauss.report.text import number

_NAMES = {
    "figure1_left": "Figure 1, left",
    "figure1_right": "Figure 1, right",
    "figure2_phase": "Figure 2",
    "figure4_left": "Figure 4, left",
    "figure4_right": "Figure 4, right",
    "heterogeneity": "table over γ",
    "synchronisation": "table over τ",
    "connection": "table over ρ",
}
_LIMIT = "figure2_phase"


def distance_outcomes(sections: Sequence[Section]) -> list[Outcome]:
    """Outcomes of the results that are distances, which lie between 0 and 1 and can be averaged."""
    return [outcome for section in sections for outcome in section.outcomes if outcome.part in _NAMES]


def start_drawing(found: Sequence[Outcome]) -> Drawing:
    """The mean distance of each part, from both starts, as coded and as printed."""
    levels = [_level(outcome) for outcome in found]
    zero, optimum = (_mean(found, reading) for reading in (ZERO, OPTIMUM))
    outside = " outside Figure 2" if _which(found) else ""
    title = f"The mean distance{outside} is {zero} from zero and {optimum} from the optimum"
    return Drawing(
        "start",
        level_figure(title, levels),
        "Each mark is the mean over all points of a figure or table. The start is the one thing that differs between "
        "“from zero” and “from the optimum”.",
        f"A dot chart with a line for each figure or table. {title}.",
    )


def start_sentences(found: Sequence[Outcome]) -> list[str]:
    """How far apart the starts are, and which claimed trends are there from each."""
    zero, optimum = (_mean(found, reading) for reading in (ZERO, OPTIMUM))
    there = dict.fromkeys(READINGS, 0)
    claimed = 0
    for outcome in found:
        for panel, points in zip(outcome.panels, outcome.points, strict=True):
            trends = findings.trends(panel, points)
            claimed += bool(trends)
            for reading in READINGS:
                there[reading] += reading in trends and trends[reading].direction == panel.expected
    return [
        "The paper does not say where its runs start, and that decides most of its numbers. In the setting of the "
        f"text, the distance to the normal law{_which(found)} is {zero} on average when clients start at zero and "
        f"{optimum} when they start at the optimum.",
        f"The paper reads {claimed} trends in its distances. {there[ZERO]} of them were detected from zero, "
        f"{there[OPTIMUM]} from the optimum and {there[CODED]} as coded; one that was not detected may still be there, "
        "too small for these runs.",
        "The start acts through its bias $n^{−1} ∑_t ∏_{j≤t} (I − η_j A) (Y_0 − θ^*)$, $D_1$ in the proofs, which is "
        "an error of location and no departure from normality; and, on the way from there, through $D_4$: gradients "
        "are noisier away from the optimum than $Σ_n$ counts.",
    ]


def worth_showing(results: Sequence[Result]) -> bool:
    """Whether there are at least two parts to set side by side."""
    names = {result.name for result in results}
    return "figure4" in names or len(names & set(_NAMES)) > 1


def _level(outcome: Outcome) -> Level:
    points = [point for of_panel in outcome.points for point in of_panel]
    readings = [agreement.reading for agreement in outcome.agreements]
    return Level(
        _NAMES[outcome.part],
        float(np.mean([point.printed for point in points if point.printed is not None])),
        {r: float(np.mean([point.ours[r].mean for point in points if r in point.ours])) for r in readings},
    )


def _mean(found: Sequence[Outcome], reading: str) -> str:
    """Over parts that are scaled by Sigma_n, or over all if there are none."""
    own = [_level(o).ours for o in _alike(found)]
    return number(float(np.mean([ours[reading] for ours in own if reading in ours])), 2)


def _alike(found: Sequence[Outcome]) -> list[Outcome]:
    """Figure 2 is scaled by Sigma/K, and what separates that from Sigma_n is in its distances, whatever the start."""
    return [outcome for outcome in found if outcome.part != _LIMIT] or list(found)


def _which(found: Sequence[Outcome]) -> str:
    return " (without Figure 2, which scales by $Σ/K$)" if len(_alike(found)) < len(found) else ""
