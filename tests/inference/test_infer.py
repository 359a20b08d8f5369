"""`infer`: estimates, errors and intervals from one pass, against exact covariances and slow twins."""

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.inference.accuracy import average_covariance, estimated_bias, last_covariance, predicted_coverage
from fedgauss.inference.between_clients import population
from fedgauss.inference.client_sums import ClientStatistics, unaligned
from fedgauss.inference.estimate import Estimate, Readout
from fedgauss.inference.methods import PATH_METHODS, bootstrap_deviations
from fedgauss.inference.pass_estimate import Request, estimate_from_pass
from fedgauss.inference.passes import Pass, StepPlan, run_given_steps, run_whitened, schedule
from fedgauss.inference.reference_laws import random_scaling_critical

K, D = 6, 3
BETA = np.array([1.0, -0.5, 0.25]) + 0.5 * np.random.default_rng(1).standard_normal((K, D))
RING = fg.networks.ring(K)
LINEAR, LOGISTIC = fg.problems.linear(BETA), fg.problems.logistic(BETA)
STEPS = fg.step_sizes.polynomial(0.3, 0.75)


def exact_pass(lin, eta, burn_in=0, matrix=None):
    """A pass whose clients know their Hessians and noise exactly."""
    known = ClientStatistics(lin.client_hessians[None], lin.client_noise_cov[None], *[np.zeros((1, K, D))] * 4, 1)
    p = (np.eye(D) if matrix is None else matrix)[None]
    return Pass(None, known, p, p, lin.hessian[None], StepPlan(eta, burn_in), lin.weights, np.zeros(D))


def path_estimates(n_steps, seed=0):
    """What `infer` makes of one run by random scaling and by batch means."""
    whole = run_given_steps(LINEAR, RING, STEPS, n_steps, 10, seed=seed, observe=tuple(PATH_METHODS.values()))
    busy, names = np.full(K, whole.clients.count), ("a", "b", "c")
    shown = Readout(np.eye(D), np.zeros(D))
    return {m: estimate_from_pass(whole, Request(m, 0.95, names, shown), RING, 10, busy) for m in PATH_METHODS}


def test_without_preconditioner_and_burn_in_the_covariances_are_those_of_the_theorems():
    lin = fg.linearize(LINEAR)
    whole = exact_pass(lin, STEPS.eta(300))
    np.testing.assert_allclose(average_covariance(whole)[0], fg.theory.average_covariance(lin, STEPS, 300) / 300)
    wanted = fg.theory.last_covariance(lin, STEPS, 300) / 300**0.75
    np.testing.assert_allclose(last_covariance(whole)[0], wanted)


def test_the_covariance_of_a_window_is_that_of_the_recursion():
    """Against the linear recursion written out: Y_t = (I - eta_t P A) Y_{t-1} + eta_t P W, averaged over the window."""
    lin = fg.linearize(fg.problems.linear(BETA, design_cov=np.diag([1.0, 3.0, 0.5])))
    p = np.linalg.inv(lin.hessian + 0.2)
    eta, m = STEPS.eta(60), 15
    weights = [np.zeros((D, D)) for _ in eta]  # what W_s adds to the sum over the window
    for s in range(60):
        carried = eta[s] * p
        for t in range(s, 60):
            if t > s:
                carried = (np.eye(D) - eta[t] * p @ lin.hessian) @ carried
            if t >= m:
                weights[s] = weights[s] + carried
    wanted = sum(w @ lin.noise_cov @ w.T for w in weights) / (60 - m) ** 2
    np.testing.assert_allclose(average_covariance(exact_pass(lin, eta, m, p))[0], wanted, rtol=1e-10)


def test_steps_never_exceed_one_over_d_plus_two():
    plan = schedule(1000, 5)
    assert plan.eta.max() <= 1 / 7 + 1e-12
    assert (plan.burn_in, plan.window) == (200, 800)


@pytest.mark.study
@pytest.mark.parametrize("problem", [LINEAR, LOGISTIC], ids=["linear", "logistic"])
def test_intervals_cover(problem):
    """300 runs of three coordinates: 900 intervals, of which 95 % +- 3.7 % is five standard errors if they were one."""
    optimum = fg.linearize(problem).optimum
    whole = run_whitened(problem, RING, 1500, 10, replicates=300, seed=2)
    errors = np.sqrt(np.einsum("rii->ri", average_covariance(whole)))
    covered = np.abs(whole.runs.average - optimum) < 1.96 * errors
    assert abs(covered.mean() - 0.95) < 0.037


