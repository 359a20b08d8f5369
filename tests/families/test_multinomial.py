"""Multinomial regression against statsmodels."""

import numpy as np
import pytest
import statsmodels.api as sm

import fedgauss as fg
from exact_fits import fit_split
from fedgauss.families import Multinomial, family
from fedgauss.inference.model import Model
from fedgauss.inference.model_data import read_model_data

RNG = np.random.default_rng(3)
X = RNG.normal(size=(500, 2))
SCORES = np.column_stack([np.zeros(500), X @ [0.5, 0.2], 0.4 + X @ [-0.3, 0.6], X @ [0.1, -0.8]])
Y = np.argmax(SCORES + RNG.gumbel(size=SCORES.shape), axis=1).astype(float)
SITE = RNG.integers(0, 5, 500)


def test_it_is_the_pooled_fit():
    pooled = sm.MNLogit(Y, sm.add_constant(X))
    theirs = pooled.fit(method="newton", tol=1e-14, disp=0)
    ours = fit_split(Multinomial(3), X, Y, SITE)
    np.testing.assert_allclose(ours.params, theirs.params.T.ravel(), rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model"), theirs.bse.T.ravel(), rtol=1e-9)
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-12)
    np.testing.assert_allclose(ours.exact.null.log_likelihood, theirs.llnull, rtol=1e-8)
    robust = pooled.fit(method="newton", tol=1e-14, disp=0, cov_type="HC0")
    np.testing.assert_allclose(ours.bse("HC0"), robust.bse.T.ravel(), rtol=1e-9)


def test_large_predictors_do_not_overflow():
    eta = np.array([[900.0, -900.0, 0.0], [1000.0, -1000.0, 0.0]])
    found = Multinomial(2).mean(eta)
    np.testing.assert_allclose(found, [[np.exp(-100.0), 0.0, 1 / 3], [1.0, 0.0, 1 / 3]], atol=1e-60)
    np.testing.assert_allclose(Multinomial(2).loss(eta, np.array([2.0, 0.0, 1.0])), [0.0, 0.0, np.log(3)])


def test_parameters_are_named_by_their_class_and_the_base_has_none():
    frame = {"y": ["c", "a", "b"] * 10, "x": np.arange(30.0) ** 2, "site": ["one", "two"] * 15}
    data = read_model_data(frame, "site", Model("y", family="multinomial", features=["x"]))
    assert data.all_names == ("b: const", "b: x", "c: const", "c: x")
    assert data.family == Multinomial(2) == family("multinomial", 3)
    assert list(data.sides) == ["y == 'a'", "y == 'b'", "y == 'c'"]


def test_refusals():
    with pytest.raises(ValueError, match=r"needs three classes or more; 'y' has two. Use family='binomial'"):
        Multinomial().read("y", np.array([0.0, 1.0]), ("a", "b"))
    with pytest.raises(ValueError, match=r"must be classes 0 to 3; row 0 is 4"):
        Multinomial(3).check_response(np.array([4.0]))
    with pytest.raises(ValueError, match=r"has no fit by SGD: the outputs of a row .* Use solver='scoring'"):
        fg.problems.from_arrays(X, Y, SITE, "multinomial")
