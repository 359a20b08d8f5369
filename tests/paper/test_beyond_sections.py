"""Sections of the results beyond the paper: sentences, tables and verdicts follow the rows."""

from __future__ import annotations

import math

import pytest

from beyond_rows import (
    OPTIMUM,
    budget_rows,
    drifting_rows,
    hessian_rows,
    hessians,
    phase_rows,
    small_budget,
)
from fedgauss._figures import png
from fedgauss.paper.judging import ResultVerdict
from fedgauss.paper.results import error_budget, phase_map, unequal_hessians
from fedgauss.paper.results.unequal_hessians import HESSIANS
from fedgauss.paper.trends import fitted, over_draws

MODULES = {"error_budget": error_budget, "phase_map": phase_map, "unequal_hessians": unequal_hessians}


def section(name, rows):
    return MODULES[name].RESULT.section(rows, {})


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("error_budget", small_budget()),
        ("phase_map", phase_rows(0.0)),
        ("unequal_hessians", hessian_rows(0.5, 0.0)),
        (
            "unequal_hessians",
            hessian_rows(0.5, 0.0)
            + budget_rows(hessians(HESSIANS[0]), OPTIMUM, 10, (0.4, 0.4, 0.05, 0.05, 0.02), (0, 0, 1.1, 0.5)),
        ),
    ],
)
def test_a_section_is_whole(name, rows):
    found = section(name, rows)
    assert found.result.name == name
    assert found.verdict is ResultVerdict.BEYOND
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
    simulated, exact = error_budget.simulated_slope(rows), error_budget.exact_slope(rows)
    assert simulated.value == pytest.approx(0.01)
    assert simulated.error == pytest.approx(0.01 * 2**0.5 / math.log(10))
    assert exact.value == pytest.approx(0.006)
    assert exact.error == pytest.approx(0.002 / 3**0.5)


def test_panels_are_compared_in_errors():
    gap, error = error_budget.panel_gaps(small_budget())[0.85]
    assert gap == pytest.approx(0.03)
    assert error == pytest.approx(0.01 * 2**0.5)
    assert error_budget.exact_panels(small_budget()) == {(500, 0.85): (0.25, 0.248)}
    assert any("2.1 Monte-Carlo standard errors" in text for text in section("error_budget", small_budget()).findings)


def test_the_budget_says_what_each_term_takes_away():
    found = section("error_budget", small_budget())
    assert "0.900 falls to 0.200 without $D_1$ and to 0.020 without $D_4$" in found.summary
    row = next(row for row in found.tables[0].rows if row[0] == "Fig. 1, $K$=10, zero")
    # all with its error, without D_1, nothing for D_3 and D_2, W, and both against Sigma/K
    assert row[1:] == ("0.900 (0.010)", "0.200", "", "", "0.020", "1.000", "0.120")


def test_the_verdict_on_the_budget_depends_on_drift():
    assert section("error_budget", small_budget()).verdict_words == "the start and moving noise"
    assert section("error_budget", small_budget() + drifting_rows()).verdict_words == "unclear"


def test_the_verdict_on_the_phases_depends_on_the_slope():
    flat, growing = (section("phase_map", phase_rows(growth)) for growth in (0.0, 0.5))
    assert flat.verdict_words == "no transition"
    assert "0.00 to 0.00" in flat.summary
    assert "4 of 4 have a 99 % interval that covers 0" in flat.findings[0]
    assert growing.verdict_words == "unclear"
    assert growing.tables[0].rows[0][1] == "0.500"
    assert all(row[1] == "−0.200" for row in growing.tables[1].rows)


@pytest.mark.parametrize(
    ("follow", "permuted", "verdict"), [(0.5, 0.0, "upheld"), (0.5, 0.5, "unclear"), (0.0, 0.0, "unclear")]
)
def test_the_verdict_on_hessians_depends_on_both_exponents(follow, permuted, verdict):
    rows = hessian_rows(follow, permuted)
    assert section("unequal_hessians", rows).verdict_words == verdict
    for found, truth in zip(unequal_hessians.exponents(rows), (follow, permuted), strict=True):
        assert found.value == pytest.approx(truth, abs=0.05)


def test_intervals():
    known = fitted([1.0, math.e], [0.0, 1.0], [0.1, 0.1])
    assert (known.value, known.error) == (pytest.approx(1.0), pytest.approx(0.1 * 2**0.5))
    assert known.high - known.value == pytest.approx(2.5758 * known.error, rel=1e-4)
    drawn = over_draws([1.0, 2.0, 3.0])
    assert drawn.high - 2.0 == pytest.approx(9.9248 / 3**0.5, rel=1e-4)  # Student's t with two degrees of freedom
    assert drawn.covers(0.0)
    assert not known.covers(0.5)
