"""Which way a distance moves along its axis."""

import numpy as np
import pytest

from fedgauss.paper.judging import Measurement, Panel, Point
from fedgauss.paper.readings import CODED
from fedgauss.paper.trends import exponent, trend

N = (100.0, 200.0, 300.0, 400.0, 500.0)
ALONG_N = Panel("n", "tau", "falls")
SIZES = (10, 20, 40, 60, 80, 100)
ALONG_K = Panel("K", "tau", "falls, then rises")


def points(values, error=0.01, x=N, series="10", offsets=(0.0,), floor=0.0):
    """A curve; in each draw it lies higher by an offset, or by as many offsets as there are points."""
    return [
        Point(
            series, place, None, {CODED: Measurement(tuple(v + o for o in shifts), (error,) * len(shifts), 1000, floor)}
        )
        for place, v, shifts in zip(
            x, values, np.broadcast_to(offsets, (len(values), np.shape(offsets)[-1])), strict=True
        )
    ]


def test_a_line_in_log_n_is_found_exactly():
    found = trend(ALONG_N, points([1.0 - 0.1 * np.log(n) for n in N]), CODED)
    assert found.change == pytest.approx(-0.1 * np.log(5))
    assert (found.direction, found.x[0], found.x[-1]) == ("falls", 100.0, 500.0)


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
    ("step", "direction"), [(0.0, "not detected"), (0.002, "not detected"), (0.02, "rises"), (-0.02, "falls")]
)
def test_a_trend_takes_more_than_two_errors(step, direction):
    assert trend(ALONG_N, points([0.3 + step * i for i in range(5)]), CODED).direction == direction


@pytest.mark.parametrize(
    ("values", "direction"),
    [
        ((0.18, 0.11, 0.05, 0.06, 0.12, 0.2), "falls, then rises"),
        ((0.05, 0.06, 0.07, 0.06, 0.07, 0.06), "not detected"),
        ((0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "rises"),
        ((0.2, 0.15, 0.12, 0.1, 0.08, 0.06), "falls"),
    ],
)
def test_a_turn_is_told_from_a_line(values, direction):
    found = trend(ALONG_K, points(values, x=SIZES, offsets=(0.0, 0.01)), CODED)
    assert found.direction == direction
    assert found.examines(ALONG_K)
    if direction == "falls, then rises":
        assert (found.x[2], min(found.means)) == (40, found.means[2]) == (40, pytest.approx(0.055))


def test_a_turn_is_not_examined_at_two_abscissae():
    found = trend(ALONG_K, points((0.2, 0.1), x=(10, 100), offsets=(0.0, 0.01)), CODED)
    assert not found.examines(ALONG_K)
    assert trend(ALONG_N, points((0.2, 0.1), x=(100, 500)), CODED).examines(ALONG_N)


def test_one_draw_of_new_clients_claims_no_direction():
    """However steep: along K each point has clients of its own. Along n they stay the same."""
    steep = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1)
    assert trend(ALONG_K, points(steep, x=SIZES), CODED).direction == "one draw"
    assert trend(ALONG_N, points(steep, x=SIZES), CODED).direction == "falls"


def test_draws_of_the_clients_count():
    """Draws that lie apart as a whole change no slope; draws whose slopes differ hide a fall of the same mean."""
    values = (0.30, 0.28, 0.25, 0.22, 0.20)
    shifted = trend(ALONG_N, points(values, offsets=(-0.2, -0.1, 0.1, 0.2)), CODED)
    tilt = np.outer(np.linspace(-1.0, 1.0, 5), (-0.2, -0.1, 0.1, 0.2))
    tilted = trend(ALONG_N, points(values, offsets=tilt), CODED)
    assert (shifted.direction, tilted.direction) == ("falls", "not detected")
    assert shifted.change == pytest.approx(tilted.change)


def test_independent_draws_make_the_error_smaller():
    one, four = (trend(ALONG_N, points(np.zeros(5), offsets=np.zeros(count)), CODED) for count in (1, 4))
    assert four.error == pytest.approx(one.error / 2)


@pytest.mark.study
@pytest.mark.parametrize(("draws", "panels"), [(2, 600), (4, 1500), (8, 4000)])
def test_few_draws_seldom_make_a_trend(draws, panels):
    """Slopes that are chance alone pass two errors in 5 % of panels; without Student's quantile in 30, 14, 9 %.

    With little Monte-Carlo error the spread decides. Five standard errors of 5 % to either side: the fewer draws, the
    larger the mistake, and the fewer panels show it.
    """
    rng = np.random.default_rng(6)
    tilts = rng.standard_normal((panels, draws)) * 0.1
    t = np.log(N) - np.mean(np.log(N))
    wrong = [trend(ALONG_N, points(np.zeros(5), 1e-6, offsets=np.outer(t, tilt)), CODED).direction for tilt in tilts]
    most = 5.0 * np.sqrt(0.05 * 0.95 / panels)
    assert 1.0 - wrong.count("not detected") / panels == pytest.approx(0.05, abs=most)


def test_curves_that_part_are_not_averaged_away():
    falling, rising = points((0.5, 0.4, 0.3, 0.2, 0.1), series="0.85"), points((0.1, 0.2, 0.3, 0.4, 0.5), series="0.95")
    flat = points((0.3,) * 5, series="0.9")
    found = trend(ALONG_N, falling + flat + rising, CODED)
    assert (found.direction, found.by_curve) == ("differs", (("0.85", "falls"), ("0.95", "rises")))
    assert trend(ALONG_N, falling + flat, CODED).direction == "falls"


@pytest.mark.parametrize(("height", "direction"), [(0.039, "at floor"), (0.042, "not detected")])
def test_near_the_floor_runs_cannot_tell(height, direction):
    """A floor of .027: 1.5 of them are .0405."""
    assert trend(ALONG_N, points((height,) * 5, floor=0.027), CODED).direction == direction


def test_one_point_has_no_trend():
    assert trend(ALONG_N, points([0.3], x=(100.0,)), CODED) is None
    assert trend(ALONG_N, points([0.3, 0.2], x=(100.0, 200.0)), None) is None  # nothing printed


def test_an_exponent_is_found_on_logarithmic_scales():
    slope, error = exponent(points([0.02 * n**0.5 for n in N]), CODED)
    assert slope == pytest.approx(0.5)
    assert 0 < error < 0.1
