"""A and V estimated in a warm-up: what clients report, what it is worth, and thresholds that allow for its error."""

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss._linearization import gradient_moments
from fedgauss.detect.innovations import Whitening, innovations, whitening
from fedgauss.detect.thresholds import boundary, estimated_whiteners

STEPS = fg.step_sizes.polynomial(0.3, 0.75)


def reports(n_clients=4, dim=3, **options):
    shapes = np.random.default_rng(1).standard_normal((n_clients, dim, dim))
    noise = shapes @ shapes.transpose(0, 2, 1) + np.eye(dim)
    return fg.linearization(np.repeat(np.eye(dim)[None], n_clients, axis=0), noise, **options)


def test_a_client_reports_the_covariance_of_its_gradients():
    g = np.random.default_rng(2).standard_normal((50, 3)) @ np.diag([1.0, 2.0, 3.0]) + 5.0
    np.testing.assert_allclose(gradient_moments(g)[0], np.cov(g.T), rtol=1e-12)


@pytest.mark.parametrize(("df", "expected"), [(None, 1.0), (1, 3.0)], ids=["Gaussian", "regression"])
def test_kurtosis_is_one_for_gaussian_gradients_and_three_for_a_regression(df, expected):
    """200,000 draws: a standard error of about .03 for the regression's, seven of which are allowed."""
    generator = np.random.default_rng(3)
    g = generator.standard_normal((200_000, 4)) @ np.diag([1.0, 1.0, 2.0, 4.0])
    if df:
        g *= generator.standard_normal((len(g), 1))
    assert gradient_moments(g)[1] == pytest.approx(expected, abs=0.2)


def test_gaussian_reports_of_one_client_have_as_many_degrees_of_freedom_as_a_sample():
    one = fg.linearization(np.eye(3)[None], np.diag([1.0, 2.0, 5.0])[None], n_warmup=40, kurtosis=[1.0])
    assert one.dof == pytest.approx(39.0)


def test_freedom_is_what_the_error_of_an_estimated_noise_covariance_shows():
    """The variance of V^ in one direction, over 4,000 warm-ups of unequal clients: 5 % error, a fifth allowed.

    Left out, the kurtosis would make it a factor of four.
    """
    generator = np.random.default_rng(4)
    dim, m, sizes, weights = 3, 60, np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.3, 0.2])
    x = generator.standard_normal((4000, m, 3, dim)) * generator.standard_normal((4000, m, 3, 1)) * sizes[:, None]
    centred = x - x.mean(axis=1, keepdims=True)
    estimates = np.einsum("rmki,rmkj,k->rij", centred, centred, weights**2) / (m - 1)
    truth = np.sum((weights * sizes) ** 2)
    noise = np.eye(dim) * (sizes**2)[:, None, None]
    lin = fg.linearization(np.stack([np.eye(dim)] * 3), noise, weights, n_warmup=m, kurtosis=[3.0] * 3)
    assert lin.dof == pytest.approx(2 * truth**2 / estimates[:, 0, 0].var(), rel=0.2)
    assert fg.linearization(np.stack([np.eye(dim)] * 3), noise, weights, n_warmup=m).dof == lin.dof


def test_freedom_is_that_of_the_direction_known_least():
    """Dimensions 2 to 5 are almost one client's noise: its rows alone speak for them, whatever dimension 1 is like."""
    noise = np.repeat(np.diag([100.0, 1e-4, 1e-4, 1e-4, 1e-4])[None], 10, axis=0)
    noise[0] = np.diag([100.0, 1.0, 1.0, 1.0, 1.0])
    lin = fg.linearization(np.repeat(np.eye(5)[None], 10, axis=0), noise, n_warmup=20, kurtosis=[1.0] * 10)
    assert lin.dof == pytest.approx(19.0, rel=0.01)


def test_short_samples_do_not_pass_for_light_tails():
    """Regressions in one dimension: the plain estimate is 1.5 at m = 20, where the truth is 3."""
    generator = np.random.default_rng(9)
    products = generator.standard_normal((500, 20, 1)) * generator.standard_normal((500, 20, 1))
    assert 2.3 < np.mean([gradient_moments(g)[1] for g in products]) < 3.2
    assert gradient_moments(generator.uniform(-1, 1, (4000, 1)))[1] == 1.0  # lighter than Gaussian counts as Gaussian


