"""Figure 4: the distance against n and against K, with much heterogeneity."""

from dataclasses import replace

import numpy as np

from fedgauss.paper.comparison import DistanceResult
from fedgauss.paper.curves import Curve, readings_of
from fedgauss.paper.distance_cells import STEPS, TAUS, DistanceCell, against_clients, distance_cells
from fedgauss.paper.judging import Outcomes, Panel, Part, points_of, printed
from fedgauss.paper.readings import CODED, PROGRAM, READINGS, SHORT, TEXT, Reading
from fedgauss.paper.result import OtherRows, Scale
from fedgauss.paper.results.figure1_left import PART as FIGURE_1_LEFT
from fedgauss.report.text import listed, number, signed

_GAMMA = 5.0
_CODED_LEFT = Reading(
    CODED, "zeros", "sd", legacy=True, fixed_vars=tuple(float(s * s) for s in (6, 5, 4, 1, 7, 3, 2, 10, 5, 6))
)
_CODED_RIGHT = replace(PROGRAM, legacy=True)


def _cells(scale: Scale) -> list[DistanceCell]:
    lines = [Curve(sync_every=tau, gamma=_GAMMA) for tau in TAUS]
    left = distance_cells("figure4_left", scale, readings_of(lines, *TEXT, _CODED_LEFT), ("tau",), steps=STEPS)
    return left + against_clients("figure4_right", scale, _GAMMA, _CODED_RIGHT, scale.grid(range(25, 201, 25), (100,)))


def _against_gamma_1(outcomes: Outcomes, others: OtherRows) -> list[str]:
    """The claim of smaller errors than in Figure 1: the mean difference over the points that they share."""
    figure_1 = points_of(FIGURE_1_LEFT.panels[0], others.get("figure1_left", []))
    five, one = ({(p.series, p.x): p for p in points} for points in (outcomes[0].points[0], figure_1))
    pairs = [(five[place], one[place]) for place in sorted(five.keys() & one.keys())]
    if not pairs:
        return []
    printed = [a.printed - b.printed for a, b in pairs if a.printed is not None and b.printed is not None]
    parts = [f"{signed(float(np.mean(printed)))} printed"] if printed else []
    for reading in READINGS:
        both = [(a.ours[reading], b.ours[reading]) for a, b in pairs if reading in a.ours and reading in b.ours]
        if both:
            difference = float(np.mean([a.mean - b.mean for a, b in both]))
            error = float(np.mean([np.hypot(a.mean_error, b.mean_error) for a, b in both]))
            parts.append(f"{signed(difference)} ({number(error)}) {SHORT[reading]}")
    return [
        "Errors are claimed to be smaller with $γ$ = 5 than with $γ$ = 1. Over the points that the left panels of "
        f"Figures 4 and 1 share, the mean difference is {listed(parts)}."
    ]


RESULT = DistanceResult(
    name="figure4",
    title="Distance against n and K with much heterogeneity",
    where="Appendix F.1, Figure 4",
    claim="with gamma = 5 errors are smaller than with gamma = 1, and turn upwards at a larger K",
    cells=_cells,
    more=_against_gamma_1,
    parts=(
        Part(
            "figure4_left",
            (Panel("n", "tau", "falls", printed("figure4_left"), side="left"),),
            reason="the start, the offsets and the noise levels are not those of the text",
            why=(
                "Left panel: the published program takes $γ$ = 5 as a standard deviation, starts at zero and uses ten "
                "noise standard deviations between 1 and 10. With 1,000 runs against 1,000 draws of a normal law it "
                "gives the printed digits. That comparison carries the noise of both samples; here the exact "
                "distribution function is used.",
            ),
            coded="start at zero, client offsets of standard deviation 5, the program’s noise levels",
            short="Figure 4, left",
        ),
        Part(
            "figure4_right",
            (Panel("K", "tau", "falls, then rises", printed("figure4_right"), side="right"),),
            reason="as in Figure 1, the printed curves are those of the last iterate, not of the average",
            why=(
                "Right panel: as for Figure 1, right, a curve that falls and then turns is that of the last iterate "
                "over the average’s $Σ_n$, mixed every 5 steps whatever $τ$ says. No published output shows it; the "
                "reading is taken over from the program of Figure 1. The average itself, from zero, moves away from "
                "normal as $K$ grows.",
                "A larger $γ$ widens the law ($Var(W^k)$ gains $|δ_k|^2 I + δ_k δ_k′$), so that a given bias is a "
                "smaller multiple of it: that is why $γ$ = 5 can look better than $γ$ = 1 from zero. Without the bias "
                "only $D_4$ counts, the moving gradient noise, and it grows with $γ$.",
            ),
            coded="the last iterate over the average’s $Σ_n$, mixing every 5 steps, offsets of standard deviation 5",
            short="Figure 4, right",
        ),
    ),
)
