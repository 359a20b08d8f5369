"""Three results that the paper does not have: an error budget, a map of the phases, and clients that differ in Hessian.

Each examines a claim of the paper with the tools of its own proofs, and is data in the same way as the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from fedgauss.experiments.budget_cells import BudgetCell
from fedgauss.experiments.design import Clients, Design
from fedgauss.experiments.hessian_cells import MeanCell
from fedgauss.experiments.moment_cells import MomentsCell
from fedgauss.experiments.paper import Result, Scale
from fedgauss.experiments.phase_cells import PhaseCell
from fedgauss.experiments.readings import Reading, squares

BeyondCell = BudgetCell | MeanCell | MomentsCell | PhaseCell

# The published programs' setting of the table over tau: offsets of sd 5, client sd 1 to 5, a start near the optimum.
_CODED = Reading("as coded", "near optimum", "sd", squares(1, 5), phase=1, legacy=True)
_ZERO = Reading("from zero", "zeros")
_OPTIMUM = Reading("from the optimum", "optimum")
# Figure 2 has client standard deviations 1 and 2.
_PHASE_ZERO = replace(_ZERO, noise_vars=(1.0, 4.0))
_PHASE_OPTIMUM = replace(_OPTIMUM, noise_vars=(1.0, 4.0))

HESSIANS: tuple[Clients, ...] = ("Hessians follow offsets", "Hessians permuted")
_FIGURE1_CLIENTS = (10, 20, 40, 60, 80, 100)
_HESSIAN_CLIENTS = (10, 40, 160, 640)
_MOST = 100_000  # more runs than this tell little more, and are slow to sort


def beyond_results() -> dict[str, Result]:
    """All three, by name."""
    listed = [
        Result(
            "error_budget",
            "Where the distance comes from",
            "beyond the paper; Appendix B.1.1 taken run by run",
            "simulations show the bounds to be sharp, and client drift is their leading term",
            _error_budget,
        ),
        Result(
            "phase_map",
            "The phase transition without a start bias",
            "beyond the paper; Section 4.2 and Theorem 2.3",
            "once K is of order √n or more, no β makes the distance to N(0, Σ/K) vanish",
            _phase_map,
        ),
        Result(
            "unequal_hessians",
            "Clients that differ in Hessian",
            "beyond the paper; Theorem 2.1",
            "client drift puts a term into the error that grows like √K",
            _unequal_hessians,
        ),
    ]
    return {result.name: result for result in listed}


def _error_budget(scale: Scale) -> list[BeyondCell]:
    return [*_figure1(scale), *_table_over_tau(scale), *_figure2(scale), *_other_losses(scale)]


def _figure1(scale: Scale) -> Iterator[BeyondCell]:
    """Figure 1, right: simulated for a few K, and by exact moments for all K and several draws of the clients."""
    simulated = {"quick": (10,), "paper": (10, 40, 100)}.get(scale.name, _FIGURE1_CLIENTS)
    exact_draws = {"quick": 3, "paper": 5}.get(scale.name, 32)
    for n_clients in simulated:
        for reading, draws in ((_OPTIMUM, scale.draws if scale.name == "large" else 1), (_ZERO, 1)):
            for draw in range(draws):
                design = Design(reading, n_clients, draw=draw)
                # A seed for each K keeps the points of a slope independent.
                yield BudgetCell("error_budget", "Figure 1, right", design, 300, _runs(2000, scale), seed=n_clients)
    for n_clients in (10, 40) if scale.name == "quick" else _FIGURE1_CLIENTS:
        for reading, draws in ((_OPTIMUM, exact_draws), (_ZERO, 1)):
            for draw in range(draws):
                yield MomentsCell("error_budget", "Figure 1, right", Design(reading, n_clients, draw=draw), (300,))


def _table_over_tau(scale: Scale) -> Iterator[BeyondCell]:
    for tau in (10, 50, 100):
        design = Design(_CODED, 10, gamma=5.0, sync_every=tau)
        yield BudgetCell("error_budget", f"Table over tau, tau={tau}", design, 300, _runs(2000, scale))


def _figure2(scale: Scale) -> Iterator[BeyondCell]:
    """Figure 2: both panels at n = 500 simulated, and at a few n by exact moments."""
    base = Design(_PHASE_OPTIMUM, 3, gamma=0.0, sync_every=5, eta0=0.5)
    quick = scale.name == "quick"
    for r, beta in product((0.2, 0.6), (0.85,) if quick else (0.85, 0.9, 0.95)):
        curve = f"Figure 2, r={r} beta={beta}"
        for reading in (_PHASE_ZERO, _PHASE_OPTIMUM):
            if not quick and (reading is _PHASE_OPTIMUM or beta == 0.85):
                design = replace(base, reading=reading, n_clients=_clients(500, r), beta=beta)
                yield BudgetCell("error_budget", curve, design, 500, _runs(1000, scale), seed=design.n_clients)
        for n in (100, 500, 1000) if scale.name == "large" else (100, 500):
            yield MomentsCell("error_budget", curve, replace(base, n_clients=_clients(n, r), beta=beta), (n,))


def _other_losses(scale: Scale) -> Iterator[BeyondCell]:
    """Settings in which clients drift (D_3), and in which the risk is curved (D_2)."""
    if scale.name == "quick":
        return
    unequal = Design(_OPTIMUM, 10, rho=0.5, clients="Hessians follow offsets")
    yield BudgetCell("error_budget", "Hessians follow offsets", unequal, 300, _runs(1000, scale))
    for reading in (_ZERO, _OPTIMUM):
        logistic = Design(reading, 10, gamma=0.25, eta0=3.0, clients="logistic")
        yield BudgetCell("error_budget", "Logistic", logistic, 300, _runs(600, scale))


def _phase_map(scale: Scale) -> list[BeyondCell]:
    """Figure 2's setting from the optimum, with n and K apart."""
    quick = scale.name == "quick"
    steps = (100, 200, 400) if quick else (100, 200, 400, 800)
    betas = (0.75, 0.85, 0.95)
    base = Design(_PHASE_OPTIMUM, 3, gamma=0.0, sync_every=5, eta0=0.5)
    cells: list[BeyondCell] = []
    for n_clients in (3, 16) if quick else (3, 16, 80):
        design = replace(base, n_clients=n_clients)
        cells.append(PhaseCell("phase_map", design, betas, steps, _runs(1000, scale), seed=n_clients))
        cells += [MomentsCell("phase_map", f"beta={beta}", replace(design, beta=beta), steps) for beta in betas]
    return cells


def _unequal_hessians(scale: Scale) -> list[BeyondCell]:
    """The bias by the mean recursion for every K; distances by simulation, where it is not too dear."""
    simulated = {"quick": (), "paper": (10, 160)}.get(scale.name, _HESSIAN_CLIENTS)
    draws = {"quick": 8, "paper": 16}.get(scale.name, 64)
    cells: list[BeyondCell] = []
    for n_clients, clients in product(_HESSIAN_CLIENTS[:3] if scale.name == "quick" else _HESSIAN_CLIENTS, HESSIANS):
        design = Design(_OPTIMUM, n_clients, rho=0.5, clients=clients)
        cells.append(MeanCell("unequal_hessians", clients, design, 300, draws))
        if n_clients in simulated:
            runs = _runs(500 if n_clients > 100 else 1000, scale)
            cells.append(BudgetCell("unequal_hessians", clients, design, 300, runs))
    return cells


def _runs(count: int, scale: Scale) -> int:
    return min(_MOST, round(count * scale.factor))


def _clients(n: int, r: float) -> int:
    """K = n^r, at least 3, as in Figure 2."""
    return max(3, int(n**r + 1e-9))