@pytest.mark.study
def test_a_badly_scaled_problem_is_no_harder():
    """Covariates of scales 1 to 100: one pass of plain steps diverges or crawls, a whitened one covers."""
    scale = np.array([1.0, 10.0, 100.0])
    problem = fg.problems.linear(BETA / scale, design_cov=np.diag(scale**2))
    whole = run_whitened(problem, RING, 1500, 10, replicates=200, seed=2)
    errors = np.sqrt(np.einsum("rii->ri", average_covariance(whole)))
    covered = np.abs(whole.runs.average - fg.linearize(problem).optimum) < 1.96 * errors
    assert abs(covered.mean() - 0.95) < 0.045


@pytest.mark.study
def test_the_bootstrap_agrees_with_the_plugin_and_the_printed_one_fails():
    """Chains at their own iterates: errors within 30 % (200 chains: 5 % each). At the run's iterate: far too wide."""
    found = fg.infer_run(LINEAR, RING, n_steps=1000, sync_every=10, every=7)
    again = fg.infer_run(LINEAR, RING, n_steps=1000, sync_every=10, method="bootstrap")
    np.testing.assert_array_equal(again.params, found.params)
    np.testing.assert_allclose(again.std_errors, found.std_errors, rtol=0.3)
    whole = run_whitened(LINEAR, RING, 1000, 10)
    printed = bootstrap_deviations(LINEAR, RING, whole, 10, 200, at_the_run=True)
    assert np.all(printed.std(axis=0) > 8 * found.std_errors)


@pytest.mark.study
def test_the_bootstrap_is_no_wider_where_clients_differ():
    """Six runs of ten unlike clients: errors over the plug-in's, mean of 18, are within .08 of one (four errors, 1e-4).

    With multipliers on the whole gradient they are up to 1.22 times too large.
    """
    offsets = np.random.default_rng(5).standard_normal((10, 3))
    problem, ring, plan = fg.problems.linear(offsets), fg.networks.ring(10), {"n_steps": 2000, "sync_every": 10}
    ratios = [
        fg.infer_run(problem, ring, seed=seed, method="bootstrap", **plan).std_errors
        / fg.infer_run(problem, ring, seed=seed, every=7, **plan).std_errors
        for seed in range(6)
    ]
    assert abs(np.mean(ratios) - 1.0) < 0.08


@pytest.mark.study
def test_the_first_chain_is_the_run():
    whole = run_whitened(LOGISTIC, RING, 400, 10, replicates=3, seed=4)
    draws = bootstrap_deviations(LOGISTIC, RING, whole, 10, 64, seed=4, run=2)
    assert draws.shape == (64, D)
    near = np.sqrt(np.diag(average_covariance(whole)[2]))
    assert np.all(np.abs(draws.mean(axis=0)) < near)  # chains lie about the run that they belong to


def test_random_scaling_and_batch_means_are_their_definitions():
    path = fg.simulate(LINEAR, RING, STEPS, 50, sync_every=10, keep="path", seed=3).path[0].astype(float)
    found = {name: estimate.cov for name, estimate in path_estimates(50, seed=3).items()}
    s = np.arange(1, 51)
    gaps = s[:, None] * (np.cumsum(path, axis=0) / s[:, None] - path.mean(axis=0))
    np.testing.assert_allclose(found["random_scaling"], gaps.T @ gaps / 50**3, rtol=2e-3, atol=1e-6)
    ends = [1, 16, 50]
    sums = [path[a:b].sum(axis=0) - (b - a) * path.mean(axis=0) for a, b in zip([0, *ends], ends, strict=False)]
    np.testing.assert_allclose(found["batch_means"], sum(np.outer(v, v) for v in sums) / 50**2, rtol=2e-3, atol=1e-6)


@pytest.mark.study
def test_the_drift_diagnostic_sees_clients_that_are_apart():
    """Hessians that go with the optima, rare mixing: bias of the average, seen and corrected; 200 runs, fixed seed."""
    sizes = np.linspace(0.4, 2.0, K)
    order = np.argsort(BETA[:, 0])
    design = np.empty((K, D, D))
    design[order] = sizes[:, None, None] * np.eye(D)
    problem = fg.problems.linear(BETA + np.sort(BETA[:, :1], axis=0), design_cov=design)
    whole = run_whitened(problem, RING, 2000, 50, replicates=200, seed=5)
    truth = (whole.runs.average - fg.linearize(problem).optimum).mean(axis=0)
    seen = estimated_bias(whole).drift.value.mean(axis=0)
    error = np.sqrt(np.diag(average_covariance(whole).mean(axis=0)))
    assert np.abs(truth / error).max() > 0.5
    assert np.abs((truth - seen) / error).max() < 0.5 * np.abs(truth / error).max()


