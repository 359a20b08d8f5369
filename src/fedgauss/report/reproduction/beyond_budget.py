"""The section of the error budget: how much of a distance each term of the decomposition makes."""

from __future__ import annotations

from collections.abc import Sequence

from fedgauss.experiments.paper import Result
from fedgauss.report.drawing import Drawing
from fedgauss.report.reproduction import beyond_budget_findings as findings
from fedgauss.report.reproduction.beyond_pictures import Lines, Trail, budget_figure, clients_figure
from fedgauss.report.reproduction.beyond_settings import (
    FIGURE_1,
    OPTIMUM,
    REMOVED,
    TERMS,
    ZERO,
    Setting,
    settings_of,
)
from fedgauss.report.reproduction.section import Section
from fedgauss.report.table import Table
from fedgauss.report.words import number, with_error
from fedgauss.sweep.cell import Row


def budget_section(result: Result, rows: list[Row]) -> Section:
    """What is left of each distance as terms are taken out, and what of it depends on K."""
    settings = settings_of(rows)
    simulated, exact = findings.simulated_slope(rows), findings.exact_slope(rows)
    drawings = [_budget_drawing(settings)]
    if len({row["K"] for row in rows if row["curve"] == FIGURE_1}) > 1:
        drawings.append(_clients_drawing(rows, settings))
    acts = any(setting.acts("D_3") for setting in settings if setting.clients == "random effects")
    return Section(
        result.name,
        result.title,
        result.where,
        result.claim,
        "unclear" if acts else "the start and moving noise",
        findings.summary(settings, exact),
        (
            *findings.figure_1(settings),
            *findings.slopes(simulated, exact, rows),
            *findings.table_over_tau(settings),
            *findings.figure_2(settings, rows),
            *findings.other_clients(settings),
            *findings.covariances(settings),
        ),
        tuple(drawings),
        (_distance_table(settings), _length_table(settings)),
        (
            "With equal weights, equal client Hessians and a linear gradient $D_2$ and $D_3$ vanish, whatever the "
            "network. Clients of the paper’s own model do drift towards their own optima, but the term $D_3$ that "
            "drift leaves in the bound is zero there; what drift does is in $D_4$, the moving gradient noise. What "
            "grows with $K$ from zero is $D_1$, which standardisation multiplies by $√K$.",
        ),
    )


def _budget_drawing(settings: Sequence[Setting]) -> Drawing:
    shown = [s for s in settings if "beta=0.9" not in s.curve]
    rest = max(s.distance["W", "Sigma_n"] for s in shown)
    title = f"With the terms $D$ taken out, no distance is above {number(rest)}"
    return Drawing(
        "error_budget",
        budget_figure(title, [_trail(s) for s in shown]),
        "Each line is a setting, with the start of its runs in its name. Marks show the distance with all terms, and "
        "what is left as terms are taken out of the same runs in the order of the legend. Terms that are zero have no "
        "mark. Figure 2 ($β$ = 0.85) is measured against $Σ/K$ as in the paper, with $Σ_n$ in its place as a last "
        "step; all else against $Σ_n$.",
        "A dot chart: for each setting, distances move towards zero as error terms are taken out.",
    )


def _trail(setting: Setting) -> Trail:
    limit = setting.curve.startswith("Figure 2")
    covariance = "Sigma/K" if limit else "Sigma_n"
    left = {"all": setting.distance["all", covariance]}
    for stage, term in REMOVED.items():
        if setting.acts(term):
            left[term] = setting.distance[stage, covariance]
    if limit:
        left["Sigma"] = setting.distance["W", "Sigma_n"]
    return Trail(setting.label, left, setting.floor)


def _clients_drawing(rows: Sequence[Row], settings: Sequence[Setting]) -> Drawing:
    families = [
        Lines(
            reading,
            role,
            [point for line in findings.by_draw(rows, "distance", reading)[:1] for point in line],
            findings.by_draw(rows, "exact moments", reading),
        )
        for reading, role in ((ZERO, "limit"), (OPTIMUM, "finite"))
    ]
    low, high = (
        f"{number(min(values), 2)} to {number(max(values), 2)}"
        for values in ([d for line in family.exact for _, d, _ in line] for family in families)
    )
    title = f"From zero the distance is {low}, and from the optimum {high}"
    return Drawing(
        "error_budget_clients",
        clients_figure(title, families, settings[0].floor),
        "The distance of the average to $N(0, Σ_n)$ in the setting of Figure 1, right, $τ$ = 10. Points: simulated, "
        "with two Monte-Carlo errors to either side. Thin lines: the normal law with the exact mean and covariance, a "
        "line for each draw of the clients. The band is what a normal law would show at as many runs as the points "
        "have.",
        "A line chart against the number of clients: one curve near one, several near 0.05.",
    )


def _distance_table(settings: Sequence[Setting]) -> Table:
    def cells(setting: Setting) -> tuple[str, ...]:
        first = with_error(setting.distance["all", "Sigma_n"], setting.error["all", "Sigma_n"])
        stages = [
            number(setting.distance[stage, "Sigma_n"]) if setting.acts(term) else "" for stage, term in REMOVED.items()
        ]
        limit = [number(setting.distance[stage, "Sigma/K"]) for stage in ("all", "W")]
        return setting.label, first, *stages, *limit

    floors = sorted(setting.floor for setting in settings)
    return Table(
        ("setting", "all", "−$D_1$", "−$D_3$", "−$D_2$", "−$D_4$", "all, $Σ/K$", "$W$, $Σ/K$"),
        tuple(cells(setting) for setting in settings),
        "Distances over balls to $N(0, Σ_n)$, with all terms (Monte-Carlo error in brackets) and as terms are taken "
        "out one after another, empty where the term is zero; without $D_4$ it is $W$ that is left; in the last "
        f"columns against $N(0, Σ/K)$; noise floor {number(floors[0])} to {number(floors[-1])}",
    )


def _length_table(settings: Sequence[Setting]) -> Table:
    return Table(
        ("setting", *(f"${term}$" for term in TERMS)),
        tuple(
            (s.label, *(f"{number(s.rms(term), 2)} ({number(s.lengths[term][0], 2)})" for term in TERMS))
            for s in settings
        ),
        "Root mean square length of each term over runs, and the length of its mean in brackets; for a standard normal "
        "vector in the plane they are 1.41 and 0",
    )