def test_exact_matrices_are_whitened_in_full_and_have_the_packages_thresholds():
    lin = reports()
    white = whitening(lin)
    np.testing.assert_allclose(white.matrix @ lin.noise_cov @ white.matrix, np.eye(3), atol=1e-12)
    assert white.in_table
    assert boundary(3, 20, 0.05, 500, 0, white).levels["mean"] == boundary(3, 20, 0.05, 500).levels["mean"]


@pytest.mark.parametrize(("dim", "ridge"), [(11, 0.0), (12, 0.1)])
def test_a_ridge_from_twelve_dimensions_on(dim, ridge):
    lin = reports(dim=dim, n_warmup=500)
    white = whitening(lin)
    assert white.ridge == ridge
    assert np.trace(white.matrix @ lin.noise_cov @ white.matrix) == pytest.approx(dim)
    plain = np.linalg.inv(lin.noise_cov + ridge * np.trace(lin.noise_cov) / dim * np.eye(dim))
    square = white.matrix @ white.matrix
    np.testing.assert_allclose(square / square[0, 0], plain / plain[0, 0], rtol=1e-9)


@pytest.mark.parametrize(
    ("kurtosis", "tempering"),
    [(None, 0.25), ([1.0] * 4, 0.0), ([1.1] * 4, 0.25 * 0.3 / 4), ([9.0] * 4, 0.25)],
)
def test_tempering_follows_the_reported_kurtosis(kurtosis, tempering):
    same = np.repeat(np.eye(2)[None], 4, axis=0)
    assert whitening(fg.linearization(same, same, n_warmup=99, kurtosis=kurtosis)).tempering == pytest.approx(tempering)


def test_too_short_a_warm_up_is_refused_with_the_number_needed():
    with pytest.raises(
        ValueError, match=r"degrees of freedom in 3 dimensions; a warm-up of 2 steps gives 1"
    ) as refused:
        fg.Monitor(reports(n_warmup=2), STEPS)
    needed = int(str(refused.value).split("Use a warm-up of ")[1].split()[0])
    assert whitening(reports(n_warmup=needed)).dof >= 6.0
    with pytest.raises(ValueError, match="degrees of freedom"):
        whitening(reports(n_warmup=needed - 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_warmup": 1}, "n_warmup"),
        ({"n_warmup": 50, "kurtosis": [0.0, 1.0, 1.0, 1.0]}, "kurtosis must be positive; got 0. Gaussian gradients"),
        ({"kurtosis": [1.0]}, "kurtosis"),
        ({"gradients": np.zeros((4, 3))}, "gradients must come with the optimum"),
    ],
)
def test_bad_reports_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        reports(**options)


def test_each_path_of_a_calibration_is_whitened_by_an_estimate_with_the_stated_freedom():
    """The eigenvalues of M V M, without a ridge, are those of an inverse Wishart matrix: KS, wrong once in 10,000."""
    spectrum, freedom = np.array([0.1, 1.0, 7.0]), 20.5
    g = estimated_whiteners(Whitening(np.eye(3), spectrum, 0.0, freedom, 0.35), 20_000, np.random.default_rng(5))
    ours = np.linalg.eigvalsh(g @ g.transpose(0, 2, 1))
    wishart = stats.wishart(df=freedom, scale=np.eye(3) / freedom).rvs(20_000, random_state=6)
    theirs = np.linalg.eigvalsh(np.linalg.inv(wishart))
    for i in range(3):
        assert stats.ks_2samp(ours[:, i], theirs[:, i]).pvalue > 1e-4 / 3


def test_without_a_ridge_the_eigenvalues_of_v_do_not_matter():
    """One law whatever V is, by a Kolmogorov-Smirnov test that fails wrongly once in 10,000."""
    lengths = []
    for spectrum in (np.ones(3), np.array([0.01, 1.0, 50.0])):
        white = Whitening(np.eye(3), spectrum, 0.0, 15.0, 0.35)
        generator = np.random.default_rng(7 + len(lengths))
        g = estimated_whiteners(white, 10_000, generator)
        lengths.append(np.linalg.norm(np.einsum("rij,rj->ri", g, generator.standard_normal((10_000, 3))), axis=1))
    assert stats.ks_2samp(*lengths).pvalue > 1e-4


