"""The table of distances over rho, how little clients are connected."""

from fedgauss.paper.comparison import HABITS, HIDDEN, NEAR_OPTIMUM, DistanceResult
from fedgauss.paper.curves import Curve
from fedgauss.paper.distance_cells import DistanceCell, legacy_table
from fedgauss.paper.judging import Panel, Part, printed
from fedgauss.paper.result import Scale


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
            (Panel("rho", "n", "rises", printed("connection")),),
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
