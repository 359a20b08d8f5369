"""Clients that differ in Hessian: whether the bias that client drift leaves in the average grows with K."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from fedgauss._figures import LIGHT, styled
from fedgauss._types import FloatArray
from fedgauss.paper.beyond_figures import CLIENTS, DASHED, clients_axis, log_axis
from fedgauss.paper.budget import (
    AT_OPTIMUM,
    BeyondResult,
    BeyondRow,
    BudgetCell,
    CurveCell,
    Rows,
    budgets_of,
    by_draw,
    runs,
)
from fedgauss.paper.curves import Clients, Curve
from fedgauss.paper.result import OtherRows, Scale, Section
from fedgauss.paper.trends import FittedSlope, over_draws, slope
from fedgauss.report.output import Drawing, key, stacked
from fedgauss.report.text import Table, listed, number, numbers, with_error

HESSIANS: tuple[Clients, Clients] = ("Hessians follow offsets", "Hessians permuted")

_NAME = "unequal_hessians"
_CLIENTS = (10, 40, 160, 640)
_UNDRIFTED = "without D_1, D_3"  # from the optimum D_1 is zero
_NEAR = 0.1  # an exponent within this of 1/2 counts as 1/2: few clients bend the line a little


@dataclass(frozen=True)
class MeanCell(CurveCell):
    """|sqrt(n) (Sigma/K)^-1/2 E(Ybar_n - theta*)| for one draw of linear clients, by the mean recursion.

    From the optimum all of it is the mean of D_3. Theorem 2.1 bounds D_3 by a multiple of sqrt(K) n^(1/2-beta).
    """

    n_steps: int

    @property
    def cost(self) -> float:
        """In draws of a simulation that would take as long."""
        return float(self.n_steps * (3e3 + 10 * self.curve.n_clients))

    def run(self) -> list[BeyondRow]:
        """One row."""
        from fedgauss.problems.linearize import linearize
        from fedgauss.theory.covariances import limit_covariance
        from fedgauss.theory.exact import mean_recursion

        curve, problem = self.curve, self.curve.problem()
        lin = linearize(problem)
        start, phase = self.mean_start(lin), curve.reading.phase
        means = mean_recursion(problem, curve.network, curve.steps, self.n_steps, curve.sync_every, start, phase)
        bias = means.mean_average - lin.optimum
        square = self.n_steps * bias @ np.linalg.solve(limit_covariance(lin), bias)
        return [self.row("exact mean", n=self.n_steps, estimate=float(np.sqrt(square)), error=0.0)]


def _cells(scale: Scale) -> list[CurveCell]:
    """The bias by the mean recursion for every K; distances by simulation, where it is not too dear."""
    simulated = {"quick": (), "paper": (10, 160)}.get(scale.name, _CLIENTS)
    draws = {"quick": 8, "paper": 16}.get(scale.name, 64)
    cells: list[CurveCell] = []
    for n_clients, clients in product(scale.grid(_CLIENTS, _CLIENTS[:3]), HESSIANS):
        curve = Curve(AT_OPTIMUM, n_clients, rho=0.5, clients=clients)
        cells += [MeanCell(_NAME, "unequal Hessians", replace(curve, draw=draw), 300) for draw in range(draws)]
        if n_clients in simulated:
            count = runs(500 if n_clients > 100 else 1000, scale)
            cells.append(BudgetCell(_NAME, "unequal Hessians", curve, 300, count))
    return cells


class UnequalHessians(BeyondResult):
    """The exponent of growth of the exact bias, and the distances that go with it."""

    def section(self, rows: Rows, others: OtherRows) -> Section:
        """Upheld if the bias grows like the square root of K where Hessians follow the offsets, and only there."""
        follow, permuted = exponents(rows)
        upheld = follow.low > 0.0 and abs(follow.value - 0.5) < _NEAR and permuted.high < 0.5
        return self.section_of(
            "upheld" if upheld else "unclear",
            summary=f"The bias grows as K to the power {follow.shown(2)} when Hessians "
            f"follow the offsets, {permuted.shown(2)} when they do not.",
            findings=(*_on_growth(rows), *_on_distances(rows)),
            drawings=(_drawing(rows),),
            tables=_tables(rows),
            why=(
                "Between mixings client $k$ moves towards its own optimum at a rate set by its Hessian, and $D_3$ adds "
                "up Hessian times displacement over clients. If the two go together the sum has a mean of the same "
                "size for every $K$, and standardisation multiplies it by $√K$; if not, the mean itself is of order "
                "$K^{−1/2}$.",
            ),
        )


def exponents(rows: Rows) -> list[FittedSlope]:
    """Of the exact standardised mean in K, when Hessians follow the offsets and when they are permuted; over draws."""
    return [
        over_draws([slope(draw[:, 0], np.log(draw[:, 1])) for draw in _means(rows, clients)]) for clients in HESSIANS
    ]


def _means(rows: Rows, clients: Clients) -> FloatArray:
    """(K, standardised mean, 0) for each draw and K."""
    return np.array(by_draw(rows, measure="exact mean", clients=clients))


def _on_growth(rows: Rows) -> Iterator[str]:
    for clients, exponent in zip(HESSIANS, exponents(rows), strict=True):
        table = _means(rows, clients)
        values = numbers(table[:, :, 1].mean(axis=0), 2)
        at = listed([f"{k:g}" for k in table[0, :, 0]])
        yield (
            f"{clients}: the exact standardised mean of the average is {values} at $K$ = {at}, on average over "
            f"{len(table)} draws of the clients. Its exponent in $K$ is {exponent.shown()}, "
            f"with a 99 % interval of {exponent.interval(2)}."
        )


def _on_distances(rows: Rows) -> Iterator[str]:
    for clients in HESSIANS:
        if budgets := budgets_of(rows, clients=clients):
            at = listed([str(budget.at.K) for budget in budgets])
            whole, rest = (numbers((one.distance(stage) for one in budgets), 2) for stage in ("all", _UNDRIFTED))
            yield (
                f"{clients}, simulated at $K$ = {at} for one draw of the clients: the distance over balls is {whole}, "
                f"and {rest} with $D_3$ taken out."
            )


@styled
def _drawing(rows: Rows) -> Drawing:
    """The exact standardised mean against K on logarithmic axes: dots for draws, lines for their root mean square."""
    follow, permuted = exponents(rows)
    title = (
        f"The bias grows as $K^{{{follow.value:.2f}}}$ when Hessians follow the offsets, "
        f"and as $K^{{{permuted.value:.2f}}}$ when not"
    )
    roles = dict(zip(HESSIANS, ("limit", "finite"), strict=True))
    legend = [key(clients, role, marker=".", ms=6) for clients, role in roles.items()]
    legend.append(key(r"$\propto \sqrt{K}$", lw=1.0, ls=DASHED))
    figure, ((axes,),) = stacked(title, 1, legend, height=2.5)
    for clients, role in roles.items():
        x, means, _ = np.moveaxis(_means(rows, clients), 2, 0)
        typical = np.sqrt((means**2).mean(axis=0))
        axes.plot(x.ravel(), means.ravel(), ".", ms=3.5, color=LIGHT[role], alpha=0.55, mew=0)
        axes.plot(x[0], typical, color=LIGHT[role])
        if clients == HESSIANS[0]:
            axes.plot(x[0], typical[0] * np.sqrt(x[0] / x[0, 0]), color=LIGHT["ink"], lw=1.0, ls=DASHED)
    log_axis(axes, (0.1, 0.2, 0.5, 1, 2, 5, 10, 20))
    clients_axis(axes, x[0])
    axes.set(xlabel=CLIENTS, ylabel="standardised mean, logarithmic")
    return Drawing(
        _NAME,
        figure,
        "The length of the exact mean of $√n (Σ/K)^{−1/2} (\\bar{Y}_n − θ^*)$ from the optimum. Dots: draws of the "
        "clients. Lines: root mean square over draws. No simulation enters.",
        "Two lines against the number of clients on logarithmic axes: one rises along the square root, one is flat.",
    )


def _tables(rows: Rows) -> tuple[Table, ...]:
    tables = [_means(rows, clients) for clients in HESSIANS]
    means = Table(
        ("", *HESSIANS),
        tuple(
            (f"$K$={k:g}", *(over_draws(table[:, i, 1]).shown(2) for table in tables))
            for i, k in enumerate(tables[0][0, :, 0])
        ),
        "Exact standardised mean of the average from the optimum, with its error over draws of the clients",
    )
    budgets = budgets_of(rows)
    if not budgets:
        return (means,)
    distances = Table(
        ("", "balls", "half-spaces", "balls, no $D_3$", "half-spaces, no $D_3$"),
        tuple(
            (
                f"{'follow' if budget.at.clients == HESSIANS[0] else 'permuted'}, $K$={budget.at.K}",
                with_error(budget.distance("all"), budget.error("all")),
                number(budget.half_spaces("all")),
                number(budget.distance(_UNDRIFTED)),
                number(budget.half_spaces(_UNDRIFTED)),
            )
            for budget in budgets
        ),
        "Distances to $N(0, Σ_n)$ for one draw of the clients, simulated, with all terms (Monte-Carlo error in "
        "brackets) and without $D_3$",
    )
    return means, distances


RESULT = UnequalHessians(
    name=_NAME,
    title="Clients that differ in Hessian",
    where="beyond the paper; Theorem 2.1",
    claim="client drift puts a term into the error that grows like √K",
    cells=_cells,
)
