"""The results beyond the paper: what their cells compute, and that what they are said to show is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedgauss.paper.budget import AT_OPTIMUM, AT_ZERO, STAGES, BudgetCell, MomentsCell, gaussian_ball_distance
from fedgauss.paper.curves import Curve
from fedgauss.paper.result import LARGE, PAPER, QUICK
from fedgauss.paper.results import error_budget, phase_map, unequal_hessians
from fedgauss.paper.results.phase_map import PhaseCell, slope_on_log_n
from fedgauss.paper.results.unequal_hessians import HESSIANS, MeanCell
from fedgauss.sweep.cell import cell_key


def test_every_result_has_cells_at_every_scale():
    for result in (error_budget.RESULT, phase_map.RESULT, unequal_hessians.RESULT):
        counts = []
        for scale in (QUICK, PAPER, LARGE):
            cells = result.cells(scale)
            assert len({cell_key(cell) for cell in cells}) == len(cells) > 0
            assert all(cell.cost > 0 and cell.experiment == result.name for cell in cells)
            assert all(getattr(cell, "replicates", 0) <= 100_000 for cell in cells)
            counts.append(len(cells))
        assert counts == sorted(counts)


def test_permuted_hessians_are_the_same_ones_in_another_order():
    follow, permuted = (Curve(AT_OPTIMUM, 40, clients=clients, draw=3).problem() for clients in HESSIANS)
    h, g = follow.design_cov[:, 0, 0], permuted.design_cov[:, 0, 0]
    np.testing.assert_array_equal(np.sort(h), np.sort(g))
    np.testing.assert_array_equal(follow.coefficients, permuted.coefficients)
    np.testing.assert_array_equal(follow.noise_var, permuted.noise_var)
    assert stats.spearmanr(h, follow.coefficients[:, 0]).statistic == pytest.approx(1.0)
    assert abs(stats.spearmanr(g, follow.coefficients[:, 0]).statistic) < 0.5
    assert h.min() > 0.5
    assert h.max() < 1.5


@pytest.fixture(scope="module")
def budgets():
    """The same short runs from zero and from the optimum, and with Hessians that differ: rows by name."""
    cells = {
        "zero": BudgetCell("error_budget", "Figure 1, right", Curve(AT_ZERO, 5, sync_every=5), 60, 400),
        "optimum": BudgetCell("error_budget", "Figure 1, right", Curve(AT_OPTIMUM, 5, sync_every=5), 60, 400),
        "unequal": BudgetCell(
            "error_budget", "unequal Hessians", Curve(AT_OPTIMUM, 5, rho=0.5, clients=HESSIANS[0]), 60, 400
        ),
    }
    return {name: (cell, cell.run()) for name, cell in cells.items()}


def distances(rows, covariance="Sigma_n"):
    own = [row for row in rows if row.measure == "distance" and row.covariance == covariance]
    return {row.term: row.estimate for row in own}


def lengths(rows):
    return {row.term: row.rms for row in rows if row.measure == "length"}


@pytest.mark.study
def test_a_budget_is_the_same_each_time(budgets):
    cell, rows = budgets["zero"]
    assert cell.run() == rows
    assert list(distances(rows)) == list(STAGES)


def test_taking_out_the_start_brings_the_distance_down(budgets):
    # With all terms, a shift of several standard deviations; without D_1, what is left is near the start at zero's
    # extra noise. Repeats one draw: the gap between the two is twenty standard errors. It catches terms taken out with
    # the wrong sign or in the wrong order.
    found = distances(budgets["zero"][1])
    assert found["all"] > 0.8
    assert found["without D_1"] < 0.6
    assert found["W"] < found["without D_1"]


def test_what_is_left_of_all_terms_is_noise_of_the_right_size(budgets):
    # For a Gaussian law P(sqrt(R) D > 2.35) <= 2 exp(-2 2.35^2) = 3.2e-5, for each of two samples. It catches terms
    # left in W, and a root of Sigma_n that belongs to another matrix.
    for name in ("zero", "unequal"):
        assert distances(budgets[name][1])["W"] < 2.35 / 400**0.5


def test_random_effects_have_no_curvature_and_no_drift(budgets):
    for name in ("zero", "optimum"):
        found = lengths(budgets[name][1])
        assert found["D_2"] < 1e-3
        assert found["D_3"] < 1e-3
    assert lengths(budgets["optimum"][1])["D_1"] < 1e-5
    assert lengths(budgets["unequal"][1])["D_3"] > 0.2


def test_both_covariances_see_the_same_runs(budgets):
    # W has covariance Sigma_n, so against Sigma/K its distance is that between two Gaussian laws, up to noise: the
    # difference of two distances from one sample is within 2 * 2.35 / sqrt(R), with the chance above.
    from fedgauss.problems.linearize import linearize
    from fedgauss.theory.covariances import average_covariance, limit_covariance

    cell, rows = budgets["optimum"]
    lin = linearize(cell.curve.problem())
    finite = average_covariance(lin, cell.curve.steps, cell.n_steps)
    between = gaussian_ball_distance(np.zeros(2), finite, limit_covariance(lin))
    assert abs(distances(rows, "Sigma/K")["W"] - between) < 2 * 2.35 / 400**0.5


@pytest.mark.parametrize("ratio", [0.5, 0.9, 2.0, 5.0])
def test_balls_of_two_sizes_of_one_shape(ratio):
    # sup_x |exp(-x^2 / 2) - exp(-x^2 / (2 r))| is attained where both densities are equal.
    square = 2.0 * ratio * np.log(ratio) / (ratio - 1.0)
    expected = abs(np.exp(-square / 2) - np.exp(-square / (2 * ratio)))
    theory = np.array([[2.0, 0.7], [0.7, 1.0]])
    assert gaussian_ball_distance(np.zeros(2), ratio * theory, theory) == pytest.approx(expected, abs=2e-5)


def test_a_shifted_ball():
    shift = np.array([0.6, -0.8]) * 2.0
    x = np.linspace(0.0, 12.0, 20_001)
    expected = np.abs(stats.ncx2(2, 4.0).cdf(x**2) - stats.chi2(2).cdf(x**2)).max()
    assert gaussian_ball_distance(shift, np.eye(2), np.eye(2)) == pytest.approx(expected, abs=2e-5)


@pytest.fixture(scope="module")
def unequal_runs():
    """Averages of 20,000 runs, with the curve they come from and its linearisation."""
    from fedgauss.engine.simulate import simulate
    from fedgauss.problems.linearize import linearize

    curve = Curve(AT_OPTIMUM, 4, gamma=9.0, sync_every=5, rho=0.5, clients=HESSIANS[0])
    runs = simulate(
        curve.problem(),
        curve.network,
        curve.steps,
        30,
        sync_every=5,
        replicates=20_000,
        start="optimum",
        progress=False,
    )
    return curve, linearize(curve.problem()), runs.average.astype(float)


def test_exact_moments_are_those_of_runs(unequal_runs):
    # tr(Sigma_n^-1 Var) / 2, exact and from runs; beyond 4.5 errors: a chance of 7e-6. It catches a start, a network or
    # a step index that the two do not share: mixing after every step would be 10 errors off.
    from fedgauss.theory.covariances import average_covariance

    curve, lin, average = unequal_runs
    z = 30**0.5 * (average - average.mean(axis=0))
    square = np.einsum("ri,ri->r", z, np.linalg.solve(average_covariance(lin, curve.steps, 30), z.T).T) / 2
    error = square.std() / len(z) ** 0.5
    ratio, other = (
        next(
            row.variance_ratio
            for row in MomentsCell("x", "unequal Hessians", one, (30,)).run()
            if row.covariance == "Sigma_n"
        )
        for one in (curve, replace(curve, sync_every=1))
    )
    assert abs(square.mean() - ratio) < 4.5 * error
    assert abs(square.mean() - other) > 9 * error


def test_the_exact_bias_is_that_of_runs(unequal_runs):
    # Two z-scores beyond 4.5: a chance of 1.4e-5. It catches Hessians dealt to other clients than their offsets.
    from fedgauss.theory.covariances import limit_covariance
    from fedgauss.theory.exact import mean_recursion

    curve, lin, average = unequal_runs
    exact = mean_recursion(curve.problem(), curve.network, curve.steps, 30, 5, lin.optimum)
    z = (average.mean(axis=0) - exact.mean_average) / (average.std(axis=0) / len(average) ** 0.5)
    assert np.abs(z).max() < 4.5
    (row,) = MeanCell("x", "unequal Hessians", curve, 30).run()
    bias = exact.mean_average - lin.optimum
    assert row.estimate == pytest.approx(np.sqrt(30 * bias @ np.linalg.solve(limit_covariance(lin), bias)))
    assert row.estimate > 0.1  # fifteen errors of the mean of runs


def exact_means(n_clients, clients, n_steps, draws):
    curves = [Curve(AT_OPTIMUM, n_clients, rho=0.5, clients=clients, draw=draw) for draw in range(draws)]
    return [row.estimate for curve in curves for row in MeanCell("x", "unequal Hessians", curve, n_steps).run()]


def test_the_bias_grows_only_if_hessians_follow_offsets():
    # Exact, so it cannot fail by chance. Four times the clients twice: sqrt(K) grows fourfold.
    growth = {}
    for clients in HESSIANS:
        few, many = (np.mean(exact_means(k, clients, 100, draws=8)) for k in (10, 160))
        growth[clients] = many / few
    assert 3.0 < growth[HESSIANS[0]] < 6.0
    assert growth[HESSIANS[1]] < 2.0


def test_the_slope_on_log_n_has_the_error_it_states():
    # 300 samples of correlated lengths: the spread of the slopes against the stated error. The spread itself has a
    # relative sd of 4 %, and the stated error is good to about 10 %; a factor outside 0.75 to 1.3 is 6 sd off. It
    # catches correlations between values of n that are left out, which here change the error by half.
    n, scales = np.array([100.0, 200.0, 400.0]), np.sqrt([1.9, 1.7, 1.5])
    rng = np.random.default_rng(5)
    slopes, errors = [], []
    for _ in range(300):
        steps = rng.standard_normal((3, 500, 2)) * np.sqrt([100.0, 100.0, 200.0])[:, None, None]
        walk = np.cumsum(steps, axis=0) / np.sqrt(n)[:, None, None]  # one run passes through every n
        slope, error = slope_on_log_n(n, scales[:, None] * np.linalg.norm(walk, axis=2))
        slopes.append(slope)
        errors.append(error)
    assert 0.75 < np.mean(errors) / np.std(slopes) < 1.3
    far = scales**2 / (scales**2 - 1.0) * np.log(scales**2)
    truth = np.exp(-far) * (scales**2 - 1.0)  # of two Gaussian laws whose variances have the ratio scales^2
    centred = np.log(n) - np.log(n).mean()
    expected = centred @ np.log(truth) / (centred @ centred)
    assert np.mean(slopes) == pytest.approx(expected, abs=5 * np.std(slopes) / 300**0.5 + 0.01)


def test_a_phase_cell_gives_points_bounds_and_slopes():
    curve = Curve(AT_OPTIMUM, 3, gamma=0.0, sync_every=5, eta0=0.5)
    cell = PhaseCell("phase_map", "phase map", curve, (0.75, 0.95), (20, 40), replicates=100, seed=3)
    rows = cell.run()
    assert [(r.beta, r.measure, r.n) for r in rows] == [
        (beta, *rest)
        for beta in (0.75, 0.95)
        for rest in (("distance", 20), ("distance", 40), ("slope on log n", None))
    ]
    assert all(row.printed > row.corrected > 0 for row in rows if row.measure == "distance")
    assert cell.run() == rows


@pytest.mark.study
def test_the_distance_hardly_depends_on_clients_from_the_optimum():
    # Exact moments over 16 draws of the clients: no noise but that of the draws. The mean slope of the distance on
    # log K is .0069 with a standard error of .0013: small, but not zero. Beyond 6 errors: a chance of 2.5e-5 by
    # Student's t. It catches runs that do not start at the optimum: from zero the slope is .06.
    clients = np.array([10, 40, 100])
    weights = np.log(clients) - np.log(clients).mean()
    slopes = []
    for draw in range(16):
        cells = [MomentsCell("x", "Figure 1, right", Curve(AT_OPTIMUM, int(k), draw=draw), (300,)) for k in clients]
        d = [row.estimate for cell in cells for row in cell.run() if row.covariance == "Sigma_n"]
        slopes.append(weights @ d / (weights @ weights))
    assert -0.001 < np.mean(slopes) < 0.0145


@pytest.mark.study
def test_both_panels_of_figure_2_agree_from_the_optimum():
    # A difference of two distances from 8,000 runs each has a standard error of .008; from 100,000 runs it is .004 and
    # .017, since averages over three clients are not quite normal. Beyond .02 and 4.2 errors: a chance of 5e-5 for two
    # values of beta. It catches a start away from the optimum, and any factor of K between Sigma/K and what is used.
    reading = replace(AT_OPTIMUM, noise_vars=(1.0, 4.0))
    found = {}
    for k in (3, 41):
        curve = Curve(reading, k, gamma=0.0, sync_every=5, eta0=0.5)
        rows = PhaseCell("x", "phase map", curve, (0.85, 0.95), (250, 500), 8000, seed=k).run()
        found[k] = [row for row in rows if row.n == 500]
    for few, many in zip(found[3], found[41], strict=True):
        assert abs(few.estimate - many.estimate) < 0.02 + 4.2 * np.hypot(few.error, many.error)


@pytest.mark.study
def test_the_bias_grows_like_the_root_of_the_number_of_clients():
    # Exact, over 16 draws of the clients: exponents .531 (.014) and .09 (.06). Beyond 6 errors: 2.5e-5 each.
    # It catches Hessians that follow nothing, or follow offsets in the control.
    clients = np.array([10, 40, 160, 640])
    weights = np.log(clients) - np.log(clients).mean()
    exponents = []
    for kind in HESSIANS:
        table = np.log([exact_means(int(k), kind, 300, draws=16) for k in clients])
        exponents.append(np.mean(weights @ table) / (weights @ weights))
    assert 0.44 < exponents[0] < 0.62
    assert -0.28 < exponents[1] < 0.44
