"""The table of distances over rho, how little clients are connected."""

from fedgauss.paper.comparison import HABITS, HIDDEN, NEAR_OPTIMUM, DistanceResult
from fedgauss.paper.curves import Curve, DistanceCell, legacy_table
from fedgauss.paper.judging import Panel, Part, printed_table
from fedgauss.paper.result import Scale

_PRINTED = printed_table(
    tuple(tenth / 10 for tenth in range(1, 10)),
    {
        100: (0.094, 0.106, 0.121, 0.136, 0.149, 0.165, 0.184, 0.203, 0.212),
        200: (0.084, 0.107, 0.126, 0.143, 0.164, 0.192, 0.217, 0.245, 0.275),
        300: (0.089, 0.104, 0.124, 0.138, 0.154, 0.175, 0.203, 0.25, 0.294),
    },
)


def _cells(scale: Scale) -> list[DistanceCell]:
    lines = [Curve(rho=tenth / 10) for tenth in scale.grid(range(1, 10), (1, 4, 7, 9))]
    return legacy_table("connection", scale, lines, "rho")


RESULT = DistanceResult(
    name="connection",
    title="Distance against the second eigenvalue",
    where="Appendix F.5",
    claim="the error grows as clients are less connected",
    cells=_cells,
    parts=(
        Part(
            "connection",
            (Panel("rho", "n", "rises", _PRINTED),),
            reason=HIDDEN,
            why=(
                "The mechanism is that of the table over $τ$: the less clients are mixed, the nearer they stay to their"
                " own optima, and the less noise their gradients have compared with $Σ_n$.",
                "From zero, a bias of several standard deviations hides it. The table states neither $γ$ nor the "
                "start.",
                HABITS,
            ),
            coded=NEAR_OPTIMUM,
            short="table over ρ",
        ),
    ),
)