def test_thresholds_grow_with_the_error_of_the_estimate_and_end_at_the_exact_ones():
    exact = boundary(2, 20, 0.05, 500)

    def with_freedom(freedom):
        white = Whitening(np.eye(2), np.ones(2), 0.0, freedom, 0.35)
        return boundary(2, 20, 0.05, 500, 0, white)

    assert with_freedom(8.0).levels["mean"][0] > with_freedom(40.0).levels["mean"][0] > 1.02 * exact.levels["mean"][0]
    assert with_freedom(1e9).levels["mean"][0] == pytest.approx(exact.levels["mean"][0], rel=0.03)  # 2,000 paths: 1 %
    endless = boundary(2, 20, 0.05, None, 0, Whitening(np.eye(2), np.ones(2), 0.0, 40.0, 0.35))
    assert np.all(np.diff(endless.levels["mean"]) > 0)
    assert np.isfinite(endless.levels["mean"]).all()


def test_a_monitor_with_estimates_is_saved_and_restored(tmp_path):
    problem = fg.problems.random_effects(n_clients=4, seed=1)
    lin = fg.warm_up(problem, 60, fg.linearize(problem).optimum)
    monitor = fg.Monitor(lin, STEPS, sync_every=20, horizon=100, start=lin.optimum)
    rows = lin.optimum + 0.05 * np.random.default_rng(8).standard_normal((6, 2)).cumsum(axis=0)
    for row in rows[:3]:
        monitor.update(row)
    monitor.save(tmp_path / "monitor.npz")
    again = fg.Monitor.load(tmp_path / "monitor.npz")
    for row in rows[3:]:
        assert str(again.update(row)) == str(monitor.update(row))


def test_warm_up_estimates_are_near_the_exact_ones():
    """20,000 draws: errors of at most 3 % of the largest entry were seen; a tenth is allowed."""
    problem = fg.problems.random_effects(n_clients=3, seed=1)
    exact = fg.linearize(problem)
    lin = fg.warm_up(problem, 20_000, exact.optimum, seed=1)
    for name in ("hessian", "noise_cov"):
        truth = getattr(exact, name)
        np.testing.assert_allclose(getattr(lin, name), truth, atol=0.1 * np.abs(truth).max())
    assert (lin.n_warmup, lin.kurtosis.shape) == (20_000, (3,))


def server_view(n_rounds=12, tau=20):
    problem = fg.problems.random_effects(n_clients=5, seed=1)
    ring = fg.networks.ring(5)
    runs = fg.simulate(problem, ring, STEPS, tau * n_rounds, sync_every=tau, start="optimum", keep="path")
    return fg.linearize(problem), runs.path[0, tau - 1 :: tau].astype(float)


def test_a_server_alone_estimates_v_from_innovations():
    exact, means = server_view(n_rounds=400)
    lin = fg.server_only(exact.hessian, means, STEPS, 20, after=20)
    assert lin.dof == 398.0
    # 398 rounds: 7 % error on a diagonal entry, five of which are allowed.
    np.testing.assert_allclose(np.diag(lin.noise_cov), np.diag(exact.noise_cov), rtol=0.35)
    shifted = fg.server_only(exact.hessian, means + 5.0, STEPS, 20, after=20)
    np.testing.assert_allclose(shifted.noise_cov, lin.noise_cov, rtol=1e-6)


def test_server_only_says_how_many_rounds_it_needs():
    exact, means = server_view()
    with pytest.raises(ValueError, match=r"at least 10 rows in 2 dimensions, a start and 9 rounds; got 4. Wait for 6"):
        fg.server_only(exact.hessian, means[:4], STEPS, 20)
    monitor = fg.Monitor(fg.server_only(exact.hessian, means[:10], STEPS, 20, after=20), STEPS, horizon=100)
    assert np.all(np.concatenate([monitor.boundary.levels["mean"], monitor.boundary.levels["spread"]]) < 20)


def test_whitening_by_an_estimate_enters_the_innovations():
    lin = reports(n_warmup=100)
    assert innovations(lin, STEPS).whitening.dof == lin.dof
