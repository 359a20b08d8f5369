"""Sections of the results beyond the paper: sentences, tables and verdicts follow the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedgauss.experiments.beyond import HESSIANS, beyond_results
from fedgauss.experiments.budget_cells import STAGES
from fedgauss.report.images import png
from fedgauss.report.reproduction import beyond_budget_findings as findings
from fedgauss.report.reproduction.beyond import beyond_section
from fedgauss.report.reproduction.beyond_hessians import exponents
from fedgauss.report.reproduction.beyond_settings import OPTIMUM, ZERO, settings_of
from fedgauss.report.reproduction.beyond_slopes import fitted, over_draws

FIGURE_2 = [f"Figure 2, r={r} beta=0.85" for r in (0.2, 0.6)]


def budget_rows(curve, reading, n_clients, distances, lengths=(0.0, 0.0, 0.0, 0.5), clients="random effects"):
    """Rows of one simulated setting: distances by stage, root mean squares of D_1, D_2, D_3 and D_4."""
    base = {
        "result": "error_budget",
        "reading": reading,
        "curve": curve,
        "clients": clients,
        "draw": 0,
        "n": 300,
        "K": n_clients,
        "beta": 0.75,
    }
    rows = [
        base
        | {
            "measure": "distance",
            "term": stage,
            "covariance": covariance,
            "estimate": distance + extra,
            "error": 0.01,
            "floor": 0.02,
            "half_spaces": distance / 2,
        }
        for stage, distance in zip(STAGES, distances, strict=True)
        for covariance, extra in (("Sigma_n", 0.0), ("Sigma/K", 0.1))
    ]
    for term, size in zip(("W", "D_1", "D_2", "D_3", "D_4"), (1.41, *lengths), strict=True):
        rows.append(base | {"measure": "length", "term": term, "mean": size / 2, "rms": size})
    return rows


def exact_row(curve, reading, n_clients, estimate, draw=0, n=300, beta=0.75, covariance="Sigma_n"):
    return {
        "result": "error_budget",
        "reading": reading,
        "curve": curve,
        "clients": "random effects",
        "draw": draw,
        "n": n,
        "K": n_clients,
        "beta": beta,
        "measure": "exact moments",
        "term": "all",
        "covariance": covariance,
        "estimate": estimate,
        "error": 0.0,
    }


def small_budget():
    """From zero .9 and 1.0 at K = 10 and 100, nearly all of it D_1; from the optimum .04 + .01 log(K / 10)."""
    rows = []
    for k in (10, 100):
        rows += budget_rows("Figure 1, right", ZERO, k, (0.9 if k == 10 else 1.0, 0.2, 0.2, 0.2, 0.02), (4, 0, 0, 1.5))
        rows += budget_rows("Figure 1, right", OPTIMUM, k, (*[0.04 + 0.01 * math.log(k / 10)] * 4, 0.02))
        rows.append(exact_row("Figure 1, right", ZERO, k, 0.9))
        for draw, slope in enumerate((0.004, 0.006, 0.008)):
            rows.append(exact_row("Figure 1, right", OPTIMUM, k, 0.04 + slope * math.log(k / 10), draw))
    for curve, k, distance in zip(FIGURE_2, (3, 41), (0.20, 0.23), strict=True):
        rows += budget_rows(curve, OPTIMUM, k, (*[distance] * 4, 0.02))
        rows.append(exact_row(curve, OPTIMUM, k, 0.25 if k == 3 else 0.248, n=500, beta=0.85, covariance="Sigma/K"))
    return rows


def phase_rows(growth):
    """Distances that grow as K to the power `growth`, and fall as n^-.2."""
    base = {"result": "phase_map", "reading": OPTIMUM, "draw": 0, "clients": "random effects"}
    rows = []
    for beta in (0.75, 0.95):
        for k in (3, 30):
            at = base | {"beta": beta, "K": k, "curve": f"beta={beta}"}
            for n in (100, 400):
                d = 0.3 * (k / 3) ** growth * (n / 100) ** -0.2
                noise = {"error": 0.01, "floor": 0.02, "printed": k**0.5, "corrected": k**0.2}
                rows.append(at | {"measure": "distance", "n": n, "estimate": d} | noise)
                exact = {"measure": "exact moments", "covariance": "Sigma/K", "estimate": d, "error": 0.0, "n": n}
                rows.append(at | exact)
            rows.append(at | {"measure": "slope on log n", "estimate": -0.2, "error": 0.03})
    return rows


def hessian_rows(follow, permuted):
    """Exact means that grow as K to these powers, with some spread over draws."""
    rng = np.random.default_rng(3)
    return [
        {
            "result": "unequal_hessians",
            "reading": OPTIMUM,
            "curve": clients,
            "clients": clients,
            "draw": draw,
            "n": 300,
            "K": k,
            "measure": "exact mean",
            "estimate": float((k / 10) ** growth * np.exp(0.05 * rng.standard_normal())),
            "error": 0.0,
        }
        for clients, growth in zip(HESSIANS, (follow, permuted), strict=True)
        for draw in range(6)
        for k in (10, 40, 160)
    ]


def section(name, rows):
    return beyond_section(beyond_results()[name], rows)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("error_budget", small_budget()),
        ("phase_map", phase_rows(0.0)),
        ("unequal_hessians", hessian_rows(0.5, 0.0)),
        (
            "unequal_hessians",
            hessian_rows(0.5, 0.0)
            + budget_rows(HESSIANS[0], OPTIMUM, 10, (0.4, 0.4, 0.05, 0.05, 0.02), (0, 0, 1.1, 0.5), HESSIANS[0]),
        ),
    ],
)
def test_a_section_is_whole(name, rows):
    found = section(name, rows)
    assert found.name == name
    assert "\n" not in found.summary
    assert len(found.findings) >= 2
    for table in found.tables:
        assert {len(row) for row in table.rows} == {len(table.header)}
    for drawing in found.drawings:
        assert drawing.name.startswith(name)
        assert drawing.alt
        assert png(drawing.figure, dpi=40).startswith(b"\x89PNG")


def test_slopes_are_those_of_the_rows():
    rows = small_budget()
    simulated, exact = findings.simulated_slope(rows), findings.exact_slope(rows)
    assert simulated.value == pytest.approx(0.01)
    assert simulated.error == pytest.approx(0.01 * 2**0.5 / math.log(10))
    assert exact.value == pytest.approx(0.006)
    assert exact.error == pytest.approx(0.002 / 3**0.5)


def test_panels_are_compared_in_errors():
    gap, error = findings.panel_gaps(settings_of(small_budget()))[0.85]
    assert gap == pytest.approx(0.03)
    assert error == pytest.approx(0.01 * 2**0.5)
    assert findings.exact_panels(small_budget()) == {(500, 0.85): (0.25, 0.248)}
    assert any("2.1 Monte-Carlo standard errors" in text for text in section("error_budget", small_budget()).findings)


def test_the_budget_says_what_each_term_takes_away():
    found = section("error_budget", small_budget())
    assert "0.900 falls to 0.200 without $D_1$ and to 0.020 without $D_4$" in found.summary
    row = next(row for row in found.tables[0].rows if row[0] == "Fig. 1, $K$=10, zero")
    # all with its error, without D_1, nothing for D_3 and D_2, W, and both against Sigma/K
    assert row[1:] == ("0.900 (0.010)", "0.200", "", "", "0.020", "1.000", "0.120")


def test_the_verdict_on_the_budget_depends_on_drift():
    assert section("error_budget", small_budget()).verdict == "the start and moving noise"
    drifting = budget_rows("Table over tau, tau=10", "as coded", 10, (0.5, 0.4, 0.1, 0.1, 0.02), (0, 0, 1.0, 0.5))
    assert section("error_budget", small_budget() + drifting).verdict == "unclear"


def test_the_verdict_on_the_phases_depends_on_the_slope():
    flat, growing = (section("phase_map", phase_rows(growth)) for growth in (0.0, 0.5))
    assert flat.verdict == "no transition"
    assert "0.00 to 0.00" in flat.summary
    assert "4 of 4 have a 99 % interval that covers 0" in flat.findings[0]
    assert growing.verdict == "unclear"
    assert growing.tables[0].rows[0][1] == "0.500"
    assert all(row[1] == "−0.200" for row in growing.tables[1].rows)


@pytest.mark.parametrize(
    ("follow", "permuted", "verdict"), [(0.5, 0.0, "upheld"), (0.5, 0.5, "unclear"), (0.0, 0.0, "unclear")]
)
def test_the_verdict_on_hessians_depends_on_both_exponents(follow, permuted, verdict):
    rows = hessian_rows(follow, permuted)
    assert section("unequal_hessians", rows).verdict == verdict
    for found, truth in zip(exponents(rows), (follow, permuted), strict=True):
        assert found.value == pytest.approx(truth, abs=0.05)


def test_intervals():
    known = fitted([1.0, math.e], [0.0, 1.0], [0.1, 0.1])
    assert (known.value, known.error) == (pytest.approx(1.0), pytest.approx(0.1 * 2**0.5))
    assert known.high - known.value == pytest.approx(2.5758 * known.error, rel=1e-4)
    drawn = over_draws([1.0, 2.0, 3.0])
    assert drawn.high - 2.0 == pytest.approx(9.9248 / 3**0.5, rel=1e-4)  # Student's t with two degrees of freedom
    assert drawn.covers(0.0)
    assert not known.covers(0.5)
