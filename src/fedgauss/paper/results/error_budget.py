"""How much of a distance each term of the error makes, and how much of it depends on the number of clients."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from fedgauss.paper.beyond_figures import Lines, Trail, budget_figure, clients_figure
from fedgauss.paper.budget import (
    AT_OPTIMUM,
    AT_ZERO,
    FIGURE_2,
    REMOVED,
    STAGES,
    TERMS,
    BeyondResult,
    Budget,
    BudgetCell,
    CurveCell,
    MomentsCell,
    Point,
    Rows,
    Where,
    budgets_of,
    by_draw,
    matching,
    runs,
)
from fedgauss.paper.curves import Curve
from fedgauss.paper.readings import LEGACY
from fedgauss.paper.result import OtherRows, Scale, Section
from fedgauss.paper.results.figure2_phase import clients_at
from fedgauss.paper.trends import FittedSlope, fitted, over_draws, slope
from fedgauss.report.output import Drawing
from fedgauss.report.text import Table, listed, number, numbers, span, with_error

_NAME = "error_budget"
_FIGURE_1: Where = "Figure 1, right"
_CLIENTS = (10, 20, 40, 60, 80, 100)  # in Figure 1
_PANELS = (0.2, 0.6)  # r in Figure 2
_BETA = 0.85  # in Figure 2; larger ones only for comparing its panels
_ZERO, _OPTIMUM = AT_ZERO.name, AT_OPTIMUM.name
_STARTS = {_ZERO: "zero", _OPTIMUM: "optimum", LEGACY.name: "near the optimum"}
_FEW = 3  # draws from which a spread over draws can be read
_MANY = 3.0  # standard errors that chance alone seldom reaches in a few comparisons


def _cells(scale: Scale) -> list[CurveCell]:
    return [*_figure_1_cells(scale), *_tau_cells(scale), *_figure_2_cells(scale), *_other_cells(scale)]


def _figure_1_cells(scale: Scale) -> Iterator[CurveCell]:
    """Figure 1, right: simulated for a few K, and by exact moments for all K and several draws of the clients."""
    simulated = {"quick": (10,), "paper": (10, 40, 100)}.get(scale.name, _CLIENTS)
    exact_draws = {"quick": 3, "paper": 5}.get(scale.name, 32)
    for n_clients in simulated:
        for reading, draws in ((AT_OPTIMUM, scale.draws if scale.name == "large" else 1), (AT_ZERO, 1)):
            for draw in range(draws):
                curve = Curve(reading, n_clients, draw=draw)
                # A seed for each K keeps the points of a slope independent.
                yield BudgetCell(_NAME, _FIGURE_1, curve, 300, runs(2000, scale), seed=n_clients)
    for n_clients in scale.grid(_CLIENTS, (10, 40)):
        for reading, draws in ((AT_OPTIMUM, exact_draws), (AT_ZERO, 1)):
            for draw in range(draws):
                yield MomentsCell(_NAME, _FIGURE_1, Curve(reading, n_clients, draw=draw), (300,))


def _tau_cells(scale: Scale) -> Iterator[CurveCell]:
    """The table over tau, in the published programs' setting."""
    for tau in (10, 50, 100):
        curve = Curve(LEGACY, 10, gamma=5.0, sync_every=tau)
        yield BudgetCell(_NAME, "Table over tau", curve, 300, runs(2000, scale))


def _figure_2_cells(scale: Scale) -> Iterator[CurveCell]:
    """Figure 2: both panels at n = 500 simulated, and at a few n by exact moments."""
    from_zero = replace(AT_ZERO, noise_vars=FIGURE_2.reading.noise_vars)
    for r, beta in product(_PANELS, (_BETA,) if scale.thinned else (_BETA, 0.9, 0.95)):
        curve = replace(FIGURE_2, r=r, beta=beta, n_clients=clients_at(500, r))
        for reading in (from_zero, FIGURE_2.reading):
            if not scale.thinned and (reading is FIGURE_2.reading or beta == _BETA):
                simulated = replace(curve, reading=reading)
                yield BudgetCell(_NAME, "Figure 2", simulated, 500, runs(1000, scale), seed=curve.n_clients)
        for n in (100, 500, 1000) if scale.name == "large" else (100, 500):
            yield MomentsCell(_NAME, "Figure 2", replace(curve, n_clients=clients_at(n, r)), (n,))


