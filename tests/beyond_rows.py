"""Rows of the results beyond the paper, made up so that a test knows what they show."""

import math
from typing import Any

import numpy as np

from fedgauss.paper.budget import AT_OPTIMUM, AT_ZERO, STAGES, TERMS, BeyondRow
from fedgauss.paper.results.unequal_hessians import HESSIANS

ZERO, OPTIMUM = AT_ZERO.name, AT_OPTIMUM.name
FIGURE_1 = {"setting": "Figure 1, right"}


def figure_2(r: float) -> dict[str, Any]:
    """The place of a panel of Figure 2."""
    return {"setting": "Figure 2", "curve": f"Figure 2, r={r} beta=0.85", "r": r, "beta": 0.85, "tau": 5}


def row(**columns: Any) -> BeyondRow:
    """A row of the error budget, unless the columns say otherwise."""
    usual = {"result": "error_budget", "curve": columns["setting"], "clients": "random effects", "draw": 0, "n": 300}
    coordinates = {"tau": 10, "gamma": 1.0, "beta": 0.75}
    return BeyondRow(**(usual | coordinates | columns))


def budget_rows(where, reading, n_clients, distances, lengths=(0.0, 0.0, 0.0, 0.5)):
    """Rows of one simulated setting: distances by stage, root mean squares of D_1, D_2, D_3 and D_4."""
    base = where | {"reading": reading, "K": n_clients}
    rows = [
        row(
            **base,
            measure="distance",
            term=stage,
            covariance=covariance,
            estimate=distance + extra,
            error=0.01,
            floor=0.02,
            half_spaces=distance / 2,
        )
        for stage, distance in zip(STAGES, distances, strict=True)
        for covariance, extra in (("Sigma_n", 0.0), ("Sigma/K", 0.1))
    ]
    for term, size in zip(TERMS, (1.41, *lengths), strict=True):
        rows.append(row(**base, measure="length", term=term, mean=size / 2, rms=size))
    return rows


def exact_row(where, reading, n_clients, estimate, **columns):
    """A distance from exact moments."""
    fixed = {"measure": "exact moments", "term": "all", "covariance": "Sigma_n", "error": 0.0}
    return row(**(where | fixed | {"reading": reading, "K": n_clients, "estimate": estimate} | columns))


def small_budget():
    """From zero .9 and 1.0 at K = 10 and 100, nearly all of it D_1; from the optimum .04 + .01 log(K / 10)."""
    rows = []
    for k in (10, 100):
        rows += budget_rows(FIGURE_1, ZERO, k, (0.9 if k == 10 else 1.0, 0.2, 0.2, 0.2, 0.02), (4, 0, 0, 1.5))
        rows += budget_rows(FIGURE_1, OPTIMUM, k, (*[0.04 + 0.01 * math.log(k / 10)] * 4, 0.02))
        rows.append(exact_row(FIGURE_1, ZERO, k, 0.9))
        for draw, slope in enumerate((0.004, 0.006, 0.008)):
            rows.append(exact_row(FIGURE_1, OPTIMUM, k, 0.04 + slope * math.log(k / 10), draw=draw))
    for r, k, distance in zip((0.2, 0.6), (3, 41), (0.20, 0.23), strict=True):
        rows += budget_rows(figure_2(r), OPTIMUM, k, (*[distance] * 4, 0.02))
        rows.append(exact_row(figure_2(r), OPTIMUM, k, 0.25 if k == 3 else 0.248, n=500, covariance="Sigma/K"))
    return rows


def drifting_rows():
    """A setting with the paper's clients in which D_3 acts."""
    where = {"setting": "Table over tau", "curve": "Table over tau, tau=10", "gamma": 5.0}
    return budget_rows(where, "as coded", 10, (0.5, 0.4, 0.1, 0.1, 0.02), (0, 0, 1.0, 0.5))


def phase_rows(growth):
    """Distances that grow as K to the power `growth`, and fall as n^-.2."""
    rows = []
    for beta in (0.75, 0.95):
        for k in (3, 30):
            at = {"result": "phase_map", "setting": "phase map", "reading": OPTIMUM, "K": k, "beta": beta}
            for n in (100, 400):
                d = 0.3 * (k / 3) ** growth * (n / 100) ** -0.2
                bounds = {"printed": k**0.5, "corrected": k**0.2}
                rows.append(row(**at, measure="distance", n=n, estimate=d, error=0.01, floor=0.02, **bounds))
                rows.append(row(**at, measure="exact moments", n=n, covariance="Sigma/K", estimate=d, error=0.0))
            rows.append(row(**at, measure="slope on log n", n=None, estimate=-0.2, error=0.03))
    return rows


def hessians(clients):
    """The place of one kind of clients."""
    return {"result": "unequal_hessians", "setting": "unequal Hessians", "curve": clients, "clients": clients}


def hessian_rows(follow, permuted):
    """Exact means that grow as K to these powers, with some spread over draws."""
    rng = np.random.default_rng(3)
    return [
        row(
            **hessians(clients),
            reading=OPTIMUM,
            draw=draw,
            K=k,
            measure="exact mean",
            estimate=float((k / 10) ** growth * np.exp(0.05 * rng.standard_normal())),
            error=0.0,
        )
        for clients, growth in zip(HESSIANS, (follow, permuted), strict=True)
        for draw in range(6)
        for k in (10, 40, 160)
    ]
