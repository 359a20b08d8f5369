"""From rows to verdicts: the rule for one point, for a reading and for a result."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedgauss.paper.judging import Measurement, Part, ResultVerdict, outcome
from fedgauss.paper.quantile import Q, measured
from fedgauss.paper.readings import CODED, OPTIMUM, ZERO
from fedgauss.paper.result import catalogue
from reproduction_rows import PARTS, distance_rows, quantile_rows, rows_of

# Every number that the paper prints or draws, as read off it: by part, curve and x.
PRINTED = json.loads((Path(__file__).parent / "printed.json").read_text())


def parts_of(result) -> tuple[Part, ...]:
    return result.parts if hasattr(result, "parts") else (result.part,)


def raised(rows, by, where=lambda row: True):
    return [replace(row, estimate=row.estimate + by) if where(row) else row for row in rows]


def with_estimates(part, by_reading):
    """Rows whose estimate is the printed number plus what the reading adds to it."""
    return distance_rows(part, lambda reading, x, value: value + by_reading[reading])


@pytest.mark.parametrize(
    ("offsets", "verdict", "reading"),
    [
        ({ZERO: 0.5, OPTIMUM: 0.0, CODED: 0.0}, ResultVerdict.REPRODUCED, OPTIMUM),
        ({ZERO: 0.0, OPTIMUM: 0.5, CODED: 0.0}, ResultVerdict.REPRODUCED, ZERO),
        ({ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.0}, ResultVerdict.AS_CODED, CODED),
        ({ZERO: 0.5, OPTIMUM: 0.5, CODED: -0.5}, ResultVerdict.NOT_REPRODUCED, None),
    ],
)
def test_the_text_comes_before_the_programs(offsets, verdict, reading):
    found = outcome(PARTS["figure1_left"], with_estimates("figure1_left", offsets))
    assert (found.verdict, found.reading) == (verdict, reading)
    for agreement in found.agreements:
        assert agreement.rms == pytest.approx(abs(offsets[agreement.reading]))
        assert agreement.compared == 15


def test_the_margin_is_that_of_the_rule():
    """As many runs as the paper: .02 + 2 sqrt(2) e. A margin with sqrt(2) left out, or without .02, fails."""
    one = Measurement(values=(0.3,), errors=(0.01,), runs=1000)
    margin = 0.02 + 2 * 2**0.5 * 0.01
    assert one.margin(1000) == pytest.approx(margin)
    assert one.agrees(0.3 + 0.999 * margin, 1000)
    assert one.agrees(0.3 - 0.999 * margin, 1000)
    assert not one.agrees(0.3 + 1.001 * margin, 1000)
    assert not one.agrees(0.3 - 1.001 * margin, 1000)


def test_of_steps_the_slack_is_a_part_of_the_run():
    """In a run of 500 steps, 10 steps; .02 steps, or .02 of the value, fail."""
    one = Measurement(values=(300.0,), errors=(1.0,), runs=1000, unit=500.0)
    assert one.margin(1000) == pytest.approx(10.0 + 2 * 2**0.5)


def test_with_many_runs_the_printed_number_keeps_its_own_error():
    """A hundred times the runs, a tenth of the error: what is left is 2 times the error of the paper's 1000 runs."""
    one = Measurement(values=(0.3,), errors=(0.0015,), runs=100_000)
    assert one.margin(1000) == pytest.approx(0.02 + 2 * np.hypot(0.0015, 0.015))


def test_a_number_between_two_draws_agrees():
    """An implementation that compares with the mean alone fails: it lies .2 away."""
    rows = distance_rows("figure1_left", draws=2)
    rows = raised(raised(rows, 0.5, lambda row: row.draw), -0.1, lambda row: not row.draw)
    found = outcome(PARTS["figure1_left"], rows)
    assert found.agreement(OPTIMUM).agree == 15
    ours = found.points[0][0].ours[OPTIMUM]
    assert (ours.draws, ours.high - ours.low) == (2, pytest.approx(0.61))
    assert ours.values == pytest.approx((ours.low, ours.high))  # in the order of draws


def test_the_mean_of_independent_draws_has_a_smaller_error_but_the_margin_has_not():
    four = Measurement(values=(0.30, 0.31, 0.29, 0.30), errors=(0.02,) * 4, runs=1000)
    assert (four.error, four.noise, four.mean_error) == pytest.approx((0.02, 0.01, 0.01))
    assert four.margin(1000) == pytest.approx(0.02 + 2 * 2**0.5 * 0.02)


def test_margins_are_wide_when_they_exceed_half_the_printed_numbers():
    """Printed distances of Figure 1, left, have a median of about .36: .02 + 2 sqrt(2) e passes .18 at e = .057."""
    value = np.median([v for values in PRINTED["figure1_left"].values() for v in values.values()])
    limit = (value / 2 - 0.02) / (2 * 2**0.5)
    for factor, wide in ((0.99, False), (1.01, True)):
        found = outcome(PARTS["figure1_left"], distance_rows("figure1_left", error=factor * limit))
        assert found.agreement(OPTIMUM).wide is wide