def _other_cells(scale: Scale) -> Iterator[CurveCell]:
    """Settings in which clients drift (D_3), and in which the risk is curved (D_2)."""
    if scale.thinned:
        return
    unequal = Curve(AT_OPTIMUM, 10, rho=0.5, clients="Hessians follow offsets")
    yield BudgetCell(_NAME, "unequal Hessians", unequal, 300, runs(1000, scale))
    for reading in (AT_ZERO, AT_OPTIMUM):
        logistic = Curve(reading, 10, gamma=0.25, eta0=3.0, clients="logistic")
        yield BudgetCell(_NAME, "Logistic", logistic, 300, runs(600, scale))


class ErrorBudget(BeyondResult):
    """What is left of each distance as terms are taken out, and what of it depends on K."""

    def section(self, rows: Rows, others: OtherRows) -> Section:
        """The claim that client drift leads fails unless D_3 acts on clients of the paper's own model."""
        drift = any(budget.acts("D_3") for budget in budgets_of(rows, clients="random effects"))
        return self.section_of(
            "unclear" if drift else "the start and moving noise",
            summary=_summary(rows),
            findings=(
                _on_figure_1(rows),
                *_on_slopes(rows),
                *_on_tau(rows),
                *_on_figure_2(rows),
                *_on_other_clients(rows),
                _on_covariances(rows),
            ),
            drawings=_drawings(rows),
            tables=_tables(budgets_of(rows)),
            why=(
                "With equal weights, equal client Hessians and a linear gradient $D_2$ and $D_3$ vanish, whatever the "
                "network. Clients of the paper’s own model do drift towards their own optima, but the term $D_3$ that "
                "drift leaves in the bound is zero there; what drift does is in $D_4$, the moving gradient noise. What "
                "grows with $K$ from zero is $D_1$, which standardisation multiplies by $√K$.",
            ),
        )


def simulated_slope(rows: Rows) -> FittedSlope | None:
    """Of d_c~ on log K in Figure 1 right's setting, from the optimum; over draws of the clients if there are some."""
    draws = _lines(rows, "distance", _OPTIMUM)
    if min((len(line) for line in draws), default=0) < 2:
        return None
    return _mean_slope(draws) if len(draws) >= _FEW else fitted(*zip(*draws[0], strict=True))


def exact_slope(rows: Rows) -> FittedSlope:
    """The same of the Gaussian law with the exact covariance, over draws of the clients."""
    return _mean_slope(_lines(rows, "exact moments", _OPTIMUM))


def panel_gaps(rows: Rows) -> dict[float, tuple[float, float]]:
    """d(r = .6) - d(r = .2) of Figure 2 from the optimum, and its standard error, by beta."""
    few, many = (
        {budget.at.beta: budget for budget in budgets_of(rows, setting="Figure 2", reading=_OPTIMUM, r=r)}
        for r in _PANELS
    )
    return {beta: _gap(few[beta], many[beta]) for beta in few if beta in many}


def exact_panels(rows: Rows) -> dict[tuple[int | None, float], tuple[float, float]]:
    """The same distances, at r = .2 and r = .6, of the normal laws with the exact covariances, by n and beta."""
    exact = matching(rows, setting="Figure 2", measure="exact moments", covariance="Sigma/K")
    few, many = ({(row.n, row.beta): row.measured[0] for row in matching(exact, r=r)} for r in _PANELS)
    return {place: (few[place], many[place]) for place in few if place in many}


def _lines(rows: Rows, measure: str, reading: str) -> list[list[Point]]:
    """The distance against K in Figure 1 right's setting, a line for each draw of the clients."""
    return by_draw(rows, setting=_FIGURE_1, measure=measure, reading=reading, term="all", covariance="Sigma_n")


def _mean_slope(lines: Sequence[Sequence[Point]]) -> FittedSlope:
    return over_draws([slope(k, d) for k, d, _ in (zip(*line, strict=True) for line in lines)])