def test_the_start_diagnostic_sees_a_start_that_is_not_forgotten():
    far = np.full(D, 50.0)
    found = fg.infer_run(LINEAR, RING, fg.step_sizes.polynomial(0.05, 0.75), 400, 10, start=far, every=7)
    truth = (found.params - fg.linearize(LINEAR).optimum) / found.std_errors
    np.testing.assert_allclose(found.bias, truth, rtol=0.35)
    assert "the start is not forgotten" in found.notes[-1]


def test_predicted_coverage_without_bias_is_the_level():
    np.testing.assert_allclose(predicted_coverage(np.array([0.0, 1.0, -1.0]), 0.95), [0.95, 0.8299, 0.8299], atol=1e-3)


def test_results_follow_from_estimate_and_covariance():
    found = fg.infer(LINEAR, n_rows=600, names=["a", "b", "c"])
    assert not any("gradients: intervals" in note for note in found.notes)
    low, high = found.conf_int(0.9).T
    assert found.dof < K * 600
    np.testing.assert_allclose((high - low) / 2, stats.t.ppf(0.95, found.dof) * found.std_errors)
    np.testing.assert_allclose(found.p_values, 2 * stats.t.sf(np.abs(found.z_values), found.dof))
    one = found.contrast([1.0, -1.0, 0.0])
    assert one.params[0] == pytest.approx(found.params[0] - found.params[1])
    assert one.cov[0, 0] == pytest.approx(found.cov[0, 0] + found.cov[1, 1] - 2 * found.cov[0, 1])
    assert found.wald([1.0, 0.0, 0.0]).p_value == pytest.approx(found.p_values[0])
    set_ = found.ellipsoid()
    assert found.params in set_
    edge = found.params + np.sqrt(set_.radius2) * np.linalg.cholesky(found.cov)[:, 0]
    assert found.params + 0.99 * (edge - found.params) in set_
    assert found.params + 1.01 * (edge - found.params) not in set_
    wide = found.simultaneous()
    assert np.all(np.diff(wide, axis=1) > np.diff(found.conf_int(), axis=1))
    text = str(found)
    assert "plugin" in text
    assert "Heterogeneity test: chi2(15)" in text
    assert text.count("\n") > 10


@pytest.mark.study
def test_clients_that_differ_are_told_from_clients_that_do_not():
    """Equal clients: a p-value below 1e-4 would come once in 10,000. Unequal ones: far below."""
    alike = fg.problems.linear(np.tile(BETA[0], (K, 1)))
    assert fg.infer(alike, n_rows=3000).heterogeneity.p_value > 1e-4
    assert fg.infer(LINEAR, n_rows=3000).heterogeneity.p_value < 1e-6


def test_the_population_of_clients_has_wider_intervals():
    one, all_ = (fg.infer(LINEAR, n_rows=3000, target=t) for t in ("optimum", "population"))
    between = BETA.std(axis=0, ddof=1) / np.sqrt(K)
    np.testing.assert_allclose(all_.std_errors, between, rtol=0.25)
    assert np.all(all_.std_errors > 3 * one.std_errors)


def test_the_last_iterate_is_wider_than_the_average():
    average, last = (fg.infer_run(LINEAR, RING, n_steps=1500, sync_every=10, iterate=i) for i in ("average", "last"))
    assert np.all(last.std_errors > 1.2 * average.std_errors)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "jackknife"}, "method must be one of"),
        ({"level": 1.5}, "level must lie strictly between 0 and 1; got 1.5"),
        ({"method": "batch_means", "iterate": "last"}, "needs method='plugin' or 'bootstrap'"),
        ({"burn_in": 0.5}, "whitened steps have a fifth"),
        ({"largest_step": 0.0}, "largest_step must be greater than 0"),
        ({"steps": STEPS, "burn_in": 1.0}, r"share of the run in \[0, 1\); got 1"),
        ({"names": ["a"]}, "names must be 3, one for each parameter; got 1"),
        ({"method": "bootstrap", "bootstraps": 5}, "bootstraps must be at least 20; got 5"),
        ({"steps": fg.step_sizes.per_client([STEPS] * K), "every": 7}, "the same for all clients"),
        ({"steps": "fast"}, "step sizes must be an array"),
        ({"steps": STEPS, "largest_step": 0.1, "every": 7}, r"largest_step=0\.1 belongs to whitened steps"),
        ({"start": [1.0]}, "start must have shape"),
    ],
)
def test_bad_questions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fg.infer_run(LINEAR, RING, **{"n_steps": 100, "sync_every": 10} | options)


