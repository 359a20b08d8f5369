"""What is asked of sites and what they answer: no more than the fit needs, and nothing where numbers are not finite."""

import numpy as np
import pandas as pd
import pytest

import fedgauss as fg
from fedgauss import families
from fedgauss.families.rows import Ask, Rows
from fedgauss.inference.asks import answer, beside, run, shapes, total
from fedgauss.inference.errors import parts_of
from fedgauss.inference.exact import exact_program

RNG = np.random.default_rng(21)
N = 240
X = np.column_stack([np.ones(N), RNG.standard_normal((N, 2))])
Y = (RNG.random(N) < 1.0 / (1.0 + np.exp(0.5 - X @ [0.0, 0.6, -0.4]))).astype(float)
CLUSTERS = RNG.integers(0, 9, N)
PARTS = ("information", "observed", "squares.rows", "squares.clusters", "squares.sites")
THETA = np.array([-0.4, 0.5, -0.3])


@pytest.mark.parametrize(
    "ask",
    [
        Ask("score", THETA), Ask("sums", THETA), Ask("goodness", THETA, 1.5), Ask("own", THETA), Ask("final", THETA),
        *(Ask("final", THETA, parts=(part,)) for part in PARTS),
        Ask("final", THETA, parts=PARTS, compared=(1, 2), beside=Ask("goodness", 0.0 * THETA)),
    ],
)  # fmt: skip
def test_an_answer_has_the_shapes_that_are_asked_for_and_no_more(ask):
    found = answer(families.Logistic(), Rows(X, Y, clusters=CLUSTERS), ask)
    assert {name: value.shape for name, value in found.items()} == shapes(ask, families.Logistic())


def test_errors_ask_for_what_they_need():
    assert parts_of("model", families.Logistic()) == ("information",)
    assert parts_of("model", families.NegativeBinomial()) == ("observed",)
    assert parts_of("HC0", families.Huber()) == parts_of("HC1", families.Huber()) == ("observed", "squares.rows")
    assert parts_of("cluster", families.Cox()) == ("observed", "squares.clusters")
    assert parts_of("site", families.Linear()) == ("observed", "squares.sites")


def test_one_site_without_finite_numbers_voids_the_round():
    ask = Ask("score", np.array([0.0, 800.0, 0.0]))
    assert answer(families.Poisson(), Rows(X, Y), ask) is None
    fine = answer(families.Poisson(), Rows(X[:1] * 0.0, Y[:1]), ask)
    assert total([fine, fine])["score"].shape == (3,)
    assert total([fine, None, fine]) is None
    assert total([{"score": np.array(1.7e308)}] * 2) is None
    with pytest.raises(ValueError, match=r"a question must be one of score, .*; got 'rows'"):
        answer(families.Poisson(), Rows(X, Y), Ask("rows", THETA))


def test_what_is_asked_beside_another_is_its_own_answer():
    rows, other = Rows(X, Y), Ask("goodness", np.zeros(3))
    found = beside(answer(families.Logistic(), rows, Ask("final", THETA, beside=other)))
    assert found == answer(families.Logistic(), rows, other)


def slow_test(scores, observed, compared):
    """Cochran's Q from each site's one-step estimate and its sandwich, those of the compared parameters alone."""
    estimates, weights = [], []
    for own, bread in zip(scores, observed, strict=True):
        inverse = np.linalg.pinv(bread, 1e-10)
        estimates.append((inverse @ own.sum(axis=0))[compared])
        weights.append(np.linalg.inv((inverse @ own.T @ own @ inverse)[np.ix_(compared, compared)]))
    mean = np.linalg.solve(sum(weights), sum(w @ e for w, e in zip(weights, estimates, strict=True)))
    return sum((e - mean) @ w @ (e - mean) for w, e in zip(weights, estimates, strict=True))


@pytest.mark.parametrize("effects", [False, True])
def test_heterogeneity_is_that_of_slopes(effects):
    """With effects of sites, too, of which a site's own rows say nothing."""
    site = np.arange(N) % 3
    x = np.column_stack([X, *(site == k for k in (1, 2))]) if effects else X
    sites = [Rows(x[site == k], Y[site == k]) for k in range(3)]
    family, compared = families.Logistic(), [1, 2]
    start = np.zeros(x.shape[1])
    found = run(exact_program(family, start, [0], N, ("observed",), compared), family, sites)
    scores = [family.row_scores(rows, found.theta) for rows in sites]
    observed = [family.observed(rows, found.theta) for rows in sites]
    assert found.heterogeneity.dof == 4
    assert found.heterogeneity.statistic == pytest.approx(slow_test(scores, observed, compared), rel=1e-7)
    assert run(exact_program(family, start, [0], N, ("observed",)), family, sites).heterogeneity is None


def test_a_fit_with_effects_of_sites_compares_slopes():
    frame = pd.DataFrame({"y": Y, "a": X[:, 1], "b": X[:, 2], "h": np.array(list("uvw"))[np.arange(N) % 3]})
    found = fg.fit(frame, fg.Model("y", family="logistic", site_effects=True), client="h")
    assert found.heterogeneity.dof == 4
    alone = [fg.fit(frame[frame.h != h], "y", "h", "logistic").heterogeneity.dof for h in "uvw"]
    assert alone == [2, 2, 2]


def test_own_estimates_are_those_of_a_fit_of_the_site_alone():
    family, few = families.Logistic(), slice(0, 14)
    found = answer(family, Rows(X, Y), Ask("own", np.zeros(3)))
    alone = run(exact_program(family, np.zeros(3), [0], N, ("observed", "squares.rows")), family, [Rows(X, Y)])
    bread = np.linalg.inv(alone.matrices["observed"])
    np.testing.assert_allclose(found["theta"], alone.theta, rtol=1e-9)
    np.testing.assert_allclose(found["cov"], bread @ alone.matrices["squares.rows"] @ bread, rtol=1e-8)
    assert found["found"] == 1.0
    assert answer(family, Rows(X[few], Y[few]), Ask("own", np.zeros(3)))["found"] == 0.0
    assert answer(family, Rows(X, (X[:, 1] > 0) * 1.0), Ask("own", np.zeros(3)))["found"] == 0.0
