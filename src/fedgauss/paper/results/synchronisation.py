"""The table of distances over tau, the number of local steps between mixings."""

from fedgauss.paper.comparison import HABITS, HIDDEN, NEAR_OPTIMUM, DistanceResult
from fedgauss.paper.curves import Curve
from fedgauss.paper.distance_cells import DistanceCell, legacy_table
from fedgauss.paper.judging import Outcomes, Panel, Part, printed
from fedgauss.paper.readings import SHORT
from fedgauss.paper.result import OtherRows, Scale
from fedgauss.paper.trends import exponent, trends
from fedgauss.report.text import listed, number, with_error


def _cells(scale: Scale) -> list[DistanceCell]:
    lines = [Curve(sync_every=tau) for tau in scale.grid(range(10, 101, 10), (10, 40, 70, 100))]
    return legacy_table("synchronisation", scale, lines, "tau")


def _rate(outcomes: Outcomes, others: OtherRows) -> list[str]:
    """The claimed sqrt(tau) beside fitted exponents."""
    (outcome,) = outcomes
    (panel,), (points,) = outcome.part.panels, outcome.points
    each = []
    for reading in trends(panel, points):
        slope, error = exponent(points, reading)
        each.append(
            f"{number(slope, 2)} printed" if reading is None else f"{with_error(slope, error, 2)} {SHORT[reading]}"
        )
    return [f"The claimed rate $√τ$ is an exponent of 0.5; fitted on logarithmic scales it is {listed(each)}."]


RESULT = DistanceResult(
    name="synchronisation",
    title="Distance against tau",
    where="Appendix F.4",
    claim="the error grows with the number of local steps, at rate sqrt(tau)",
    cells=_cells,
    more=_rate,
    parts=(
        Part(
            "synchronisation",
            (Panel("tau", "n", "rises", printed("synchronisation")),),
            reason=HIDDEN,
            why=(
                "The effect is $D_4$, the moving gradient noise. Between mixings clients move towards their own "
                "optima, where their gradients are less noisy than at $θ^*$; the average then varies less than $Σ_n$ "
                "says. With offsets of standard deviation 5 and $n$ = 300 its variance is 0.77 of $Σ_n$ at $τ$ = 10 "
                "and 0.55 at $τ$ = 100. So the normal law is too wide, rather than the average far from normal.",
                "From zero, a bias of several standard deviations hides this altogether. With $γ$ = 1, as in the rest "
                "of the text, $D_4$ is smaller and so is the rise; the table states neither $γ$ nor the start.",
                "The $√τ$ of the corollary is an upper bound for any loss; nothing says that this model attains it.",
                HABITS,
            ),
            coded=NEAR_OPTIMUM,
            short="table over τ",
        ),
    ),
)