def test_a_network_is_for_runs():
    with pytest.raises(ValueError, match=r"infer takes no network; .* Use fg\.infer_run"):
        fg.infer(LINEAR, RING)


def test_chains_are_refused_on_networks_that_are_drawn():
    drawn = fg.networks.gossip_pairs(K)
    with pytest.raises(
        ValueError, match=r"whose chains would each draw links of their own, needs a network that stays"
    ):
        fg.infer_run(LINEAR, drawn, n_steps=400, sync_every=10, method="bootstrap")


@pytest.mark.study
def test_references_are_mixed_by_the_links_of_the_parameters():
    """With identical clients and no noise, references follow parameters whatever is drawn: no drift, exact estimate."""
    alike = fg.problems.linear(np.tile([1.0, -2.0, 0.5], (K, 1)), noise_var=1e-8)
    found = fg.infer_run(alike, fg.networks.failing(RING, 0.5), n_steps=1000, sync_every=10, every=1)
    np.testing.assert_allclose(found.params, [1.0, -2.0, 0.5], atol=1e-4)


def test_collinear_columns_are_refused():
    problem = fg.problems.from_arrays(
        np.ones((60, 2)), np.arange(60.0), np.arange(60) % 3, "linear", order="replacement"
    )
    with pytest.raises(
        ValueError, match="positive definite to infer; with columns scaled alike its eigenvalues go from 0 to 2"
    ):
        fg.infer(problem, n_rows=100)


def test_a_plain_pass_is_simulate():
    whole = run_given_steps(LINEAR, RING, STEPS, 50, 10, burn_in=20, seed=1)
    path = fg.simulate(LINEAR, RING, STEPS, 50, sync_every=10, seed=1, keep="path").path
    np.testing.assert_allclose(whole.runs.average[0], path[0, 20:].mean(axis=0), rtol=1e-5)


@pytest.mark.study
def test_the_diagnostic_keeps_quiet_where_clients_do_not_drift():
    """Equal Hessians: no D_3. Of 100 runs at most 16 may warn, where 5 should (binomial, false failure 1e-5).

    Without the noise of D_3 seven in ten would.
    """
    whole = run_whitened(LINEAR, RING, 500, 10, replicates=100, seed=6)
    drift = estimated_bias(whole).drift
    assert drift.sure.any(axis=1).sum() <= 16
    np.testing.assert_allclose(drift.value.std(axis=0), drift.errors.mean(axis=0), rtol=0.3)
    assert np.all(np.abs(drift.clear) <= np.abs(drift.value))


def test_random_scaling_has_joint_tests_of_its_own():
    found = path_estimates(600)["random_scaling"]
    single = found.wald([1.0, 0.0, 0.0])
    assert single.p_value == pytest.approx(found.p_values[0])
    assert 0.0 < found.wald().p_value < 0.05
    assert found.params in found.ellipsoid(0.5)
    # Of a standard Brownian motion the interval's quantile is 6.747 (Lee et al. 2022); ours comes from 20,000 paths.
    assert random_scaling_critical(0.95) ** 0.5 == pytest.approx(6.747, rel=0.02)
    assert "random scaling, 3 parameters" in str(found.wald())


def test_a_run_that_is_too_short_is_refused_by_one_rule():
    cases = (
        (None, {}, 30),
        (STEPS, {"burn_in": 0.9}, 30),
        (STEPS, {"every": 40}, 30),
        (None, {"every": 1}, 1),
    )
    for steps, options, n_steps in cases:
        with pytest.raises(ValueError, match=r"n_steps must be at least .* to infer 3 parameters with 6 clients"):
            fg.infer_run(LINEAR, RING, steps, n_steps, 10, **options)


def test_the_last_iterate_is_told_from_its_start():
    found = fg.infer_run(
        LINEAR, RING, fg.step_sizes.polynomial(0.01, 0.75), 300, 10, start=np.full(D, 1e3), iterate="last"
    )
    assert np.abs(found.bias).max() > 10.0
    assert "the start is not forgotten" in found.notes[-1]


def test_a_population_of_clients_has_tests_with_few_degrees_of_freedom():
    """K = 6: t(5) for single parameters, F(3, 3) for all three, and simultaneous intervals wider than single ones."""
    found = fg.infer(LINEAR, n_rows=1000, target="population")
    gap = found.params
    hotelling = gap @ np.linalg.solve(found.cov, gap)
    test = found.wald()
    assert test.statistic == pytest.approx(hotelling * 3 / 15)
    assert test.p_value == pytest.approx(stats.f.sf(test.statistic, 3, 3))
    single, joint = found.conf_int(), found.simultaneous()
    assert np.all(joint[:, 0] < single[:, 0])
    assert found.ellipsoid().radius2 == pytest.approx(stats.f.ppf(0.95, 3, 3) * 5.0)
    with pytest.raises(ValueError, match="target='population' has a covariance of its own"):
        fg.infer_run(LINEAR, RING, n_steps=1000, target="population", method="bootstrap")


