"""From rows to verdicts: the rule for one point, for a reading and for a result."""

import numpy as np
import pytest

from fedgauss.experiments.attack import attack_results
from fedgauss.experiments.explanations import EXPLANATIONS
from fedgauss.experiments.layouts import panels, printed, printed_points
from fedgauss.experiments.verdicts import CODED, OPTIMUM, ZERO, Estimate, outcomes
from reproduction_rows import RESULTS, distance_rows, quantile_rows, rows_of


def with_estimates(part, by_reading):
    """Rows whose estimate is the printed number plus what the reading adds to it."""
    return distance_rows(part, lambda reading, x, value: value + by_reading[reading])


@pytest.mark.parametrize(
    ("offsets", "verdict", "reading"),
    [
        ({ZERO: 0.5, OPTIMUM: 0.0, CODED: 0.0}, "reproduced", OPTIMUM),
        ({ZERO: 0.0, OPTIMUM: 0.5, CODED: 0.0}, "reproduced", ZERO),
        ({ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.0}, "reproduced as coded", CODED),
        ({ZERO: 0.5, OPTIMUM: 0.5, CODED: -0.5}, "not reproduced", None),
    ],
)
def test_the_text_comes_before_the_programs(offsets, verdict, reading):
    (outcome,) = outcomes("figure1_left", with_estimates("figure1_left", offsets))
    assert (outcome.verdict, outcome.reading) == (verdict, reading)
    for agreement in outcome.agreements:
        assert agreement.rms == pytest.approx(abs(offsets[agreement.reading]))
        assert agreement.compared == 15


def test_the_margin_is_that_of_the_rule():
    """As many runs as the paper: .02 + 2 sqrt(2) e. A margin with sqrt(2) left out, or without .02, fails."""
    one = Estimate(values=(0.3,), errors=(0.01,), runs=1000)
    margin = 0.02 + 2 * 2**0.5 * 0.01
    assert one.margin(1000) == pytest.approx(margin)
    assert one.agrees(0.3 + 0.999 * margin, 1000)
    assert one.agrees(0.3 - 0.999 * margin, 1000)
    assert not one.agrees(0.3 + 1.001 * margin, 1000)
    assert not one.agrees(0.3 - 1.001 * margin, 1000)


def test_of_steps_the_slack_is_a_part_of_the_run():
    """In a run of 500 steps, 10 steps; .02 steps, or .02 of the value, fail."""
    one = Estimate(values=(300.0,), errors=(1.0,), runs=1000, unit=500.0)
    assert one.margin(1000) == pytest.approx(10.0 + 2 * 2**0.5)


def test_with_many_runs_the_printed_number_keeps_its_own_error():
    """A hundred times the runs, a tenth of the error: what is left is 2 times the error of the paper's 1000 runs."""
    one = Estimate(values=(0.3,), errors=(0.0015,), runs=100_000)
    assert one.margin(1000) == pytest.approx(0.02 + 2 * np.hypot(0.0015, 0.015))


def test_a_number_between_two_draws_agrees():
    """An implementation that compares with the mean alone fails: it lies .2 away."""
    rows = distance_rows("figure1_left", draws=2)
    for row in rows:
        row["estimate"] += 0.5 if row["draw"] else -0.1
    (outcome,) = outcomes("figure1_left", rows)
    assert outcome.agreement(OPTIMUM).agree == 15
    ours = outcome.points[0][0].ours[OPTIMUM]
    assert (ours.draws, ours.high - ours.low) == (2, pytest.approx(0.61))
    assert ours.values == pytest.approx((ours.low, ours.high))  # in the order of draws


def test_the_mean_of_independent_draws_has_a_smaller_error_but_the_margin_has_not():
    four = Estimate(values=(0.30, 0.31, 0.29, 0.30), errors=(0.02,) * 4, runs=1000)
    assert (four.error, four.noise, four.mean_error) == pytest.approx((0.02, 0.01, 0.01))
    assert four.margin(1000) == pytest.approx(0.02 + 2 * 2**0.5 * 0.02)


def test_margins_are_wide_when_they_exceed_half_the_printed_numbers():
    """Printed distances of Figure 1, left, have a median of about .36: .02 + 2 sqrt(2) e passes .18 at e = .057."""
    value = np.median([v for values in printed()["figure1_left"].values() for v in values.values()])
    limit = (value / 2 - 0.02) / (2 * 2**0.5)
    for factor, wide in ((0.99, False), (1.01, True)):
        (outcome,) = outcomes("figure1_left", distance_rows("figure1_left", error=factor * limit))
        assert outcome.agreement(OPTIMUM).wide is wide


