"""The table of distances over gamma, how much clients differ."""

from fedgauss.paper.comparison import DistanceResult
from fedgauss.paper.curves import Curve, readings_of
from fedgauss.paper.distance_cells import distance_cells
from fedgauss.paper.judging import Panel, Part, printed
from fedgauss.paper.readings import LEGACY, TEXT

_RUNS = 500


_CURVES = readings_of([Curve(sync_every=2, gamma=gamma) for gamma in (1.0, 2.0, 3.0, 4.0, 5.0)], *TEXT, LEGACY)

RESULT = DistanceResult(
    name="heterogeneity",
    title="Distance against heterogeneity",
    where="Appendix F.3",
    claim="the error grows with gamma",
    cells=lambda scale: distance_cells("heterogeneity", scale, _CURVES, ("gamma",), "n", (100, 200, 300), _RUNS),
    parts=(
        Part(
            "heterogeneity",
            (Panel("gamma", "n", "rises", printed("heterogeneity")),),
            reason="no setting that was tried gives these numbers",
            why=(
                "The published programs are those of Sections 4.1 to 4.3; for this table there is none. Of 172 "
                "specifications that were tried, none gives its numbers.",
                "Two of the three printed columns are not monotone in $γ$; clients may have been drawn anew for each "
                "entry.",
                "From zero, heterogeneity works the other way: it adds to the gradient noise, so the same bias is a "
                "smaller multiple of a wider law. From the optimum there is only $D_4$, the moving gradient noise, and "
                "with mixing at every second step there is little of it.",
            ),
            coded="start near the optimum, as for the tables over $τ$ and $ρ$",
            runs=_RUNS,
            short="table over γ",
        ),
    ),
)
