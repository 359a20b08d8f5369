"""Algorithm 2 as printed, rightly scaled and studentised: what each boundary is, and what it does over a whole run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.detect.cusum import cusum_paths
from fedgauss.detect.paper_rule import (
    Bootstrap,
    CusumRule,
    cross_validated_c,
    family_wise_rate,
    first_alarms,
    paper_boundary,
    studentised_boundary,
)

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
RING = fg.networks.ring(10)
SD = np.array([1.0, 2.0, 3.0, 4.0, 5.0] * 2)
OFFSETS = np.random.default_rng(1907).standard_normal((10, 2))
PROBLEM = fg.problems.linear(OFFSETS, SD**2)
LIN = fg.linearize(PROBLEM)
SHORT = Bootstrap(LIN, STEPS, 100, replicates=500)


def test_the_boundary_is_the_pointwise_quantile():
    table = cusum_paths(fg.approx.aggregated(LIN, STEPS, 100, replicates=500, seed=0, keep="path").path)[0]
    right, printed = paper_boundary(SHORT, c=0.2), paper_boundary(SHORT, c=0.2, scaling="printed")
    np.testing.assert_allclose(right.values, np.quantile(table, 0.95, axis=0) + 2.0, rtol=1e-12)
    np.testing.assert_allclose(printed.values - 2.0, (right.values - 2.0) / np.sqrt(10), rtol=1e-9, atol=1e-12)
    assert "as printed" in str(printed)
    assert str(right.family_wise) in str(right)


def test_tables_are_made_once_for_each_law():
    # A, V, eta and n decide; another object with the same numbers is served from memory, another V is not.
    elsewhere = replace(LIN, optimum=LIN.optimum + 7.0)
    again = Bootstrap(elsewhere, STEPS.eta(100), 100, replicates=500)
    assert again.cusum() is SHORT.cusum()
    assert not SHORT.cusum().flags.writeable
    other = Bootstrap(fg.linearize(fg.problems.linear(OFFSETS, 2 * SD**2)), STEPS, 100, replicates=500)
    assert other.cusum()[:, -1].mean() > 1.1 * SHORT.cusum()[:, -1].mean()


def test_client_ga_gives_the_same_law():
    # Two-sample Kolmogorov at 1e-5; catches a scale wrong by 20 %, such as a K in the wrong place.
    clients = Bootstrap(LIN, STEPS, 100, network=RING, sync_every=20, replicates=1000, seed=1)
    assert stats.ks_2samp(clients.cusum()[:, -1], SHORT.cusum()[:, -1]).pvalue > 1e-5


@pytest.mark.parametrize(
    ("every", "burn_in"), [(1, 20), (20, 30), *(pytest.param(n, 0, marks=pytest.mark.study) for n in (1, 20))]
)
def test_round_by_round_is_the_batch(every, burn_in):
    bootstrap = Bootstrap(LIN, STEPS, 200, every=every, burn_in=burn_in, replicates=300)
    boundary = studentised_boundary(bootstrap, first=40)
    paths = bootstrap.paths()[:20].copy()
    paths[::2, len(paths[0]) // 2 :] += 0.5  # half of the runs are attacked
    statistic, onset = bootstrap.watched(paths)
    batch = first_alarms(boundary, statistic, onset)
    assert 5 < (batch.step > 0).sum() < 20
    for path, step, where, expected in zip(paths, batch.step, batch.onset, statistic, strict=True):
        rule = CusumRule(boundary, 2)
        verdicts = [rule.update(y) for y in path]
        np.testing.assert_array_equal([v.statistic for v in verdicts], expected)
        assert (rule.first_alarm.step, rule.first_alarm.onset) == (step, where) if step else rule.first_alarm is None
    with pytest.raises(ValueError, match="rounds, and all were seen"):
        rule.update(path[0])


def test_rounds_before_the_first_look_never_alarm():
    bootstrap = Bootstrap(LIN, STEPS, 200, burn_in=20, replicates=300)
    values = studentised_boundary(bootstrap, first=40).values
    assert np.isinf(values[:39]).all()
    assert np.isfinite(values[39:]).all()
    rule = CusumRule(studentised_boundary(bootstrap, first=40), 2)
    assert not any(rule.update([1e6 * t, 0.0]).alarm for t in range(39))
    verdict = rule.update([0.0, 0.0])
    assert verdict.alarm
    assert "alarm" in str(verdict)
    assert verdict.onset > 20


def test_c_by_cross_validation_holds_on_runs_it_has_not_seen():
    # Fresh paths alarm in a share alpha, up to the error of c: 500 paths give c a standard error of .01 in level.
    # |share - .05| > .06 is 4.5 standard errors of the difference, 7e-6. Catches c tuned on its own quantiles with
    # few runs, and a sqrt(n) missing or extra (the share is then 0 or .25).
    boundary = paper_boundary(SHORT, c="cross-validated")
    assert abs(boundary.family_wise.share - 0.05) < 0.06
    assert boundary.c > 0.01
    printed = paper_boundary(SHORT, c="cross-validated", scaling="printed")
    assert abs(printed.family_wise.share - 0.05) < 0.06
    assert printed.c > 3 * boundary.c


def test_cross_validation_by_hand():
    # Two folds of constants: each is judged by the other's quantile.
    table = np.array([[1.0, 2.0], [3.0, 5.0], [1.0, 2.0], [3.0, 5.0]])
    c = cross_validated_c(table, alpha=0.5, folds=2)
    assert c == pytest.approx(np.quantile([-2.0, 3.0, -2.0, 3.0], 0.5) / np.sqrt(2))


def test_family_wise_rate_counts_runs_not_rounds():
    rate = family_wise_rate([1.0, 1.0, np.inf], [[2.0, 2.0, 0.0], [0.0, 0.0, 9.0], [0.0, 1.5, 0.0], [1.0, 1.0, 0.0]])
    assert rate.share == 0.5
    assert rate.standard_error == pytest.approx(0.25)


def test_the_pointwise_boundary_is_not_family_wise_and_the_studentised_one_is():
    # Over 100 steps c = 0 alarms in about .2 of honest runs; .05 is refused at 1e-4 (500 runs; power near 1).
    pointwise = paper_boundary(SHORT).family_wise.share
    assert stats.binomtest(round(500 * pointwise), 500, 0.05, alternative="greater").pvalue < 1e-4
    # The height h is itself a quantile of 500 paths: the difference of two shares, 4.5 standard errors, 7e-6.
    assert abs(studentised_boundary(SHORT, first=20).family_wise.share - 0.05) < 0.06


def test_bad_input():
    with pytest.raises(ValueError, match="alpha"):
        paper_boundary(SHORT, alpha=1.0)
    with pytest.raises(ValueError, match="printed"):
        paper_boundary(SHORT, scaling="print")
    with pytest.raises(ValueError, match="cross-validated"):
        paper_boundary(SHORT, c="crossvalidated")
    with pytest.raises(ValueError, match="first"):
        studentised_boundary(SHORT, first=101)
    with pytest.raises(ValueError, match="burn_in"):
        Bootstrap(LIN, STEPS, 100, burn_in=100)
    with pytest.raises(ValueError, match="replicates"):
        Bootstrap(LIN, STEPS, 100, replicates=10)


@pytest.mark.study
def test_base_setting_of_the_detection_study():
    # 4,000 honest federated runs of 500 steps, thresholds from 4,000 paths. Measured elsewhere: .35 for c = 0, .05
    # studentised. Each interval is five standard errors of a difference of shares wide or more: 1e-6. Catches a
    # bootstrap scaled wrong by 5 %, and a rule that is family-wise when it should not be.
    plain = Bootstrap(LIN, STEPS, 500, replicates=4000)
    burnt = Bootstrap(LIN, STEPS, 500, burn_in=20, replicates=4000)
    start = fg.near_optimum(0.25)
    runs = fg.simulate(
        PROBLEM, RING, STEPS, 500, sync_every=20, replicates=4000, seed=5, start=start, keep="path", progress=False
    )
    table, _ = plain.watched(runs.path.astype(float))
    pointwise = family_wise_rate(paper_boundary(plain).values, table)
    tuned = paper_boundary(plain, c="cross-validated")
    cross_validated = family_wise_rate(tuned.values, table)
    printed = family_wise_rate(paper_boundary(plain, scaling="printed").values, table)
    late, _ = burnt.watched(runs.path.astype(float))
    studentised = family_wise_rate(studentised_boundary(burnt).values, late)
    print(f"c = 0 {pointwise}, printed {printed}, c = {tuned.c:.3f} {cross_validated}, studentised {studentised}")
    assert 0.29 < pointwise.share < 0.41
    assert printed.share > 0.99
    assert abs(cross_validated.share - 0.05) < 0.025
    assert abs(studentised.share - 0.05) < 0.025
    assert 0.08 < tuned.c < 0.13
