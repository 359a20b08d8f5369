"""How the approximations of U_n rank, and how far their quantiles are off."""

from dataclasses import replace

import pytest

from fedgauss.paper.judging import Panel, ResultVerdict, points_of
from fedgauss.paper.quantile import TRIMMED, measured, orders
from fedgauss.paper.readings import CODED, OPTIMUM, ZERO
from fedgauss.paper.results.figure3_qq import clt_verdict, quantile_curves
from reproduction_rows import quantile_rows

SIZES = (10, 25, 50)


def trimmed_points(rows):
    return points_of(Panel("K", "approximation"), measured(rows, TRIMMED))


def ranked(aggr, client, clt):
    gaps = {"Aggr-GA": aggr, "Client-GA": client, "f-CLT": clt}
    return orders(trimmed_points(quantile_rows("figure3_qq", "K", SIZES, gaps, coded=True)))


def test_a_gap_is_relative_and_looks_at_levels_10_to_95():
    rows = quantile_rows("figure3_qq", "K", (10,), {"Aggr-GA": 0.1, "Client-GA": -0.2, "f-CLT": 0.5}, coded=True)
    outside = (0.02, 0.96)  # the levels that count
    rows = [replace(row, estimate=row.estimate * 9.0) if row.x in outside else row for row in rows]
    gaps = {(c.reading, c.approximation): c.gap for c in quantile_curves(rows)}
    assert gaps[ZERO, "Aggr-GA"] == pytest.approx(0.1)
    assert gaps[CODED, "Client-GA"] == pytest.approx(0.2)


def test_the_functional_clt_is_worst_only_if_clearly_so():
    """Errors are .02 each: a difference of .3 is clear, one of .03 is not."""
    assert [o.clearly_worst for o in ranked(0.1, 0.12, 0.42)] == [3, 3, 3]
    assert [o.clearly_worst for o in ranked(0.1, 0.12, 0.15)] == [0, 0, 0]
    assert clt_verdict(ranked(0.1, 0.12, 0.42)) == (ResultVerdict.IN_PART, OPTIMUM)
    assert clt_verdict(ranked(0.1, 0.12, 0.15)) == (ResultVerdict.NOT_REPRODUCED, None)
    assert clt_verdict([o for o in ranked(0.1, 0.12, 0.42) if o.reading == CODED]) == (
        ResultVerdict.IN_PART_AS_CODED,
        CODED,
    )


def test_the_order_of_one_law_is_counted_in_errors():
    found = ranked(0.10, 0.12, 0.5)[0]
    assert (found.aggregated, found.settings) == (3, 3)
    assert found.largest_z == pytest.approx(0.02 / (0.02 * 2**0.5))


def test_draws_are_compared_one_by_one():
    """Draws of the clients move all three gaps together: taken as independent, they would hide a clear difference."""
    gaps = {"Aggr-GA": 0.1, "Client-GA": 0.12, "f-CLT": 0.3}
    rows = quantile_rows("figure3_qq", "K", SIZES, gaps, coded=True)
    drawn = [replace(row, draw=i, estimate=row.estimate + 0.2 * i) for i in range(4) for row in rows]
    found = orders(trimmed_points(drawn))
    assert [o.clearly_worst for o in found] == [3, 3, 3]
    assert found[0].largest_z == pytest.approx(0.02 / (0.02 * 2**0.5) * 2)  # four draws, half the error
