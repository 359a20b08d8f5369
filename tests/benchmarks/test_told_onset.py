"""Bounds on rules told the onset: against closed forms, brute force over two looks, other rules and simulation."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import ncx2

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from told_onset import Told, least_delay, least_level

pytestmark = pytest.mark.study
SIZE, NOISE = 2.6, 0.96
ANY = np.inf


def told(last, after=100, sizes=(SIZE,), grid=0.02):
    ends = np.arange(40, last, 20)
    return Told(ends, np.full(len(ends), NOISE**-2.0), after, sizes, last, grid)


def test_one_look_is_the_lemma_of_neyman_and_pearson():
    """z^2 is chi^2 with two degrees of freedom, centred in honest runs: the level fixes a quantile, that the power."""
    one = told(140)
    (n,) = one.information
    np.testing.assert_allclose(n, 4 / 5 / NOISE**2)
    for early in (0.3, 0.01, 0.0004):
        power = ncx2.sf(-2 * np.log(early), 2, SIZE**2 * n)
        np.testing.assert_allclose(least_delay(one, early)[0], 40 - 20 * power, atol=2e-3)


def of_two_looks(first, second, n, v, theta):
    """The chance of an alarm at the second of two looks under a shift along the first axis, by points of the disk."""
    node, weight = np.polynomial.legendre.leggauss(80)
    edge = first * np.sqrt(n[0])
    r, angle = edge * (node[:, None] + 1) / 2, 2 * np.pi * np.arange(96) / 96
    x, y = r * np.cos(angle), r * np.sin(angle)
    area = edge / 2 * weight[:, None] * r * 2 * np.pi / 96
    density = np.exp(-((x - n[0] * theta) ** 2 + y**2) / (2 * n[0])) / (2 * np.pi * n[0])
    return (area * density * ncx2.sf(second**2 * n[1] / v, 2, ((x + v * theta) ** 2 + y**2) / v)).sum()


def test_two_looks_are_those_of_brute_force():
    """The best of all pairs of thresholds with that level; no pair is better than the bound by more than the grid."""
    two, early = told(160), 0.002
    n, found = two.information, []
    v = n[1] - n[0]
    thresholds = np.arange(3.6, 5.0, 0.1)
    for first in thresholds:
        left = early - np.exp(-(first**2) / 2)
        second = brentq(lambda b, first=first, left=left: of_two_looks(first, b, n, v, 0.0) - left, 3.0, 8.0)
        at_once = ncx2.sf(first**2, 2, SIZE**2 * n[0])
        found.append(60 - 40 * at_once - 20 * of_two_looks(first, second, n, v, SIZE))
    bound, rule = least_delay(two, early)
    np.testing.assert_allclose(min(found), bound, atol=0.02)
    assert min(found) > bound - 0.005
    assert abs(thresholds[np.argmin(found)] - rule.bounds[0]) < 0.15


def test_half_the_grid_gives_the_same():
    bounds = [least_delay(told(260, grid=grid), 0.0004)[0] for grid in (0.04, 0.02, 0.01)]
    assert np.ptp(bounds) < 0.01


def played(rule, two, values):
    """Steps until the rule alarms."""
    over = two.evidence(values) > rule.bounds
    return np.append(two.ends[two.first :], two.last)[np.where(over.any(axis=1), over.argmax(axis=1), over.shape[1])]


def test_the_rule_does_in_runs_what_it_is_said_to_do():
    """200,000 runs with a mean of 100, and a shift in any direction within which round 260 lies half.

    Four standard errors, 6e-5 each. An information that forgot the unknown mean or the half round would fail by dozens.
    """
    rng, runs = np.random.default_rng(5), 200_000
    for after in (100, 250):
        problem = told(after + 160, after)
        _, rule = least_delay(problem, 0.01)
        noise = NOISE * rng.standard_normal((runs, len(problem.ends), 2)) + 100.0
        angle = rng.uniform(0, 2 * np.pi, runs)
        shift = SIZE * np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None] * problem.shares[:, None]
        level = (played(rule, problem, noise) < problem.last).mean()
        delay = played(rule, problem, noise + shift) - after
        assert abs(level - rule.alarms.sum()) < 4 * np.sqrt(0.01 / runs)
        assert abs(delay.mean() - rule.costs[0, 1]) < 4 * delay.std() / np.sqrt(runs)
        assert rule.alarms.sum() == pytest.approx(0.01, rel=0.1)


def test_no_other_rule_is_better_than_the_bound():
    problem, rng = told(260), np.random.default_rng(8)
    for _ in range(20):
        stops = problem.points > rng.uniform(3.0, 5.0, len(problem.information))[:, None]
        other = problem._played(0.0, stops)
        assert other.costs[0, 1] >= least_delay(problem, other.alarms.sum())[0] - 1e-6


def test_the_least_level_is_the_inverse_of_the_least_delay():
    problem = told(260)
    lower, reached = least_level([problem], [np.array([[ANY, least_delay(problem, 0.01)[0]]])])
    assert lower <= reached
    assert lower == pytest.approx(0.01, abs=2e-4)


def test_alarms_before_the_change_are_paid_for_in_other_columns():
    """Quick after step 100 needs alarms that miss a later change: apart, both figures need less than together."""
    early, late = told(500, 100), told(500, 250, (2 * SIZE,))
    quick, sure = np.array([[ANY, 105.0]]), np.array([[0.0004, ANY]])
    apart = [least_level([problem], [wanted])[1] for problem, wanted in ((early, quick), (late, sure))]
    assert least_level([early, late], [quick, sure])[0] > 2 * sum(apart)


def test_figures_that_nobody_can_have_cost_more_than_any_level():
    """In the first round after the change nobody is sure."""
    assert least_level([told(260)], [np.array([[ANY, 20.0]])])[0] > 0.3