def _gap(few: Budget, many: Budget) -> tuple[float, float]:
    gap = many.distance("all", "Sigma/K") - few.distance("all", "Sigma/K")
    return gap, float(np.hypot(many.error("all", "Sigma/K"), few.error("all", "Sigma/K")))


def _summary(rows: Rows) -> str:
    first = budgets_of(rows, setting=_FIGURE_1, reading=_ZERO)[0]
    whole, shifted, rest = _taken_out([first])
    return (
        f"From zero at $K$ = {first.at.K}, {whole} falls to {shifted} without $D_1$ and to {rest} without $D_4$. "
        f"From the optimum the distance changes by {number(exact_slope(rows).value)} per unit of $log K$."
    )


def _on_figure_1(rows: Rows) -> str:
    """What the start does in Figure 1, right."""
    zero, near = (budgets_of(rows, setting=_FIGURE_1, reading=reading) for reading in (_ZERO, _OPTIMUM))
    whole, shifted, rest = _taken_out(zero)
    return (
        f"Figure 1, right, from zero, $K$ = {listed([str(budget.at.K) for budget in zero])}: the distance is {whole}; "
        f"without $D_1$ it is {shifted}; without $D_4$ as well it is {rest}, where {number(zero[0].floor)} is the "
        "noise floor. The start acts twice: it shifts the average ($D_1$), and on the way from there gradients are "
        f"noisier than at the optimum ($D_4$, whose root mean square is {number(zero[0].rms('D_4'), 2)} from zero and "
        f"{number(near[0].rms('D_4'), 2)} from the optimum at $K$ = {zero[0].at.K})."
    )


def _on_slopes(rows: Rows) -> Iterator[str]:
    """Whether the distance depends on K once runs start at the optimum."""
    simulated, exact = simulated_slope(rows), exact_slope(rows)
    if simulated is not None:
        draws = len(_lines(rows, "distance", _OPTIMUM))
        source = f"{draws} draws of the clients" if draws >= _FEW else "Monte-Carlo error, for one draw of the clients"
        yield (
            f"From the optimum the simulated slope of the distance on $log K$ is {number(simulated.value, 4)} (99 % "
            f"interval {simulated.interval(4)}, from {source}); {_covers(simulated)}."
        )
    lines, (zero,) = _lines(rows, "exact moments", _OPTIMUM), _lines(rows, "exact moments", _ZERO)
    yield (
        f"Without Monte-Carlo error, from exact means and covariances over {len(lines)} draws of the clients, the "
        f"slope is {number(exact.value, 4)} (99 % interval {exact.interval(4)}); {_covers(exact)}. The mean distance "
        f"is {numbers(np.array(lines)[:, :, 1].mean(axis=0))} at $K$ = {listed([f'{k:g}' for k, _, _ in zero])}; from "
        f"zero, for one draw, it is {numbers(d for _, d, _ in zero)}."
    )


def _on_tau(rows: Rows) -> Iterator[str]:
    """Which term makes the distance grow with tau."""
    table = budgets_of(rows, setting="Table over tau")
    if table:
        whole, shifted, rest = _taken_out(table)
        yield (
            f"The table over $τ$ as coded, $τ$ = {listed([str(budget.at.tau) for budget in table])}: the distance is "
            f"{whole}; without $D_1$ {shifted}; without $D_4$ as well {rest}. Clients that have drifted towards their "
            "own optima have less gradient noise than $Σ_n$ counts. Against $Σ/K$, which is smaller than $Σ_n$, the "
            f"same runs are at {_distances(table, 'all', 'Sigma/K')}."
        )