@pytest.mark.parametrize(("wrong", "reproduces"), [(1, True), (2, False)])
def test_nine_tenths_of_the_points_must_agree(wrong, reproduces):
    """Of 15 points 14 are enough (93 %), 13 are not (87 %)."""
    rows = [row for row in distance_rows("figure1_left") if row.reading == CODED]
    found = outcome(PARTS["figure1_left"], raised(rows[:wrong], 0.5) + rows[wrong:])
    assert found.agreement(CODED).reproduces is reproduces
    assert found.verdict is (ResultVerdict.AS_CODED if reproduces else ResultVerdict.NOT_REPRODUCED)


@pytest.mark.parametrize(
    ("part", "draws", "wrong", "verdict", "reading"),
    [
        ("figure2_phase", 1, 0.05, ResultVerdict.AS_CODED, CODED),
        ("figure2_phase", 1, 0.2, ResultVerdict.LEFT_OPEN, CODED),
        (
            "figure2_phase",
            1,
            0.6,
            ResultVerdict.NOT_REPRODUCED,
            None,
        ),  # half of the points or fewer: no draw excuses that
        ("figure2_phase", 2, 0.2, ResultVerdict.NOT_REPRODUCED, None),  # the clients were drawn more than once
        ("figure1_left", 1, 0.2, ResultVerdict.NOT_REPRODUCED, None),  # all points share their clients
    ],
)
def test_what_one_draw_of_each_points_clients_leaves_open(part, draws, wrong, verdict, reading):
    rows = distance_rows(part, lambda reading, x, value: value if reading == CODED else value + 0.5, draws)
    places = sorted({(row.curve, row.x) for row in rows})
    off = set(places[: round(wrong * len(places))])
    found = outcome(PARTS[part], raised(rows, 0.5, lambda row: (row.curve, row.x) in off))
    assert (found.verdict, found.reading) == (verdict, reading)


def test_a_thinned_grid_is_compared_where_it_was_computed():
    rows = [row for row in distance_rows("figure1_right") if row.x in (10, 60, 100)]
    found = outcome(PARTS["figure1_right"], rows)
    assert (found.compared, found.n_printed) == (9, 18)
    assert found.verdict is ResultVerdict.REPRODUCED


def test_the_two_panels_of_figure_4_are_judged_apart():
    left = with_estimates("figure4_left", {ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.0})
    right = with_estimates("figure4_right", {ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.5})
    found = [outcome(part, left + right) for part in catalogue()["figure4"].parts]
    assert [(o.part.name, o.verdict) for o in found] == [
        ("figure4_left", ResultVerdict.AS_CODED),
        ("figure4_right", ResultVerdict.NOT_REPRODUCED),
    ]
    assert ResultVerdict.of_parts([o.verdict for o in found]) is ResultVerdict.IN_PART


def test_a_table_is_read_along_its_parameter_with_a_curve_for_each_n():
    points = outcome(PARTS["synchronisation"], distance_rows("synchronisation")).points[0]
    assert [point.x for point in points[:10]] == [float(tau) for tau in range(10, 101, 10)]
    assert {point.series for point in points} == {"100", "200", "300"}
    value = next(p.printed for p in points if (p.series, p.x) == ("200", 30.0))
    assert value == PRINTED["synchronisation"]["tau=30"]["200"]


def test_gaps_that_the_paper_does_not_print_are_shown_and_not_compared():
    gaps = {"Aggr-GA": 0.2, "Client-GA": 0.3, "f-CLT": 1.5}
    rows = quantile_rows("ablation_tau", "tau", (5, 50), gaps)
    found = outcome(catalogue()["ablation_tau"].part, measured(rows, Q))
    points = found.points[0]
    assert len(points) == 6
    assert {p.x for p in points if p.printed is None} == {50.0}
    assert (found.compared, found.n_printed) == (3, 9)
    assert {a.reading for a in found.agreements} == {ZERO, OPTIMUM}


def test_every_printed_number_is_in_its_module():
    """A number mistyped, or a coordinate misread, would change the comparison without a word."""
    parts = [part for one in catalogue().values() if one.quick and one.name != "figure3_qq" for part in parts_of(one)]
    for part in parts:
        found = {}
        for panel in part.panels:
            for (series, x), value in panel.printed_points.items():
                place = {panel.by: series, panel.across: f"{x:g}"}
                place |= {} if panel.only is None else {panel.only[0]: f"{panel.only[1]:g}"}
                found[frozenset(place.items())] = value
        column = next(name for name in ("K", "n", "approximation") if name in dict(next(iter(found))))
        expected = {
            frozenset([*(tuple(pair.split("=")) for pair in curve.split()), (column, x)]): value
            for curve, values in PRINTED[part.name].items()
            for x, value in values.items()
        }
        assert found == expected
    assert {part.name for part in parts} == {name for name in PRINTED if not name.startswith("attack")}


def test_every_part_has_reasons():
    for result in catalogue().values():
        for part in parts_of(result) if result.quick and result.name != "figure3_qq" else ():
            assert part.reason
            assert part.why


def test_no_rows_of_other_results_are_mixed_in():
    found = outcome(PARTS["heterogeneity"], rows_of("heterogeneity") + rows_of("connection"))
    assert len(found.points[0]) == 15


def test_a_missing_floor_stays_missing():
    found = outcome(catalogue()["ablation_tau"].part, measured(rows_of("ablation_tau"), Q))
    assert {ours.floor for point in found.points[0] for ours in point.ours.values()} == {None}