@pytest.mark.parametrize("weights", [np.full(8, 1 / 8), np.arange(1.0, 9.0) / 36], ids=["equal", "unequal"])
def test_a_population_has_an_unbiased_covariance_whatever_the_weights(weights):
    """5,000 draws of eight clients' pulls: the mean of the estimated covariance is that of sum_k w_k p_k.

    Five standard errors of that mean, about 5 % (false failure 1e-6). The factor K / (K - 1) would be 13 % short with
    these unequal weights, and each interval with it.
    """
    rng = np.random.default_rng(0)
    places = rng.standard_normal((5000, 8, 1))
    truth = np.sum(weights**2)
    found = []
    for pulls in places:
        one, zero = np.ones((1, 8, 1, 1)), np.zeros((1, 8, 1))
        known = ClientStatistics(one, one, zero, pulls[None], zero, zero, 100)
        estimate = Estimate(np.zeros(1), np.ones((1, 1)), 0.95, "plugin", ("a",))
        found.append(population(estimate, known, weights, np.zeros(1), Readout(np.eye(1), np.zeros(1))))
    cov = np.array([each.cov[0, 0] for each in found])
    assert abs(cov.mean() - truth) < 5 * cov.std() / np.sqrt(len(cov))
    # The second moment fits Student's t: Var(cov) / E(cov)^2 = 2 / f.
    assert found[0].dof == pytest.approx(2 * cov.mean() ** 2 / cov.var(), rel=0.2)
    if weights[0] == weights[1]:
        assert found[0].dof == pytest.approx(7.0)


def test_joint_sets_of_the_bootstrap_know_how_many_chains_there_were():
    """Ideal draws, B = 40, d = 12: 2,000 ellipsoids cover .95 +- .02 (four standard errors); chi-squared covers .7."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        draws = rng.standard_normal((40, 12))
        names = tuple(map(str, range(12)))
        cov = draws.T @ draws / 40
        found = Estimate(rng.standard_normal(12), cov, 0.95, "bootstrap", names, deviations=draws)
        covered += np.zeros(12) in found.ellipsoid()
    assert abs(covered / 2000 - 0.95) < 0.02
    assert found.wald().dof_below == 29
    low, high = found.conf_int().T
    np.testing.assert_array_equal(found.p_values < 0.05, (low > 0) | (high < 0))
    few = Estimate(np.zeros(12), np.eye(12), 0.95, "bootstrap", names, deviations=draws[:10])
    with pytest.raises(ValueError, match=r"10 chains allow joint .* at most 10 parameters; 12 .* or more bootstraps"):
        few.ellipsoid()


@pytest.mark.parametrize(
    ("every", "sync_every", "expected"), [(7, 7, 8), (7, 21, 8), (7, 10, 7), (5, 10, 7), (1, 6, 1)]
)
def test_sums_see_every_place_in_a_round(every, sync_every, expected):
    assert unaligned(every, sync_every) == expected


def test_a_run_sums_up_at_steps_that_are_not_aligned_with_its_rounds():
    assert run_given_steps(LINEAR, RING, STEPS, 80, 7, every=7).clients.count == 80 // 8


def test_a_covariance_of_few_gradients_is_noted():
    short = fg.infer_run(LINEAR, RING, n_steps=105, sync_every=10, every=7)
    assert any("comes from 72 gradients" in note for note in short.notes)


def test_joint_statements_that_cannot_be_made_are_refused():
    found = fg.infer(LINEAR, n_rows=600)
    for matrix, message in (
        ([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], "not tied to each other"),
        ([1.0, 0.0], "matrix must have 3 columns"),
        ([0.0, 0.0, 0.0], "no row of zeros"),
    ):
        with pytest.raises(ValueError, match=message):
            found.wald(matrix)
    with pytest.raises(ValueError, match="value must be a number, or 3"):
        found.wald(value=[1.0, 2.0])
    many, zero = np.tile(np.eye(D), (1, 3, 1, 1)), np.zeros((1, 3, D))
    known = ClientStatistics(many, many, zero, BETA[None, :3], zero, zero, 100)
    few = population(found, known, np.full(3, 1 / 3), np.zeros(D), Readout(np.eye(D), np.zeros(D)))
    with pytest.raises(ValueError, match="3 clients allow joint statements about at most 2 parameters; 3 were asked"):
        few.wald()