def _on_figure_2(rows: Rows) -> Iterator[str]:
    """Whether the two panels of Figure 2 differ once runs start at the optimum."""
    gaps, exact = panel_gaps(rows), exact_panels(rows)
    if gaps:
        beta, (gap, error) = max(gaps.items(), key=lambda item: abs(item[1][0] / item[1][1]))
        pair = budgets_of(rows, setting="Figure 2", reading=_OPTIMUM, beta=beta)
        more = " That is more than chance: averages over few clients are not quite normal."
        yield (
            f"Figure 2 from the optimum at $n$ = 500: over {len(gaps)} values of $β$ the largest difference between "
            f"the panels $r$ = 0.6 and $r$ = 0.2 is {with_error(gap, error)}, {number(abs(gap / error), 1)} "
            f"Monte-Carlo standard errors, at $β$ = {beta:g}. There runs with $r$ = 0.2 and 0.6 are at "
            f"{_distances(pair, 'all', 'Sigma/K')}, and normal laws with their exact covariances at "
            f"{numbers(exact[500, beta])}.{more if abs(gap) > _MANY * error else ''}"
        )
    worst = max((many - few for few, many in exact.values()), key=abs)
    yield (
        f"Over {len(exact)} pairs of $n$ and $β$ the panels of those normal laws, which have no Monte-Carlo error, "
        f"differ by at most {number(abs(worst), 4)}; there the one with more clients is "
        f"{'nearer to' if worst < 0 else 'further from'} the limit law."
    )
    pair = budgets_of(rows, setting="Figure 2", reading=_ZERO, beta=_BETA)
    if len(pair) == 2:
        few, many = pair
        rises, falls = (few.distance(stage, "Sigma/K") < many.distance(stage, "Sigma/K") for stage in STAGES[:2])
        yield (
            "From zero, at $β$ = 0.85, the panels $r$ = 0.2 and $r$ = 0.6 are at "
            f"{_distances(pair, 'all', 'Sigma/K', 2)}; without $D_1$ they are at "
            f"{_distances(pair, 'without D_1', 'Sigma/K', 2)}."
            + (" Their order turns round." if rises and not falls else "")
        )


def _on_other_clients(rows: Rows) -> Iterator[str]:
    """Settings in which D_2 and D_3 are not zero."""
    for budget in budgets_of(rows, setting="unequal Hessians"):
        whole, rest = (number(budget.distance(stage), 2) for stage in ("all", "without D_1, D_3"))
        yield (
            "With client Hessians that follow the offsets, $D_3$ has a root mean square of "
            f"{number(budget.rms('D_3'), 2)} and a mean of length {number(budget.mean('D_3'), 2)}; taking it out "
            f"brings the distance from {whole} to {rest}."
        )
    for budget in reversed(budgets_of(rows, setting="Logistic")):
        first, *left = (round(budget.distance(stage), 2) for stage in STAGES)
        opposed = " Here $D_1$ had cancelled part of the others." if left[0] > first else ""
        yield (
            f"Logistic clients {budget.at.reading}: {number(first, 2)} with all terms, then "
            f"{numbers(left, 2)} as $D_1$, $D_3$, $D_2$ and $D_4$ are taken out.{opposed}"
        )


def _on_covariances(rows: Rows) -> str:
    """What it costs to use Sigma/K for Sigma_n."""
    budgets = _shown(budgets_of(rows, clients="random effects"))
    limit = [budget.distance("W", "Sigma/K") for budget in budgets]
    finite = [budget.distance("all") for budget in budgets if budget.at.reading == _OPTIMUM]
    return (
        "In all these settings with the paper’s clients the linear part $W$ alone is "
        f"{span(limit, 2)} from $N(0, Σ/K)$. From the optimum, all terms together are {span(finite, 2)} from "
        "$N(0, Σ_n)$."
    )


def _shown(budgets: Sequence[Budget]) -> list[Budget]:
    """Figure 2 with one beta, and all else."""
    return [budget for budget in budgets if budget.at.beta <= _BETA]


def _taken_out(budgets: Sequence[Budget]) -> list[str]:
    """Distances with all terms, without the start, and without moving noise either."""
    return [_distances(budgets, stage) for stage in ("all", "without D_1", "W")]


def _distances(budgets: Sequence[Budget], stage: str, covariance: str = "Sigma_n", digits: int = 3) -> str:
    return numbers((budget.distance(stage, covariance) for budget in budgets), digits)


def _covers(found: FittedSlope) -> str:
    return f"the interval {'covers' if found.covers(0.0) else 'does not cover'} 0"


