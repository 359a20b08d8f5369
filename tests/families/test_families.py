"""Families by name, with a link; one-versus-rest as so many logistic regressions."""

import numpy as np
import pytest
import statsmodels.api as sm

from exact_fits import fit_split
from fedgauss import families
from fedgauss._families import shipped_families
from fedgauss.families.rows import Rows


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("binomial", families.Logistic), ("logistic", families.Logistic), ("gaussian", families.Linear),
        ("linear", families.Linear), ("poisson", families.Poisson), ("gamma", families.Gamma),
        ("negative_binomial", families.NegativeBinomial), ("negbin", families.NegativeBinomial),
        ("nb", families.NegativeBinomial), ("multinomial", families.Multinomial), ("cox", families.Cox),
        ("coxph", families.Cox), ("huber", families.Huber), ("one_versus_rest", families.OneVersusRest),
    ],
)  # fmt: skip
def test_usual_and_present_names_are_known(name, kind):
    assert type(families.chosen(name)) is kind
    assert families.family(name).name in shipped_families()


def test_a_link_is_chosen_by_name():
    assert families.chosen("binomial", "probit") == families.Logistic("probit")
    assert families.chosen(families.Linear(df=5.0), "log") == families.Linear(df=5.0, link="log")
    assert families.chosen("gamma") == families.chosen("gamma", "log") == families.Gamma()
    assert families.chosen("gamma", "inverse").describe() == "gamma (inverse link)"


def test_links_that_a_family_does_not_have_are_refused_with_those_it_has():
    with pytest.raises(ValueError, match=r"family 'logistic' must be one of logit, probit, cloglog; got 'log'"):
        families.chosen("binomial", "log")
    with pytest.raises(ValueError, match=r"family 'negative_binomial' must be log; got 'identity'"):
        families.chosen("nb", "identity")
    with pytest.raises(ValueError, match=r"family 'cox' has no link to choose; got link='log'"):
        families.chosen("cox", "log")


def test_one_versus_rest_is_a_logistic_regression_for_each_class():
    generator = np.random.default_rng(6)
    x, y, site = generator.normal(size=(300, 2)), generator.integers(0, 3, 300), generator.integers(0, 3, 300)
    ours = fit_split(families.OneVersusRest(3), x, y, site)
    theirs = [sm.Logit(y == label, sm.add_constant(x)).fit(method="newton", tol=1e-14, disp=0) for label in range(3)]
    np.testing.assert_allclose(ours.params, np.concatenate([fit.params for fit in theirs]), rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model"), np.concatenate([fit.bse for fit in theirs]), rtol=1e-9)
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, sum(fit.llf for fit in theirs), rtol=1e-12)


@pytest.mark.parametrize(
    "family",
    [
        families.Linear(), families.Logistic("probit"), families.Poisson(), families.Gamma("log"), families.Huber(),
        families.NegativeBinomial(1.3), families.Multinomial(2), families.OneVersusRest(3),
    ],
    ids=lambda family: family.name,
)  # fmt: skip
def test_answers_are_columns_of_covariates_times_what_rows_count_for(family):
    """Score X'u, and of each matrix the block of outputs b and c: X'(f x_1), ..., X'(f x_p)."""
    generator = np.random.default_rng(8)
    x, outputs = generator.normal(size=(60, 3)), family.n_outputs
    rows = Rows(x, generator.integers(0, 2, 60) + 1.0 * (family.name == "gamma"), 0.1, generator.uniform(0.5, 2.0, 60))
    theta = 0.3 * generator.normal(size=3 * outputs)
    columns, scores = family.behind(rows, "final", theta), family.row_scores(rows, theta)
    matrices = {
        "information": family.sums(rows, theta).information, "observed": family.observed(rows, theta),
        "squares": scores.T @ scores,
    }  # fmt: skip
    for c in range(outputs):
        np.testing.assert_allclose(x.T @ columns[f"score {c}"], scores.sum(axis=0)[3 * c : 3 * c + 3], rtol=1e-9)
    for what, wanted in matrices.items():
        together = what == "squares" or family.name == "multinomial"
        for b in range(outputs):
            for c in range(b + 1) if together else (b,):
                pair = f"{b} {c}" if together else f"{b}"
                found = [x.T @ columns[f"{what} {pair} x{j}"] for j in range(3)]
                np.testing.assert_allclose(found, wanted[3 * b : 3 * b + 3, 3 * c : 3 * c + 3], rtol=1e-8, atol=1e-12)
    goodness = family.goodness(rows, theta, 1.0)
    np.testing.assert_allclose(columns["deviance"].sum(), goodness.deviance, rtol=1e-9)
    assert list(family.behind(rows, "goodness", theta)) == ["deviance", "pearson"]
    assert list(family.behind(rows, "score", theta)) == [f"score {c}" for c in range(outputs)]