@pytest.mark.parametrize(("wrong", "reproduces"), [(1, True), (2, False)])
def test_nine_tenths_of_the_points_must_agree(wrong, reproduces):
    """Of 15 points 14 are enough (93 %), 13 are not (87 %)."""
    rows = [row for row in distance_rows("figure1_left") if row["reading"] == CODED]
    for row in rows[:wrong]:
        row["estimate"] += 0.5
    (outcome,) = outcomes("figure1_left", rows)
    assert outcome.agreement(CODED).reproduces is reproduces
    assert outcome.verdict == ("reproduced as coded" if reproduces else "not reproduced")


@pytest.mark.parametrize(
    ("part", "draws", "wrong", "verdict", "reading"),
    [
        ("figure2_phase", 1, 0.05, "reproduced as coded", CODED),
        ("figure2_phase", 1, 0.2, "left open", CODED),
        ("figure2_phase", 1, 0.6, "not reproduced", None),  # half of the points or fewer: no draw excuses that
        ("figure2_phase", 2, 0.2, "not reproduced", None),  # the clients were drawn more than once
        ("figure1_left", 1, 0.2, "not reproduced", None),  # all points share their clients
    ],
)
def test_what_one_draw_of_each_points_clients_leaves_open(part, draws, wrong, verdict, reading):
    rows = distance_rows(part, lambda reading, x, value: value if reading == CODED else value + 0.5, draws)
    places = sorted({(row["curve"], row["x"]) for row in rows})
    off = set(places[: round(wrong * len(places))])
    for row in rows:
        row["estimate"] += 0.5 * ((row["curve"], row["x"]) in off)
    (outcome,) = outcomes(part, rows)
    assert (outcome.verdict, outcome.reading) == (verdict, reading)


def test_a_thinned_grid_is_compared_where_it_was_computed():
    rows = [row for row in distance_rows("figure1_right") if row["x"] in (10, 60, 100)]
    (outcome,) = outcomes("figure1_right", rows)
    assert (outcome.compared, outcome.n_printed) == (9, 18)
    assert outcome.verdict == "reproduced"


def test_the_two_panels_of_figure_4_are_judged_apart():
    left = with_estimates("figure4_left", {ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.0})
    right = with_estimates("figure4_right", {ZERO: 0.5, OPTIMUM: 0.5, CODED: 0.5})
    found = outcomes("figure4", left + right)
    assert [(o.part, o.verdict) for o in found] == [
        ("figure4_left", "reproduced as coded"),
        ("figure4_right", "not reproduced"),
    ]


def test_a_table_is_read_along_its_parameter_with_a_curve_for_each_n():
    (outcome,) = outcomes("synchronisation", distance_rows("synchronisation"))
    points = outcome.points[0]
    assert [point.x for point in points[:10]] == [float(tau) for tau in range(10, 101, 10)]
    assert {point.series for point in points} == {"100", "200", "300"}
    value = next(p.printed for p in points if (p.series, p.x) == ("200", 30.0))
    assert value == printed()["synchronisation"]["tau=30"]["200"]


def test_gaps_that_the_paper_does_not_print_are_shown_and_not_compared():
    gaps = {"Aggr-GA": 0.2, "Client-GA": 0.3, "f-CLT": 1.5}
    (outcome,) = outcomes("ablation_tau", quantile_rows("ablation_tau", ("tau=5", "tau=50"), gaps))
    points = outcome.points[0]
    assert len(points) == 6
    assert {p.x for p in points if p.printed is None} == {50.0}
    assert (outcome.compared, outcome.n_printed) == (3, 9)
    assert {a.reading for a in outcome.agreements} == {ZERO, OPTIMUM}


def test_every_printed_number_lies_on_one_panel():
    """A coordinate misread in a layout would drop numbers from the comparison without a word."""
    for result in [*RESULTS, "ablation_tau", "ablation_gamma"]:
        for part in {panel.part for panel in panels(result)}:
            placed = [place for p in panels(result) if p.part == part for place in printed_points(p).items()]
            numbers = [value for values in printed()[part].values() for value in values.values()]
            assert sorted(value for _, value in placed) == sorted(numbers)
    laid_out = {part for result in [*RESULTS, "ablation_tau", "ablation_gamma"] for part in parts(result)}
    assert laid_out | set(attack_results()) == set(printed())


def test_every_part_has_an_explanation():
    assert set(EXPLANATIONS) == set(printed()) | {"figure3_qq"}


def test_no_rows_of_other_results_are_mixed_in():
    (outcome,) = outcomes("heterogeneity", rows_of("heterogeneity") + rows_of("connection"))
    assert len(outcome.points[0]) == 15


def parts(result):
    return [panel.part for panel in panels(result)]