def _label(budget: Budget) -> str:
    """In a table or a picture."""
    at, start = budget.at, _STARTS[budget.at.reading]
    labels = {
        _FIGURE_1: f"Fig. 1, $K$={at.K}, {start}",
        "Table over tau": f"Table over $τ$, $τ$={at.tau}",
        "Figure 2": f"Fig. 2, $r$={at.r}, {start}" + ("" if at.beta == _BETA else f", $β$={at.beta}"),
        "Logistic": f"Logistic, {start}",
    }
    return labels.get(at.setting, at.curve)


def _drawings(rows: Rows) -> tuple[Drawing, ...]:
    shown = _shown(budgets_of(rows))
    by_term = Drawing(
        "error_budget",
        budget_figure(
            f"With the terms $D$ taken out, no distance is above {number(max(b.distance('W') for b in shown))}",
            [Trail(_label(budget), _left(budget), budget.floor) for budget in shown],
        ),
        "Each line is a setting, with the start of its runs in its name. Marks show the distance with all terms, and "
        "what is left as terms are taken out of the same runs in the order of the legend. Terms that are zero have no "
        "mark. Figure 2 ($β$ = 0.85) is measured against $Σ/K$ as in the paper, with $Σ_n$ in its place as a last "
        "step; all else against $Σ_n$.",
        "A dot chart: for each setting, distances move towards zero as error terms are taken out.",
    )
    families = [
        Lines(reading, role, _lines(rows, "distance", reading)[0], _lines(rows, "exact moments", reading))
        for reading, role in ((_ZERO, "limit"), (_OPTIMUM, "finite"))
    ]
    low, high = (span((d for line in family.exact for _, d, _ in line), 2) for family in families)
    title = f"From zero the distance is {low}, and from the optimum {high}"
    against_k = Drawing(
        "error_budget_clients",
        clients_figure(title, families, shown[0].floor),
        "The distance of the average to $N(0, Σ_n)$ in the setting of Figure 1, right, $τ$ = 10. Points: simulated, "
        "with two Monte-Carlo errors to either side. Thin lines: the normal law with the exact mean and covariance, a "
        "line for each draw of the clients. The band is what a normal law would show at as many runs as the points "
        "have.",
        "A line chart against the number of clients: one curve near one, several near 0.05.",
    )
    return by_term, against_k


def _left(budget: Budget) -> dict[str, float]:
    """The distance with all terms, and what is left of it as those that act are taken out."""
    limit = budget.at.setting == "Figure 2"
    covariance = "Sigma/K" if limit else "Sigma_n"
    left = {"all": budget.distance("all", covariance)}
    left |= {term: budget.distance(stage, covariance) for stage, term in REMOVED.items() if budget.acts(term)}
    return left | {"Sigma": budget.distance("W")} if limit else left


def _tables(budgets: Sequence[Budget]) -> tuple[Table, ...]:
    return (
        Table(
            ("setting", "all", "−$D_1$", "−$D_3$", "−$D_2$", "−$D_4$", "all, $Σ/K$", "$W$, $Σ/K$"),
            tuple(
                (
                    _label(budget),
                    with_error(budget.distance("all"), budget.error("all")),
                    *(number(budget.distance(stage)) if budget.acts(term) else "" for stage, term in REMOVED.items()),
                    *(number(budget.distance(stage, "Sigma/K")) for stage in ("all", "W")),
                )
                for budget in budgets
            ),
            "Distances over balls to $N(0, Σ_n)$, with all terms (Monte-Carlo error in brackets) and as terms are "
            "taken out one after another, empty where the term is zero; without $D_4$ it is $W$ that is left; in the "
            f"last columns against $N(0, Σ/K)$; noise floor {span(budget.floor for budget in budgets)}",
        ),
        Table(
            ("setting", *(f"${term}$" for term in TERMS)),
            tuple(
                (_label(b), *(f"{number(b.rms(term), 2)} ({number(b.mean(term), 2)})" for term in TERMS))
                for b in budgets
            ),
            "Root mean square length of each term over runs, and the length of its mean in brackets; for a standard "
            "normal vector in the plane they are 1.41 and 0",
        ),
    )


RESULT = ErrorBudget(
    name=_NAME,
    title="Where the distance comes from",
    where="beyond the paper; Appendix B.1.1 taken run by run",
    claim="simulations show the bounds to be sharp, and client drift is their leading term",
    cells=_cells,
)
