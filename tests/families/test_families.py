"""Families by name, with a link; one-versus-rest as so many logistic regressions."""

import numpy as np
import pytest
import statsmodels.api as sm

from exact_fits import fit_split
from fedgauss import families
from fedgauss._families import shipped_families


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
