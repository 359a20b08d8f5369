"""Figure 1, right: the distance against K."""

from fedgauss.paper.comparison import ONLY_D4, DistanceResult
from fedgauss.paper.distance_cells import against_clients
from fedgauss.paper.judging import Panel, Part, printed
from fedgauss.paper.readings import PROGRAM

_CLIENTS = (10, 20, 40, 60, 80, 100)


RESULT = DistanceResult(
    name="figure1_right",
    title="Distance against K",
    where="Section 4.1, Figure 1, right",
    claim="the error first falls and then rises with K for fixed n",
    cells=lambda scale: against_clients("figure1_right", scale, 1.0, PROGRAM, scale.grid(_CLIENTS, (10, 100))),
    parts=(
        Part(
            "figure1_right",
            (Panel("K", "tau", "falls, then rises", printed("figure1_right")),),
            reason="the published program looks at the last iterate, not at the average",
            why=(
                "The published program compares the last iterate $Y_n$, not the average, with the covariance $Σ_n$ of "
                "the average, and mixes every 5 steps whatever $τ$ the curve is labelled with. So its three curves "
                "differ by chance alone, and their fall and rise is that of a quantity with the wrong scale.",
                "For the average itself, a start at zero leaves a bias that does not shrink with $K$ while the standard"
                " deviation shrinks as $K^{−1/2}$: in standard deviations it grows as $√K$, and the distance goes to 1."
                " From the optimum there is no bias, and $D_4$, which is left, has no reason to grow with $K$.",
                ONLY_D4,
            ),
            coded="the last iterate over the average’s $Σ_n$, mixing every 5 steps in all three curves",
            short="Figure 1, right",
        ),
    ),
)
