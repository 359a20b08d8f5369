"""Cox regression stratified by site: against statsmodels' PHReg, a slow twin, and derivatives by weight."""

import numpy as np
import pytest
import statsmodels.api as sm

import fedgauss as fg
from exact_fits import fit_split
from fedgauss.families import Cox
from fedgauss.families.rows import NoFiniteEstimate, Rows

RNG = np.random.default_rng(4)
N = 240
X = RNG.normal(size=(N, 2))
TIME = np.round(RNG.exponential(size=N) * np.exp(-X @ [0.5, -0.3]), 1)  # many ties
DIED = (RNG.random(N) < 0.7).astype(float)
SITE = RNG.integers(0, 4, N)
OFFSET = 0.3 * RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, N)


def slow(ties, rows, theta):
    """The partial log-likelihood, event by event and row by row."""
    time, died = rows.response.T
    eta = rows.x @ theta + rows.offset
    relative, total = rows.weights * np.exp(eta), 0.0
    for t in np.unique(time[died > 0]):
        here = np.flatnonzero((time == t) & (died > 0))
        for place, i in enumerate(here):
            held = place / len(here) if ties == "efron" else 0.0
            left = relative[time >= t].sum() - held * relative[here].sum()
            total += rows.weights[i] * eta[i] - rows.weights[here].mean() * np.log(left)
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_it_is_the_pooled_fit_with_sites_as_strata(ties):
    pooled = sm.PHReg(TIME, X, status=DIED, strata=SITE, ties=ties, offset=OFFSET)
    theirs = pooled.fit(method="newton", tol=1e-14, maxiter=100)
    ours = fit_split(Cox(ties), X, TIME, SITE, beside=DIED, offset=OFFSET)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model"), theirs.bse, rtol=1e-9)
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-12)
    np.testing.assert_allclose(ours.exact.null.log_likelihood, pooled.loglike(np.zeros(2)), rtol=1e-12)


def test_robust_errors_are_those_of_lin_and_wei():
    """For Breslow's ties, those of statsmodels; for Efron's it takes Breslow's residuals, and we do not."""
    doctor = RNG.integers(0, 30, N)
    ours = fit_split(Cox("breslow"), X, TIME, SITE, beside=DIED, clusters=SITE * 30 + doctor)
    for groups, found, factor in (
        (np.arange(N), ours.bse("HC0"), 1.0),
        (SITE * 30 + doctor, ours.bse("cluster"), 1.0),
    ):
        theirs = sm.PHReg(TIME, X, status=DIED, strata=SITE).fit(groups=groups, method="newton", tol=1e-14)
        count = len(np.unique(groups))
        if count < N:  # statsmodels does not correct for few clusters
            factor = np.sqrt(count / (count - 1) * (N - 1) / (N - 2))
        np.testing.assert_allclose(found, factor * theirs.bse, rtol=1e-9)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_log_likelihood_is_that_of_a_slow_twin_and_row_scores_are_derivatives_by_weight(ties):
    """Weights, offsets and ties together: w_j times the derivative of the score in w_j."""
    family, theta = Cox(ties), np.array([0.4, -0.7])
    rows = family.rows(Rows(X + 5.0, TIME, OFFSET, WEIGHTS), DIED)
    np.testing.assert_allclose(family.sums(rows, theta).log_likelihood, slow(ties, rows, theta), rtol=1e-12)
    scores = family.row_scores(rows, theta)
    for j in (0, 17, 101, 239):
        ends = []
        for sign in (1.0, -1.0):
            weights = WEIGHTS.copy()
            weights[j] += sign * 1e-5
            ends.append(family.sums(rows._replace(weights=weights), theta).score)
        np.testing.assert_allclose(scores[j], WEIGHTS[j] * (ends[0] - ends[1]) / 2e-5, rtol=1e-5, atol=1e-8)


def test_whole_weights_are_rows_repeated_with_breslow_ties():
    times = RNG.integers(1, 4, N)
    weighted = fit_split(Cox("breslow"), X, TIME, SITE, beside=DIED, weights=times)
    repeated = fit_split(
        Cox("breslow"), *(np.repeat(part, times, axis=0) for part in (X, TIME, SITE)), beside=np.repeat(DIED, times)
    )
    np.testing.assert_allclose(weighted.params, repeated.params, rtol=1e-10)
    np.testing.assert_allclose(weighted.bse("model"), repeated.bse("model"), rtol=1e-10)


def test_sites_without_events_add_nothing():
    site = np.where(DIED > 0, SITE, SITE + 10)
    some = fit_split(Cox(), X, TIME, np.where(SITE == 0, site, SITE), beside=DIED)
    kept = (SITE > 0) | (DIED > 0)
    less = fit_split(Cox(), X[kept], TIME[kept], SITE[kept], beside=DIED[kept])
    np.testing.assert_allclose(some.params, less.params, rtol=1e-9)


def test_refusals():
    with pytest.raises(ValueError, match=r"times must not be negative; row 1 is -1. Count them from"):
        Cox().read("days", np.array([2.0, -1.0]), None)
    with pytest.raises(ValueError, match=r"events must be 0 .censored. or 1; row 0 is 2. Recode"):
        Cox().rows(Rows(X, TIME), 2.0 * np.ones(N))
    with pytest.raises(ValueError, match=r"needs a column that says whether the event came: event='died'"):
        Cox().rows(Rows(X, TIME), None)
    with pytest.raises(NoFiniteEstimate, match=r"there is nothing to compare"):
        fit_split(Cox(), X, TIME, SITE, beside=0.0 * DIED)
    with pytest.raises(ValueError, match=r"ties must be one of 'efron', 'breslow'; got 'exact'"):
        Cox("exact")
    with pytest.raises(ValueError, match=r"has no fit by SGD: a row is compared .* Use solver='scoring'"):
        fg.problems.from_arrays(X, TIME, SITE, "cox")


def test_what_a_row_counts_for_is_its_martingale_residual():
    """Score and information are told of these columns; also where times are tied and rows are weighted."""
    for ties in ("efron", "breslow"):
        family, theta = Cox(ties), np.array([0.4, -0.7])
        rows = family.rows(Rows(X, TIME, OFFSET, WEIGHTS), DIED)
        columns, sums = family.behind(rows, "final", theta), family.sums(rows, theta)
        np.testing.assert_allclose(X.T @ columns["score 0"], sums.score, rtol=1e-9)
        for j in range(2):
            np.testing.assert_allclose(X.T @ columns[f"information 0 x{j}"], sums.information[:, j], rtol=1e-9)
            np.testing.assert_array_equal(columns[f"squares 0 x{j}"], family.row_scores(rows, theta)[:, j])
        assert list(family.behind(rows, "score", theta)) == ["score 0"]
        assert family.behind(rows, "goodness", theta) == {}
