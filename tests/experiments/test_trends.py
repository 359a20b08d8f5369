"""Which way a distance moves along its axis."""

import numpy as np
import pytest

from fedgauss.experiments.layouts import Panel
from fedgauss.experiments.trends import exponent, trend
from fedgauss.experiments.verdicts import CODED, Estimate, Point

N = (100.0, 200.0, 300.0, 400.0, 500.0)
ALONG_N = Panel("figure1_left", "n", "n", "tau", "falls")
ALONG_K = Panel("figure1_right", "K", "K", "tau", "falls, then rises")


def points(values, error=0.01, x=N, series="10", **more):
    return [
        Point(series, place, None, {CODED: Estimate(v, error, v, v, more.get("draws", 1), 1000, **spread(more))})
        for place, v in zip(x, values, strict=True)
    ]


def spread(more):
    return {"spread": more["spread"]} if "spread" in more else {}


def test_a_line_in_log_n_is_found_exactly():
    found = trend(ALONG_N, points([1.0 - 0.1 * np.log(n) for n in N]), CODED)
    assert found.change == pytest.approx(-0.1 * np.log(5))
    assert (found.direction, found.x_first, found.x_last) == ("falls", 100.0, 500.0)


def test_the_error_of_the_change_is_its_standard_deviation():
    """Checked against 4,000 noisy curves: the ratio of standard deviations has a relative error of 1.1 %."""
    rng = np.random.default_rng(5)
    claimed = trend(ALONG_N, points(np.zeros(5)), CODED).error
    changes = [trend(ALONG_N, points(0.01 * rng.standard_normal(5)), CODED).change for _ in range(4000)]
    # Five standard errors: fails for one seed in two million.
    assert np.std(changes) == pytest.approx(claimed, rel=0.056)


def test_curves_do_not_make_the_error_smaller():
    """They share their random numbers: dividing by the root of their number would invent trends."""
    one = trend(ALONG_N, points(np.zeros(5)), CODED)
    three = trend(ALONG_N, [p for tau in ("10", "15", "20") for p in points(np.zeros(5), series=tau)], CODED)
    assert three.error == pytest.approx(one.error)


@pytest.mark.parametrize(
    ("step", "direction"), [(0.0, "no trend"), (0.002, "no trend"), (0.02, "rises"), (-0.02, "falls")]
)
def test_a_trend_takes_more_than_two_errors(step, direction):
    assert trend(ALONG_N, points([0.3 + step * i for i in range(5)]), CODED).direction == direction


@pytest.mark.parametrize(
    ("values", "direction"),
    [
        ((0.18, 0.11, 0.05, 0.06, 0.12, 0.2), "falls, then rises"),
        ((0.05, 0.06, 0.07, 0.06, 0.07, 0.06), "no trend"),
        ((0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "rises"),
        ((0.2, 0.15, 0.12, 0.1, 0.08, 0.06), "falls"),
    ],
)
def test_a_turn_is_told_from_a_line(values, direction):
    found = trend(ALONG_K, points(values, x=(10, 20, 40, 60, 80, 100)), CODED)
    assert found.direction == direction
    if direction == "falls, then rises":
        assert (found.x_lowest, found.lowest) == (40, pytest.approx(0.05))


def test_where_clients_are_drawn_anew_the_draw_counts():
    """A fall of .1 with an error of .01 is a trend along n; along K, draws that differ by .2 could have made it."""
    values = (0.30, 0.28, 0.25, 0.22, 0.20)
    along_n = trend(ALONG_N, points(values, draws=4, spread=0.2), CODED)
    along_k = trend(ALONG_K, points(values, draws=4, spread=0.2), CODED)
    assert (along_n.direction, along_k.direction) == ("falls", "no trend")


def test_one_point_has_no_trend():
    assert trend(ALONG_N, points([0.3], x=(100.0,)), CODED) is None
    assert trend(ALONG_N, points([0.3, 0.2], x=(100.0, 200.0)), None) is None  # nothing printed


def test_an_exponent_is_found_on_logarithmic_scales():
    slope, error = exponent(ALONG_N, points([0.02 * n**0.5 for n in N]), CODED)
    assert slope == pytest.approx(0.5)
    assert 0 < error < 0.1
