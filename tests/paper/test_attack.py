"""The attack table: what its cells compute, slowly and by hand, and which verdict follows from which rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attack_table_rows import attack_rows
from fedgauss.detect.eprocess import EProcess
from fedgauss.detect.monitor import Monitor
from fedgauss.detect.paper_rule import Alarms, Bootstrap, cross_validated_c
from fedgauss.paper.attack import ALARM, DELAY, DETECTED, EARLY, MISS, ONSET, POWER, PRINTED, alarm_measures
from fedgauss.paper.attack_report import AttackReport
from fedgauss.paper.attack_rules import (
    E_PROCESS,
    INNOVATION,
    OPEN_ENDED,
    OTHER_RULES,
    PAPER_RULES,
    RIGHT_TUNED,
    RIGHT_ZERO,
    STUDENTISED,
    UNDER_FOUND,
    UNDER_TUNED,
)
from fedgauss.paper.judging import ResultVerdict
from fedgauss.paper.result import LARGE, PAPER, QUICK
from fedgauss.paper.results.attack_shift import RESULT, ShiftAttack, ShiftCell
from fedgauss.sweep.cell import cell_key
from oracles.detection import block_covariance, block_innovation

SMALL = ShiftAttack(cases=(0.0, 2.5), traced=2.5, n_steps=120, onset=60, sync_every=5)
CELL = ShiftCell(result="attack_shift", rules="paper", replicates=12, bootstraps=100, attack=SMALL)
RULES = (*PAPER_RULES, *OTHER_RULES)
FAMILIES = {"paper": PAPER_RULES, "studentised": (STUDENTISED,), "innovation": (INNOVATION, OPEN_ENDED, E_PROCESS)}


def test_there_are_cells_at_every_scale():
    for scale, runs in ((QUICK, 400), (PAPER, 500), (LARGE, 6250)):
        cells = RESULT.cells(scale)
        assert {cell.rules for cell in cells} == set(FAMILIES)
        assert len({cell_key(cell) for cell in cells}) == 3
        assert all(cell.replicates == runs and cell.cost > 0 for cell in cells)
        assert list(cells[0].attack.cases) == list(RESULT.part.panels[0].printed[DETECTED])


@pytest.fixture(scope="module")
def found():
    """The rows of each family, from a few short runs."""
    return {name: replace(CELL, rules=name).run() for name in FAMILIES}


@pytest.mark.study
def test_a_cell_is_the_same_each_time(found):
    assert CELL.run() == found["paper"]


def test_each_family_brings_its_rules_and_shows_one_run(found):
    for name, rules in FAMILIES.items():
        assert tuple(dict.fromkeys(row.rule for row in found[name] if row.measure == DETECTED)) == rules
    shown = {row.rule for rows in found.values() for row in rows if row.measure == "trace"}
    assert shown == {RIGHT_TUNED, INNOVATION}


def test_runs_with_and_without_an_attack_are_one_until_it_starts():
    honest, attacked = (SMALL.paths(shift, 5, seed=1) for shift in (0.0, 2.5))
    np.testing.assert_array_equal(honest[:, : SMALL.onset], attacked[:, : SMALL.onset])
    assert (np.abs(honest - attacked)[:, SMALL.onset] > 0).all()


def test_the_table_by_slow_means(found):
    """Every rule on a dozen runs, with loops over t and s. Catches a shifted index, quantile, scale or round."""
    from fedgauss.problems.linearize import linearize

    lin = linearize(SMALL.clients())
    for shift in SMALL.cases:
        paths = SMALL.paths(shift, CELL.replicates, CELL.seed)
        alarms = slow_cusum_alarms(lin, paths) | slow_innovation_alarms(lin, paths)
        assert set(alarms) == set(RULES)
        for name, rules in FAMILIES.items():
            rows = [row for row in found[name] if row.x == shift]
            for rule in rules:
                ours = {row.measure: row.estimate for row in rows if row.rule == rule}
                check(ours, alarms[rule], shift)


def check(ours, alarms, shift):
    """`alarms` lists (T, s) of the runs that alarm."""
    t, s = np.array(alarms).reshape(-1, 2).T
    assert ours[DETECTED] == pytest.approx(len(t) / CELL.replicates)
    if len(t) > 1:
        expected = [(s.mean(), *np.percentile(s, [2.5, 97.5])), (t.mean(), *np.percentile(t, [2.5, 97.5]))]
        assert [ours[name] for name in ONSET] == pytest.approx(expected[0])
        assert [ours[name] for name in ALARM] == pytest.approx(expected[1])
    if shift:
        late = t > SMALL.onset
        assert ours[EARLY] == pytest.approx((~late).sum() / CELL.replicates)
        assert ours[POWER] == pytest.approx(late.sum() / CELL.replicates)
        if late.sum() > 1:
            assert ours[DELAY] == pytest.approx((t[late] - SMALL.onset).mean())
            assert ours[MISS] == pytest.approx(np.abs(s[late] - SMALL.onset).mean())


def slow_cusum(path):
    """R_t and its argmax, from the definition max_s s |Ybar_s - Ybar_t|."""
    means = np.cumsum(path, axis=0) / np.arange(1, len(path) + 1)[:, None]
    rows = []
    for t in range(1, len(path) + 1):
        gaps = np.arange(1, t + 1) * np.linalg.norm(means[:t] - means[t - 1], axis=1)
        rows.append((gaps.max(), int(gaps.argmax()) + 1))
    return rows


def slow_cusum_alarms(lin, paths):
    bootstrap = Bootstrap(lin, SMALL.steps, SMALL.n_steps, replicates=CELL.bootstraps).paths()
    table = np.array([[r for r, _ in slow_cusum(path)] for path in bootstrap])
    q = np.quantile(table, 0.95, axis=0)
    root, shrink = np.sqrt(SMALL.n_steps), SMALL.n_clients**-0.5
    limits = {
        UNDER_FOUND: shrink * q + 0.78 * root,
        UNDER_TUNED: shrink * q + cross_validated_c(table, 0.05, shrink) * root,
        RIGHT_TUNED: q + cross_validated_c(table, 0.05) * root,
        RIGHT_ZERO: q,
    }
    runs = [slow_cusum(path) for path in paths]
    alarms = {rule: [first(run, limit) for run in runs] for rule, limit in limits.items()}
    burnt = np.array([[r for r, _ in slow_cusum(path[20:])] for path in bootstrap])
    late = np.quantile(burnt[:, 19:], 0.95, axis=0)  # looks from step 40 on
    height = np.quantile((burnt[:, 19:] / late).max(axis=1), 0.95)
    limit = np.concatenate([np.full(39, np.inf), height * late])
    runs = [[(0.0, 0)] * 20 + [(r, s + 20) for r, s in slow_cusum(path[20:])] for path in paths]
    alarms[STUDENTISED] = [first(run, limit) for run in runs]
    return {rule: [one for one in listed if one] for rule, listed in alarms.items()}


def first(run, limit):
    """(T, s) of the first alarm, or nothing."""
    return next(((t, s) for t, ((r, s), top) in enumerate(zip(run, limit, strict=True), 1) if r > top), None)


def slow_innovation_alarms(lin, paths):
    """From monitors and e-processes that are fed one round after another."""
    tau, eta = SMALL.sync_every, SMALL.steps.eta(SMALL.n_steps)
    white = np.linalg.inv(np.linalg.cholesky(lin.noise_cov))  # an e-value does not change under rotations
    alarms = {INNOVATION: [], OPEN_ENDED: [], E_PROCESS: []}
    dropped = 4  # ceil(20 / tau) rounds
    for path in paths:
        y = path[tau - 1 :: tau]
        for rule, horizon in ((INNOVATION, SMALL.n_steps), (OPEN_ENDED, None)):
            monitor = Monitor(lin, SMALL.steps, tau, horizon=horizon)
            loud = next((v for v in map(monitor.update, y) if v.alarm), None)
            alarms[rule] += [(loud.step, loud.onset - 1)] if loud else []
        x, weights, bet = [], [], EProcess(2)
        for j in range(dropped, len(y)):
            steps = eta[j * tau : (j + 1) * tau]
            x.append(white @ block_innovation(lin.hessian, steps, y[j - 1], y[j]))
            weights.append(2.0 / np.trace(white @ block_covariance(lin.hessian, lin.noise_cov, steps) @ white.T))
            if bet.update(x[-1], weights[-1]).alarm:
                alarms[E_PROCESS].append(((j + 1) * tau, (dropped + likeliest(np.array(x), np.array(weights))) * tau))
                break
    return alarms


def likeliest(x, weights):
    """The s whose weighted means before and after differ most, in errors."""
    scores = []
    for s in range(1, len(x)):
        mass = weights[:s].sum() * weights[s:].sum() / weights.sum()
        gap = np.average(x[:s], axis=0, weights=weights[:s]) - np.average(x[s:], axis=0, weights=weights[s:])
        scores.append(mass**0.5 * np.linalg.norm(gap))
    return int(np.argmax(scores)) + 1


def test_measures_by_hand():
    """Four runs: none, one alarm too early, two after step 50."""
    alarms = Alarms(np.array([0, 40, 60, 90]), np.array([0, 30, 44, 58]))
    measures = alarm_measures(alarms, attacked_after=50)
    estimates = {measure: estimate for measure, (estimate, _) in measures.items()}
    assert estimates[DETECTED] == 0.75
    assert measures[DETECTED][1] == pytest.approx((0.75 * 0.25 / 4) ** 0.5)
    assert (estimates[ONSET[0]], estimates[ALARM[0]]) == (44.0, pytest.approx(190 / 3))  # the early one counts here
    assert (estimates[EARLY], estimates[POWER]) == (0.25, 0.5)
    assert (estimates[DELAY], estimates[MISS]) == (25.0, 7.0)  # and not here; misses do not cancel
    assert measures[DELAY][1] == pytest.approx(15.0)


def test_runs_without_an_alarm_have_no_means():
    none = Alarms(np.zeros(5, np.int64), np.zeros(5, np.int64))
    attacked = alarm_measures(none, 50)
    assert [(measure, estimate) for measure, (estimate, _) in attacked.items()] == [
        (DETECTED, 0.0),
        (EARLY, 0.0),
        (POWER, 0.0),
    ]
    assert list(alarm_measures(none, None)) == [DETECTED]


def test_an_error_of_a_percentage_point_is_that_of_more_such_runs():
    # The 97.5 % point of 400 uniform steps has a standard error near 500 sqrt(.975 .025 / 400) = 3.9; resampling finds
    # it within a factor of two. Catches the error of a mean (7.2), and one over too few runs.
    steps = np.random.default_rng(3).integers(1, 501, 400)
    _, error = alarm_measures(Alarms(steps, steps), None)[ALARM[2]]
    assert 2.0 < error < 7.0


def test_rows_say_which_rule_and_case_they_are_of(found):
    for name, rules in FAMILIES.items():
        rows = [row for row in found[name] if row.x is not None]
        assert {(row.rule, row.curve, row.x, row.onset) for row in rows if row.measure == DETECTED} == {
            (rule, *case) for rule in rules for case in (("mu=0", 0.0, None), ("mu=2.5", 2.5, 60))
        }
        assert {(row.result, row.n, row.K, row.replicates) for row in rows} == {("attack_shift", 120, 10, 12)}


@pytest.mark.parametrize(
    ("right", "verdict", "rule"),
    [
        (set(RULES), ResultVerdict.REPRODUCED, UNDER_TUNED),
        ({RIGHT_TUNED}, ResultVerdict.REPRODUCED, RIGHT_TUNED),
        ({UNDER_FOUND}, ResultVerdict.AS_CODED, UNDER_FOUND),
        ({INNOVATION, STUDENTISED, E_PROCESS}, ResultVerdict.NOT_REPRODUCED, None),  # these are not the paper's
    ],
)
def test_the_verdict_rests_on_the_papers_rules(right, verdict, rule):
    rows = attack_rows(lambda name: 0.0 if name in right else 0.1)
    outcome = AttackReport(RESULT, rows).outcome
    assert (outcome.verdict, outcome.reading) == (verdict, rule)
    assert [agreement.reading for agreement in outcome.agreements] == list(PAPER_RULES)
    for agreement in outcome.agreements:
        assert agreement.compared == outcome.n_printed == 43
        assert agreement.agree == (43 if agreement.reading in right else 0)
        assert agreement.rms == pytest.approx(0.0 if agreement.reading in right else 0.1)


def test_every_printed_number_has_its_point():
    outcome = AttackReport(RESULT, attack_rows()).outcome
    placed = [point.printed for point in outcome.points[0] if point.printed is not None]
    numbers = [value for values in RESULT.part.panels[0].printed.values() for value in values.values()]
    assert sorted(placed) == sorted(numbers)
    assert {point.series for point in outcome.points[0]} == set(PRINTED)


@pytest.mark.study
def test_the_base_setting_gives_what_was_measured_before():
    # 6,250 runs: false alarms .35 and .05, power at mu = .5 about .13 and .53 (2,000 to 4,000 earlier runs).
    # Bands are five errors of a difference of shares or more: 1e-6. Catches a wrong onset, scale or horizon.
    report = AttackReport(RESULT, [row for cell in RESULT.cells(LARGE) for row in cell.run()])

    def share(rule, x, measure):
        return report.value(rule, x, measure).mean

    print({rule: (share(rule, 0.0, DETECTED), share(rule, 0.5, POWER)) for rule in report.rules})
    assert 0.30 < share(RIGHT_ZERO, 0.0, DETECTED) < 0.40
    assert 0.03 < share(RIGHT_TUNED, 0.0, DETECTED) < 0.075
    assert 0.03 < share(STUDENTISED, 0.0, DETECTED) < 0.075
    assert share(INNOVATION, 0.0, DETECTED) < 0.06
    assert 0.46 < share(INNOVATION, 0.5, POWER) < 0.60
    assert share(RIGHT_TUNED, 0.5, POWER) < 0.22
