"""Figure 2: the distance to the limit law with K = n^r clients."""

from dataclasses import replace

from fedgauss.paper.comparison import DistanceResult
from fedgauss.paper.curves import Curve, readings_of
from fedgauss.paper.distance_cells import DistanceCell, distance_cells
from fedgauss.paper.judging import Panel, Part, printed
from fedgauss.paper.readings import CODED, TEXT, Reading
from fedgauss.paper.result import Scale

_CODED = Reading(CODED, "zeros", noise_vars=(1.0, 4.0))


def _cells(scale: Scale) -> list[DistanceCell]:
    base = Curve(sync_every=5, gamma=0.0, eta0=0.5, statistic="average over Sigma/K")
    cells = []
    for r in (0.2, 0.6):
        steps: dict[int, list[int]] = {}
        for n in scale.grid(range(100, 1001, 100), (100, 400)):
            steps.setdefault(clients_at(n, r), []).append(n)
        for n_clients, listed in steps.items():
            lines = [replace(base, n_clients=n_clients, r=r, beta=beta) for beta in (0.85, 0.9, 0.95)]
            curves = readings_of(lines, *TEXT, _CODED)
            cells += distance_cells("figure2_phase", scale, curves, ("r", "beta"), steps=tuple(listed))
    return cells


def clients_at(n: int, r: float) -> int:
    """K = n^r, at least 3."""
    return max(3, int(n**r + 1e-9))


RESULT = DistanceResult(
    name="figure2_phase",
    title="Phase transition",
    where="Section 4.2, Figure 2",
    claim="with K = n^r the error decays with n for r = .2 and grows for r = .6",
    cells=_cells,
    symbol=r"$d_c^\dagger$",
    parts=(
        Part(
            "figure2_phase",
            (
                Panel("n", "beta", "falls", printed("figure2_few"), only=("r", 0.2)),
                Panel("n", "beta", "rises", printed("figure2_many"), only=("r", 0.6)),
            ),
            reason="the height of the curves depends on how the noise of three clients was drawn",
            why=(
                "This is the start again. In standard deviations the bias $D_1$ of a start at zero grows as $√K$ and "
                "decays with $n$. For $K = n^{0.2}$, which is three clients at every $n$ here, decay wins; for $K = "
                "n^{0.6}$, growth wins over the range shown. In the end the bias vanishes for every $K = n^c$ with $c <"
                " 1$, as $n^{(c−1)/2}$.",
                "From the optimum the distance is what separates $Σ_n$ from its limit $Σ/K$. Their ratio does not "
                "depend on $K$, so both panels should look alike.",
                "The transition at $K ~ √n$ comes from the bound of Theorem 2.3, which is loose by $√K$: its proof "
                "takes $V_K$ to be of order $K^{−1/2}$ where it is of order $1/K$. With that mended the bound is $√K "
                "n^{1/2−β} + n^{β−1}$; for $K = n^c$ it is smallest at $β = 3/4 + c/4$ and tends to zero for every $c <"
                " 1$.",
                "With three clients, the draw of their noise levels moves the curves of $r$ = 0.2 up or down as a "
                "whole. The printed ones go up and down with $n$, as if clients had been drawn anew for each.",
            ),
            coded="start at zero, client noise of standard deviation 1 or 2, at least three clients",
            short="Figure 2",
        ),
    ),
)
