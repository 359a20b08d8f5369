"""Thresholds: the table against fresh simulation, its monotone directions, and what lies beyond it."""

import importlib.util
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedgauss.detect.thresholds import boundary, margin, null_maxima, tail_point, threshold_table


def mean_levels(*arguments):
    return boundary(*arguments).levels["mean"]


@pytest.mark.parametrize(
    ("dim", "tau", "horizon"), [(1, 20, 500), (2, 20, 500), (2, 5, 300), (5, 10, 1000), (4, 20, 500)]
)
def test_fresh_paths_exceed_the_table_as_often_as_it_says(dim, tau, horizon):
    """Level before the margin, on seeds the table never saw; d = 4 is interpolated.

    A binomial test of 4,000 paths against .05, widened to .04 and .06 for the table's own error: wrong failure
    below 1e-4. It catches a table for another tau or horizon (.03 or .08 and more).
    """
    limits = boundary(dim, tau, 0.05, horizon)
    maxima = null_maxima(dim, tau, [(0, horizon)], 4000, seed=99)
    over = np.any([maxima[name][0] > level[0] / margin(tau) for name, level in limits.levels.items()], axis=0)
    assert stats.binomtest(int(over.sum()), 4000, 0.06, alternative="greater").pvalue > 1e-5
    assert stats.binomtest(int(over.sum()), 4000, 0.04, alternative="less").pvalue > 1e-5


def test_known_values():
    """The mean channel at d = 2, n = 500 and the share .045, by other code: 10,000 paths at tau = 1, else 40,000.

    Their standard errors are .007 and .004, and the table's .009.
    """
    for tau, wanted in ((1, 4.565), (5, 4.394), (20, 4.025)):
        assert mean_levels(2, tau, 0.05, 500)[0] == pytest.approx(margin(tau) * wanted, abs=0.05)


def test_thresholds_grow_with_everything_that_makes_an_exceedance_likelier():
    horizons = [mean_levels(2, 20, 0.05, n)[0] for n in (100, 450, 500, 1000, 4000, 9000, 100_000)]
    assert np.all(np.diff(horizons) >= 0)
    levels = [boundary(2, 20, a, 500) for a in (0.2, 0.1, 0.05, 0.01, 1e-3, 1e-6)]
    assert np.all(np.diff([b.levels["mean"][0] for b in levels]) > 0)
    assert np.all(np.diff([b.levels["spread"][0] for b in levels]) > 0)
    assert np.all(np.diff([b.levels["quiet"][0] for b in levels]) > 0)
    dims = [mean_levels(d, 20, 0.05, 500)[0] for d in (1, 2, 3, 4, 5, 7, 10, 15, 20, 33, 40)]
    assert np.all(np.diff(dims) > 0)
    between, smaller = mean_levels(2, 7, 0.05, 500) / margin(7), mean_levels(2, 5, 0.05, 500) / margin(5)
    assert between == pytest.approx(smaller, rel=1e-12)  # the nearest smaller tau
    assert mean_levels(2, 200, 0.05, 1000) == mean_levels(2, 50, 0.05, 1000)


def test_spending_sums_to_alpha_and_epochs_follow_one_another():
    endless = boundary(2, 20, 0.05, None)
    np.testing.assert_array_equal(endless.ends[:4], [500, 1000, 2000, 4000])
    assert np.all(np.diff(endless.levels["mean"]) > 0)
    assert np.all(np.diff(endless.levels["spread"]) > 0)
    assert np.all(np.diff(endless.levels["quiet"]) > 0)
    assert endless.at(500) == tuple(level[0] for level in endless.levels.values())
    assert endless.at(501) == tuple(level[1] for level in endless.levels.values())
    # The first epoch has 6 / pi^2 of alpha, so its threshold lies between those of alpha and alpha / 2 over 500 steps.
    assert mean_levels(2, 20, 0.05, 500)[0] < endless.levels["mean"][0] < mean_levels(2, 20, 0.025, 500)[0]


def test_tails_beyond_the_simulation_err_upwards():
    """Anchored at .02 by 2,500 paths, the level at .001 must not lie below that of 200,000 paths (nor far above)."""
    maxima = np.sort(np.abs(np.random.default_rng(2).standard_normal((200_000, 20))).max(axis=1))
    tails = np.array([0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001])
    levels = np.quantile(maxima, 1 - tails)
    guess = tail_point(0.001, tails, levels, paths=2500, dof=1)
    assert levels[-1] - 0.02 < guess < levels[-1] + 0.35
    between = tail_point(0.03, tails, levels, paths=2500, dof=1)
    assert between == pytest.approx(np.quantile(maxima, 0.97), abs=0.02)


def test_more_dimensions_than_the_table_has_are_simulated():
    wide = boundary(45, 20, 0.05, 150)
    assert wide.levels["mean"][0] > mean_levels(40, 20, 0.05, 150)[0]
    again = boundary(45, 20, 0.05, 150)
    assert again.levels["mean"] == wide.levels["mean"]


def test_paths_do_not_depend_on_how_many_are_asked_for():
    few = null_maxima(2, 20, [(0, 200)], 30, seed=4, chunk=20)
    many = null_maxima(2, 20, [(0, 200)], 50, seed=4, chunk=20)
    np.testing.assert_array_equal(few["mean"], many["mean"][:, :30])


def test_the_script_made_the_table():
    """Cell (1, 50), recomputed with the script, is the row in the package: the table and the code belong together."""
    place = Path(__file__).parents[2] / "scripts" / "make_thresholds.py"
    specification = importlib.util.spec_from_file_location("make_thresholds", place)
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    table = threshold_table()
    i, j = table["dims"].index(1), table["taus"].index(50)
    chunks = [null_maxima(1, 50, script.STRETCHES, script.CHUNK, seed=[script.SEED, 1, 50, c]) for c in table["chunks"]]
    maxima = script.window_maxima({name: np.concatenate([c[name] for c in chunks], axis=1) for name in chunks[0]})
    levels = np.quantile(maxima["mean"], 1 - np.array(table["tails"]), axis=1).T
    np.testing.assert_allclose(table["mean"][i][j], levels, atol=6e-4)


@pytest.mark.study
@pytest.mark.parametrize("tau", [5, 20])
def test_without_a_horizon_gaussian_paths_alarm_in_at_most_alpha(tau):
    """5,000 steps, so two epochs past the simulated ones' anchors: at most 131 of 2,000, without the margin."""
    limits = boundary(2, tau, 0.05, None)
    ends = [0, *limits.ends[limits.ends < 5000], 5000]
    maxima = null_maxima(2, tau, list(pairwise(ends)), 2000, seed=7)
    n = len(ends) - 1
    over = np.any([maxima[name] > level[:n, None] / margin(tau) for name, level in limits.levels.items()], axis=0)
    assert over.any(axis=0).sum() <= 131


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 20, 2.0, 500), "alpha must lie strictly between 0 and 1; got 2"),
        ((2, 20, 0.05, -5), "horizon must be at least 60; got -5"),
        ((0, 20, 0.05, 500), "dim must be at least 1; got 0"),
        ((2, 0, 0.05, 500), "sync_every must be at least 1; got 0"),
    ],
)
def test_thresholds_of_nothing_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        boundary(*arguments)
