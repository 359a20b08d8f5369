"""Gamma regression against statsmodels, for every link, and what it refuses."""

import numpy as np
import pytest
import statsmodels.api as sm

from exact_fits import fit_split
from fedgauss.families import Gamma

LINKS = sm.families.links
THEIRS = {"log": LINKS.Log(), "identity": LINKS.Identity(), "inverse": LINKS.InversePower()}
RNG = np.random.default_rng(1)
X = RNG.normal(size=(300, 2))
Y = RNG.gamma(3.0, np.exp(1.0 + X @ [0.2, -0.1]) / 3.0)
SITE = RNG.integers(0, 4, 300)


@pytest.mark.filterwarnings("ignore:The .* link function does not respect the domain")
@pytest.mark.parametrize("link", THEIRS)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_pooled_fit(link, weighted):
    more = {"var_weights": RNG.uniform(0.5, 2.0, 300)} if weighted else {}
    offset = 0.1 * RNG.normal(size=300) if link == "log" else None
    model = sm.GLM(Y, sm.add_constant(X), family=sm.families.Gamma(THEIRS[link]), offset=offset, **more)
    theirs = model.fit(tol=1e-14, maxiter=300, tol_criterion="params")
    ours = fit_split(Gamma(link), X, Y, SITE, offset=offset, weights=more.get("var_weights"))
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-9)
    np.testing.assert_allclose(ours.bse("model"), theirs.bse, rtol=1e-9)
    exact = ours.exact
    np.testing.assert_allclose(exact.dispersion, theirs.scale, rtol=1e-10)
    found = [exact.goodness.deviance, exact.goodness.log_likelihood, exact.goodness.pearson, exact.null.deviance]
    wanted = [theirs.deviance, theirs.llf, theirs.pearson_chi2, theirs.null_deviance]
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_units_of_the_response_move_the_intercept_alone():
    """Responses of 1e-40 are as good as any: means are kept off zero by far less."""
    tiny, usual = fit_split(Gamma(), X, Y * 1e-40, SITE), fit_split(Gamma(), X, Y, SITE)
    np.testing.assert_allclose(tiny.params[1:], usual.params[1:], rtol=1e-7)
    np.testing.assert_allclose(tiny.params[0] - np.log(1e-40), usual.params[0], rtol=1e-7)


def test_zeros_and_other_links_are_refused():
    with pytest.raises(ValueError, match=r"gamma responses must be positive; row 1 is 0. Leave out"):
        Gamma().read("cost", np.array([1.0, 0.0]), None)
    with pytest.raises(ValueError, match=r"must be one of log, identity, inverse; got 'logit'"):
        Gamma("logit")
