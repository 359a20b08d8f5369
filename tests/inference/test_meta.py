"""Meta-analysis: published figures, statsmodels, slow twins, and coverage."""

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats.meta_analysis import combine_effects

from fedgauss.inference import meta
from fedgauss.inference.meta import meta_analysis

# Thirteen trials of the BCG vaccine (Colditz et al. 1994): cases and others with the vaccine, cases and others without.
BCG = np.array(
    [
        (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
        (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232),
        (17, 1699, 65, 1600), (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
    ],
    dtype=float,
)  # fmt: skip


def risk_ratios():
    cases, others, control_cases, control_others = BCG.T
    treated, control = cases + others, control_cases + control_others
    ratio = np.log(cases / treated) - np.log(control_cases / control)
    return ratio, 1 / cases - 1 / treated + 1 / control_cases - 1 / control


def drawn(rng, k, tau):
    v = rng.uniform(0.05, 1.0, k)
    return rng.normal(0.4, np.sqrt(tau**2 + v)), v


def test_the_vaccine_trials_are_as_published():
    """The figures that metafor's documentation prints for REML, with and without Knapp and Hartung."""
    found = meta_analysis(*risk_ratios())
    assert round(found.tau2, 4) == 0.3132
    assert round(found.random.estimate, 4) == -0.7145
    assert round(100 * found.i2, 2) == 92.22
    assert round(found.q.statistic, 2) == 152.23
    assert found.q.dof == 12
    weights = 1 / (found.std_errors**2 + found.tau2)
    assert round(weights.sum() ** -0.5, 4) == 0.1798  # the standard error without Hartung and Knapp
    assert [round(end, 4) for end in found.random[1:4]] == [0.1808, -1.1084, -0.3206]
    assert found.tau2_method == "REML"
    assert found.weights.sum() == pytest.approx(1.0)
    assert "chi2(12) = 152.23" in str(found)
    assert repr(found) == "<Meta-analysis of the coefficient over 13 sites>"


@pytest.mark.parametrize("tau", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("k", [2, 3, 8, 40])
def test_the_fixed_effect_and_the_moments_are_those_of_statsmodels(monkeypatch, k, tau):
    """With no step of REML allowed, all of it is by DerSimonian and Laird, which statsmodels has too."""
    monkeypatch.setattr(meta, "_MOST_STEPS", 0)
    b, v = drawn(np.random.default_rng(k), k, tau)
    found = meta_analysis(b, v, level=0.9)
    assert found.tau2_method == "DerSimonian-Laird"
    assert "REML did not converge" in str(found)
    with np.errstate(invalid="ignore"):  # statsmodels goes on with a negative variance
        theirs = combine_effects(b, v, method_re="dl")
    assert found.fixed.estimate == pytest.approx(theirs.mean_effect_fe, rel=1e-12)
    assert found.fixed.std_error == pytest.approx(theirs.sd_eff_w_fe, rel=1e-12)
    assert found.q.statistic == pytest.approx(theirs.q, rel=1e-12)
    assert found.q.p_value == pytest.approx(theirs.test_homogeneity().pvalue, rel=1e-10)
    assert found.tau2 == pytest.approx(max(theirs.tau2, 0.0), rel=1e-12)
    if theirs.tau2 > 0.0:
        assert found.random.estimate == pytest.approx(theirs.mean_effect_re, rel=1e-12)
        kept = max(theirs.sd_eff_w_re_hksj, found.fixed.std_error)
        assert found.random.std_error == pytest.approx(kept, rel=1e-12)
        half = stats.t.ppf(0.95, k - 1) * kept
        assert (found.random.low, found.random.high) == pytest.approx(
            (theirs.mean_effect_re - half, theirs.mean_effect_re + half), rel=1e-10
        )


def restricted_loglik(tau2, b, v):
    """From the density of K - 1 contrasts of the estimates, as REML is defined."""
    k = len(b)
    contrasts = stats.ortho_group.rvs(k, random_state=1) if k > 1 else np.eye(1)
    basis = np.linalg.qr(np.column_stack([np.ones(k), contrasts[:, 1:]]))[0][:, 1:]
    return stats.multivariate_normal(np.zeros(k - 1), basis.T @ np.diag(v + tau2) @ basis).logpdf(basis.T @ b)


@pytest.mark.parametrize("seed", range(12))
def test_reml_is_where_the_density_of_contrasts_is_largest(seed):
    rng = np.random.default_rng(seed)
    b, v = drawn(rng, int(rng.integers(3, 10)), rng.choice([0.0, 0.4, 2.0]))
    found = meta_analysis(b, v)
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 100.0, 120)])
    start = grid[int(np.argmax([restricted_loglik(t, b, v) for t in grid]))]
    best = optimize.minimize_scalar(
        lambda t: -restricted_loglik(t, b, v), bounds=(0.0, 2 * start + 1e-3), method="bounded", options={"xatol": 1e-9}
    ).x
    assert found.tau2_method == "REML"
    assert found.tau2 == pytest.approx(best, rel=1e-4, abs=2e-6)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_the_unit_of_a_covariate_does_not_matter(scale):
    b, v = risk_ratios()
    found, plain = meta_analysis(scale * b, scale**2 * v), meta_analysis(b, v)
    assert found.tau2 == pytest.approx(scale**2 * plain.tau2, rel=1e-8)
    assert found.random.estimate == pytest.approx(scale * plain.random.estimate, rel=1e-8)
    assert found.i2 == pytest.approx(plain.i2, rel=1e-8)


def test_two_sites_that_agree_by_chance_do_not_know_all():
    found = meta_analysis([1.0, 1.0], [0.04, 0.04])
    assert found.random.std_error == pytest.approx(np.sqrt(0.02))
    assert "takes its place" in found.notes[0]
    assert found.prediction is None
    assert found.tau2 == found.i2 == 0.0


def test_the_prediction_interval_has_the_spread_of_sites():
    found = meta_analysis(*risk_ratios())
    half = stats.t.ppf(0.975, 11) * np.sqrt(found.tau2 + found.random.std_error**2)
    assert found.prediction == pytest.approx((found.random.estimate - half, found.random.estimate + half))


def test_intervals_of_random_effects_cover():
    """1,000 draws of five unlike sites; within .027 (3.9 standard errors: fails wrongly with chance 1e-4).

    A normal quantile in place of Student's, or the usual standard error, covers .86 to .90.
    """
    rng = np.random.default_rng(11)
    inside = 0
    for _ in range(1000):
        found = meta_analysis(*drawn(rng, 5, 1.5))
        inside += found.random.low <= 0.4 <= found.random.high
    assert abs(inside / 1000 - 0.95) < 0.027


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (([1.0], [1.0]), "at least two sites; got 1"),
        (([1.0, 2.0], [1.0, 0.0]), "variances must be positive; got 0"),
        (([1.0, np.nan], [1.0, 1.0]), "estimates must be finite"),
        (([1.0, 2.0], [1.0, 1.0], ["a"]), "as many as estimates"),
        (([1.0, 2.0], [1.0, 1.0], None, "x", 95), "level must lie strictly between 0 and 1"),
    ],
)
def test_what_is_refused(arguments, rule):
    with pytest.raises(ValueError, match=rule):
        meta_analysis(*arguments)
