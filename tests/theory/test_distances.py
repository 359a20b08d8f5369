from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fedgauss as fg
from fedgauss.theory import half_space_distance, quantile_gap_error, quantile_pairs

COV = np.array([[2.0, 0.5], [0.5, 1.0]])


def gaussian(replicates, seed=0, shift=0.0, scale=1.0):
    z = np.random.default_rng(seed).standard_normal((replicates, 2))
    return shift + scale * z @ np.linalg.cholesky(COV).T / 10


def test_a_gaussian_sample_is_within_the_floor():
    # One sided at 1e-5: the Kolmogorov statistic of 4,000 draws exceeds 2.47 / sqrt(R) with that probability.
    d = fg.ball_distance(gaussian(4000), np.zeros(2), COV, rate=10.0)
    assert d.estimate < 2.47 / np.sqrt(4000)
    assert d.interval[0] == 0.0
    assert "within what 4000 runs" in str(d)


def test_it_is_the_kolmogorov_statistic_of_scipy():
    x = gaussian(500, scale=1.3)
    whitened = 10 * np.linalg.solve(np.linalg.cholesky(COV), x.T)
    expected = stats.ks_1samp(np.linalg.norm(whitened, axis=0), stats.chi(2).cdf).statistic
    assert fg.ball_distance(x, np.zeros(2), COV, 10.0).estimate == pytest.approx(expected, abs=1e-12)


def test_a_wrong_scale_has_its_exact_distance():
    # Standard deviation 1.3 instead of 1: the distance is sup |F(x) - F(x / 1.3)|; 4.5 standard errors, 7e-6.
    r = np.linspace(0, 6, 100_001)
    exact = np.abs(stats.chi(2).cdf(r) - stats.chi(2).cdf(r / 1.3)).max()
    d = fg.ball_distance(gaussian(40_000, scale=1.3), np.zeros(2), COV, 10.0)
    assert abs(d.estimate - exact) < 4.5 * d.standard_error
    assert d.interval[0] < exact < d.interval[1]


def test_the_floor_is_the_mean_over_gaussian_samples():
    # Mean of 400 Kolmogorov statistics, sd .26 / sqrt(R) each: within 5 standard errors.
    found = [fg.ball_distance(gaussian(400, seed), np.zeros(2), COV, 10.0) for seed in range(400)]
    assert abs(np.mean([d.estimate for d in found]) - found[0].floor) < 5 * 0.26 / 20 / 20 + 0.005


def test_half_spaces_see_a_shift_that_balls_hardly_see():
    x = gaussian(4000, shift=0.02)
    ball = fg.ball_distance(x, np.zeros(2), COV, 10.0)
    half = half_space_distance(x, np.zeros(2), COV, 10.0)
    assert half.estimate > 2 * ball.estimate
    assert half.interval[0] > 0


def test_the_error_of_a_quantile_gap_is_its_spread_over_samples():
    """The mean bootstrap error over 40 pairs of samples, beside the spread of Q itself over 400.

    Trimmed, so that Q is near normal. The spread has a relative error of 3.5 %, the mean error one of about 3 %, so
    a ratio outside .75 to 1.35 has a chance under 1e-4. Catches errors of one sample only (ratio .7), and of a mean.
    """
    rng = np.random.default_rng(5)
    pairs = rng.gamma(4.0, size=(400, 2, 300))
    spread = np.std([fg.theory.max_relative_quantile_gap(a, b, trim=0.05) for a, b in pairs], ddof=1)
    errors = [quantile_gap_error(a, b, trim=0.05, seed=i) for i, (a, b) in enumerate(pairs[:40])]
    assert 0.75 < np.mean(errors) / spread < 1.35


def test_quantile_gap():
    a = np.arange(1.0, 101.0)
    assert fg.max_relative_quantile_gap(a, 1.5 * a) == pytest.approx(0.5)
    odd = a.copy()
    odd[0] = -0.99  # the lowest quantile of 100 values lies between the lowest two: near zero now
    assert fg.max_relative_quantile_gap(odd, a) > 1.0
    assert fg.max_relative_quantile_gap(odd, a, trim=0.05) < 1e-9
    pairs = quantile_pairs(a, 2 * a, [0.25, 0.5])
    np.testing.assert_allclose(pairs[:, 2], 2 * pairs[:, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fg.ball_distance(np.zeros((1, 2)), np.zeros(2), COV, 1.0), "at least 2 replicates; got 1"),
        (lambda: fg.ball_distance(np.zeros(5), np.zeros(2), COV, 1.0), "sample must have shape"),
        (lambda: fg.ball_distance(gaussian(5), np.zeros(3), COV, 1.0), "center must have shape"),
        (lambda: fg.ball_distance(gaussian(5), np.zeros(2), -COV, 1.0), "cov must be positive definite"),
        (lambda: fg.ball_distance(gaussian(5), np.zeros(2), np.eye(3), 1.0), r"cov must have shape \(2, 2\)"),
        (lambda: fg.ball_distance(gaussian(5), np.zeros(2), COV, 0.0), "rate must be greater than 0"),
        (lambda: fg.ball_distance(gaussian(5), np.zeros(2), COV, 1.0, level=95), "strictly between 0 and 1; got 95"),
        (lambda: fg.max_relative_quantile_gap([1.0], [1.0], trim=0.5), r"trim must lie in \[0, 0.5\)"),
        (lambda: fg.max_relative_quantile_gap([-1.0, 1.0], [1.0, 2.0]), "positive quantiles"),
        (lambda: quantile_pairs([1.0], [1.0], [2.0]), r"levels must lie in \[0, 1\]"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
