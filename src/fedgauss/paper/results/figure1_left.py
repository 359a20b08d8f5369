"""Figure 1, left: the distance against n."""

from fedgauss.paper.comparison import ONLY_D4, UNSTATED_START, DistanceResult
from fedgauss.paper.curves import Curve, readings_of
from fedgauss.paper.distance_cells import STEPS, TAUS, distance_cells
from fedgauss.paper.judging import Panel, Part, printed
from fedgauss.paper.readings import PROGRAM, TEXT

_CURVES = readings_of([Curve(sync_every=tau) for tau in TAUS], *TEXT, PROGRAM)

PART = Part(
    "figure1_left",
    (Panel("n", "tau", "falls", printed("figure1_left")),),
    reason="the start and the noise levels are not those of the text",
    why=(
        UNSTATED_START,
        "The published program starts at zero and draws the clients’ noise standard deviations, not variances, "
        "from 1 to 10. The mean noise variance is then 38.5 instead of 3, so the same bias is a smaller "
        "multiple of a wider law. It does not seed these draws; other draws give curves a little higher or "
        "lower.",
        ONLY_D4,
    ),
    coded="start at zero, client noise of standard deviation 1 to 10",
    short="Figure 1, left",
)
RESULT = DistanceResult(
    name="figure1_left",
    title="Distance against n",
    where="Section 4.1, Figure 1, left",
    claim="the Berry-Esseen error decays with n for fixed K, whatever tau",
    cells=lambda scale: distance_cells("figure1_left", scale, _CURVES, ("tau",), steps=STEPS),
    parts=(PART,),
)
