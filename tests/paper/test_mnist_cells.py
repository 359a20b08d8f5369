"""The MNIST table: its runs, what its cells make of them, and monitors fed round by round beside these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.paper.attack import ALARM, DETECTED, ONSET, POWER, TRACE
from fedgauss.paper.attack_report import AttackReport
from fedgauss.paper.attack_rules import PAPER_RULES, RIGHT_TUNED, UNDER_FOUND
from fedgauss.paper.mnist import OPTIMUM_RULES, FlipAttack, PapersRuleCell, WarmUpCell
from fedgauss.paper.result import LARGE, PAPER, QUICK
from fedgauss.paper.results.attack_mnist import RESULT
from fedgauss.sweep.cell import cell_key

FLIP = FlipAttack()
CELL = WarmUpCell(result="attack_mnist", warm_up=100, replicates=6)
SHORT = FlipAttack(n_steps=30, onset=15)
PAPERS = PapersRuleCell(result="attack_mnist", warm_up=100, replicates=6, bootstraps=100, attack=SHORT)


@pytest.fixture(scope="module")
def clients():
    return FLIP.clients()


@pytest.fixture(scope="module")
def starts(clients):
    return FLIP.starts(clients, 100, CELL.replicates, CELL.seed)


@pytest.fixture(scope="module")
def rows():
    return CELL.run()


@pytest.fixture(scope="module")
def papers():
    return [PAPERS.run(), replace(PAPERS, warm_up=None).run()]


@pytest.mark.parametrize(("scale", "runs"), [(QUICK, 100), (PAPER, 100), (LARGE, 2000)])
def test_there_are_cells_at_every_scale(scale, runs):
    cells = RESULT.cells(scale)
    assert [cell.warm_up for cell in cells] == [100, 200, 500, 500, None]
    assert len({cell_key(cell) for cell in cells}) == len({str(cell) for cell in cells}) == 5
    assert all(cell.replicates == runs and cell.cost > 0 and cell.experiment == "attack_mnist" for cell in cells)


def test_a_warm_start_begins_at_zero_and_is_one_for_each_run(clients, starts):
    """Of 100 steps, beside a plain simulation of so many."""
    plain = fg.simulate(
        clients, fg.networks.ring(5), FLIP.steps, 100, sync_every=5, replicates=6, seed=1 << 20, start="zeros"
    )
    np.testing.assert_array_equal(starts, plain.last)
    assert len(np.unique(starts[:, 0])) == 6
    with pytest.raises(ValueError, match="multiple of 100"):
        FLIP.starts(clients, 150, 6, seed=1)


@pytest.mark.study
def test_honest_runs_are_those_of_honest_clients_and_attacked_ones_until_the_attack(clients, starts):
    honest, attacked = (FLIP.paths(clients, starts, flipping, seed=1, every=5) for flipping in (0, 3))
    plain = fg.simulate(
        clients,
        fg.networks.ring(5),
        FLIP.steps,
        200,
        sync_every=5,
        replicates=6,
        seed=(1 << 20) + 1,
        start=np.repeat(starts[:, None], 5, axis=1),
        observe=[fg.observers.path(5)],
    )
    np.testing.assert_array_equal(honest, plain.path)
    np.testing.assert_array_equal(honest[:, :10], attacked[:, :10])
    assert (np.abs(honest - attacked)[:, 10].max(axis=1) > 0).all()


def test_clients_of_each_run_report_their_own_matrices(clients, starts):
    one, other, again = (FLIP.reported(clients, 100, starts[r], 1, r) for r in (0, 1, 0))
    assert (one.n_warmup, one.dim, one.n_clients) == (100, 40, 5)
    assert one.dof is not None
    np.testing.assert_array_equal(one.noise_cov, again.noise_cov)
    assert not np.allclose(one.noise_cov, other.noise_cov, rtol=1e-3)
    exact = FLIP.known(clients, starts[0])
    assert np.trace(one.hessian) == pytest.approx(np.trace(exact.hessian), rel=0.05)
    assert np.trace(one.noise_cov) == pytest.approx(np.trace(exact.noise_cov), rel=0.1)


@pytest.mark.study
def test_the_first_runs_are_judged_as_by_monitors_and_the_others_with_their_thresholds(clients, starts):
    numbers, judged = CELL.judged()
    assert not numbers
    honest, attacked = (runs.alarms["innovation, warm-up 100"] for runs in judged)
    for alarms, flipping in ((honest, 0), (attacked, 3)):
        means = FLIP.paths(clients, starts, flipping, CELL.seed, every=5)
        limits = []
        for r, path in enumerate(means):
            lin = FLIP.reported(clients, 100, starts[r], CELL.seed, r)
            if r < 4:
                monitor = fg.Monitor(lin, FLIP.steps, 5, horizon=200, start=starts[r])
                limits.append(monitor.boundary)
                loud = next((v for v in map(monitor.update, path) if v.alarm), None)
                expected = (loud.step, loud.onset - 1) if loud else (0, 0)
            else:
                seen = fg.detect.runs.watch_runs(lin, FLIP.steps, path[None], 5, limits[r - 4], starts[r])
                expected = (seen.alarm_step[0], max(seen.alarm_onset[0] - 1, 0))
            assert (alarms.step[r], alarms.onset[r]) == expected
    assert (attacked.step > 50).sum() >= 4


@pytest.mark.study
def test_a_cell_is_the_same_each_time(rows):
    assert CELL.run() == rows


@pytest.mark.study
def test_rows_are_of_both_cases_and_of_one_attacked_run_over_time(rows):
    assert {row.rule for row in rows} == {"innovation, warm-up 100"}
    cases = {row.curve: (row.x, row.onset) for row in rows}
    assert cases == {"K0=0": (0, None), "K0=3": (3, 50)}
    assert {x for x, _ in cases.values()} == set(RESULT.part.panels[0].printed[DETECTED])
    trace = [row for row in rows if row.measure == TRACE]
    assert [row.step for row in trace] == list(range(5, 201, 5))
    assert {row.curve for row in trace} == {"K0=3"}
    (alarm,) = {row.alarm for row in trace}
    over = [row.step for row in trace if row.estimate > row.threshold]
    assert over[0] <= alarm


@pytest.mark.study
def test_the_papers_rule_from_both_starts(papers):
    warm, best = papers
    shares = [[row.rule for row in rows if (row.measure, row.x) == (DETECTED, 3)] for rows in papers]
    assert shares == [[rule for rule in PAPER_RULES if rule != UNDER_FOUND], list(OPTIMUM_RULES)]
    assert {row.rule for row in warm if row.measure == TRACE} == {RIGHT_TUNED}
    assert not any(row.measure == TRACE for row in best)
    assert sum(row.measure == "c" for row in warm) == sum(row.measure == "c" for row in best) == 3
    assert PAPERS.run() == warm


@pytest.mark.study
def test_the_papers_rule_takes_the_journey_of_honest_runs_for_an_attack(papers):
    """Whose chance is near 1: all of 6 runs after 30 steps. From the optimum there are false alarms at most."""
    report = AttackReport(RESULT, [row for rows in papers for row in rows])
    assert report.value(RIGHT_TUNED, 0, DETECTED).mean == 1.0
    assert report.value(f"{RIGHT_TUNED}, at optimum", 0, DETECTED).mean <= 0.5


@pytest.mark.study
def test_all_cells_together_are_a_table(rows, papers):
    report = AttackReport(RESULT, [row for part in (rows, *papers) for row in part])
    assert set(report.rules) <= {*RESULT.papers, *RESULT.others}
    assert len(report.rules) == 7
    assert (report.symbol, report.honest, report.attacked) == ("$K_0$", 0.0, [3.0])
    found = [report.value("innovation, warm-up 100", 3.0, measure) for measure in (DETECTED, POWER, *ONSET, *ALARM)]
    assert None not in found
