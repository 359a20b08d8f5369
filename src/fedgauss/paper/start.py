"""The main point of a reproduction: what the start alone does to every distance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedgauss.paper.distance import DistanceResult
from fedgauss.paper.judging import Outcome
from fedgauss.paper.result import Section
from fedgauss.paper.setting import CODED, OPTIMUM, READINGS, ZERO
from fedgauss.paper.trends import trends
from fedgauss.report.drawing import Drawing
from fedgauss.report.text import number

_LIMIT = "figure2_phase"  # scaled by Sigma/K, whose gap to Sigma_n is in its distances whatever the start


def distance_outcomes(sections: Sequence[Section]) -> list[Outcome]:
    """Outcomes of the results that are distances, which lie between 0 and 1 and can be averaged."""
    return [one for section in sections if isinstance(section.result, DistanceResult) for one in section.outcomes]


def start_drawing(outcomes: Sequence[Outcome]) -> Drawing:
    """The mean distance of each part, from both starts, as coded and as printed."""
    from fedgauss.paper.figures import Level, level_figure

    levels = [Level(one.part.short, _printed_mean(one), _means(one)) for one in outcomes]
    zero, optimum = (_overall(outcomes, reading) for reading in (ZERO, OPTIMUM))
    outside = " outside Figure 2" if _which(outcomes) else ""
    title = f"The mean distance{outside} is {zero} from zero and {optimum} from the optimum"
    return Drawing(
        "start",
        level_figure(title, levels),
        "Each mark is the mean over all points of a figure or table. The start is the one thing that differs between "
        "“from zero” and “from the optimum”.",
        f"A dot chart with a line for each figure or table. {title}.",
    )


def start_sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """How far apart the starts are, and which claimed trends are there from each."""
    zero, optimum = (_overall(outcomes, reading) for reading in (ZERO, OPTIMUM))
    there = dict.fromkeys(READINGS, 0)
    claims = 0
    for one in outcomes:
        for panel, points in zip(one.part.panels, one.points, strict=True):
            found = trends(panel, points)
            claims += bool(found)
            for reading in READINGS:
                there[reading] += reading in found and found[reading].direction == panel.expected
    return [
        "The paper does not say where its runs start, and that decides most of its numbers. In the setting of the "
        f"text, the distance to the normal law{_which(outcomes)} is {zero} on average when clients start at zero and "
        f"{optimum} when they start at the optimum.",
        f"The paper reads {claims} trends in its distances. {there[ZERO]} of them were detected from zero, "
        f"{there[OPTIMUM]} from the optimum and {there[CODED]} as coded; one that was not detected may still be there, "
        "too small for these runs.",
        "The start acts through its bias $n^{−1} ∑_t ∏_{j≤t} (I − η_j A) (Y_0 − θ^*)$, $D_1$ in the proofs, which is "
        "an error of location and no departure from normality; and, on the way from there, through $D_4$: gradients "
        "are noisier away from the optimum than $Σ_n$ counts.",
    ]


def _printed_mean(one: Outcome) -> float:
    points = [point for of_panel in one.points for point in of_panel]
    return float(np.mean([point.printed for point in points if point.printed is not None]))


def _means(one: Outcome) -> dict[str, float]:
    """The mean distance over all points, by reading."""
    points = [point for of_panel in one.points for point in of_panel]
    readings = [agreement.reading for agreement in one.agreements]
    return {r: float(np.mean([point.ours[r].mean for point in points if r in point.ours])) for r in readings}


def _overall(outcomes: Sequence[Outcome], reading: str) -> str:
    """Over parts that are scaled by Sigma_n, or over all if there are none."""
    means = [_means(one) for one in _alike(outcomes)]
    return number(float(np.mean([ours[reading] for ours in means if reading in ours])), 2)


def _alike(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [one for one in outcomes if one.part.name != _LIMIT] or list(outcomes)


def _which(outcomes: Sequence[Outcome]) -> str:
    return " (without Figure 2, which scales by $Σ/K$)" if len(_alike(outcomes)) < len(outcomes) else ""
