"""Exact fits of textbook data, to the digits of other programs. The source of data and digits stands with each.

Where digits are said to be by statsmodels, they are those that its pooled fit of the same rows gives, rounded as a book
would: the books were not at hand.
"""

from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm

from exact_fits import fit_split
from fedgauss import families


def printed(found, published, digits):
    """Whether numbers are the published ones to so many digits."""
    np.testing.assert_allclose(found, published, rtol=0.51 * 10.0 ** (1 - digits))


@pytest.mark.parametrize("n_sites", [1, 3, 16])
def test_longley_employment(n_sites):
    """Certified by NIST (Statistical Reference Datasets, linear regression, "Longley"; J. Longley 1967).

    Columns are nearly collinear: of fifteen certified digits ten are left.
    """
    table = sm.datasets.longley.load_pandas().data
    x = table[["GNPDEFL", "GNP", "UNEMP", "ARMED", "POP", "YEAR"]]
    fit = fit_split(families.Linear(), x, table.TOTEMP, np.arange(16) % n_sites)
    coefficients = [
        -3482258.63459582, 15.0618722713733, -0.358191792925910e-01, -2.02022980381683, -1.03322686717359,
        -0.511041056535807e-01, 1829.15146461355,
    ]  # fmt: skip
    errors = [
        890420.383607373, 84.9149257747669, 0.334910077722432e-01, 0.488399681651699, 0.214274163161675,
        0.226073200069370, 455.478499142212,
    ]  # fmt: skip
    np.testing.assert_allclose(fit.params, coefficients, rtol=1e-9)
    np.testing.assert_allclose(fit.bse("model"), errors, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(fit.exact.dispersion), 304.854073561965, rtol=1e-10)
    r_squared = 1.0 - fit.exact.goodness.deviance / fit.exact.null.deviance
    np.testing.assert_allclose(r_squared, 0.995479004577296, rtol=1e-12)


def test_dobson_randomised_trial():
    """Counts of Dobson (1990), which R's help(glm) has for its example: Poisson, nine rows. Digits by statsmodels."""
    counts = [18, 17, 15, 20, 10, 20, 25, 13, 12]
    outcome, treatment = np.arange(9) % 3, np.arange(9) // 3
    x = np.column_stack([outcome == 1, outcome == 2, treatment == 1, treatment == 2])
    fit = fit_split(families.Poisson(), x, counts, treatment)
    printed(fit.params[:3], [3.045, -0.4543, -0.2930], 4)
    np.testing.assert_allclose(fit.params[3:], 0.0, atol=1e-12)
    printed(fit.bse("model"), [0.1709, 0.2022, 0.1927, 0.2000, 0.2000], 4)
    printed([fit.exact.goodness.deviance, fit.exact.null.deviance], [5.1291, 10.5814], 5)


@pytest.mark.parametrize(
    ("lot", "params", "errors", "dispersion"),
    [
        ([118, 58, 42, 35, 27, 25, 21, 19, 18], [-0.01655438, 0.01534311], [0.00092755, 0.00041496], 0.002446),
        ([69, 35, 26, 21, 18, 16, 13, 12, 12], [-0.0239085, 0.0235992], [0.0013265, 0.0005768], 0.001813),
    ],
)
def test_blood_clotting(lot, params, errors, dispersion):
    """Clotting times of McCullagh and Nelder (1989), another example of R's help(glm): gamma, inverse link.

    Digits by statsmodels.
    """
    u = np.array([5, 10, 15, 20, 30, 40, 60, 80, 100])
    fit = fit_split(families.Gamma("inverse"), np.log(u), lot, np.arange(9) % 2)
    printed(fit.params, params, 6)
    printed(fit.bse("model"), errors, 4)
    printed(fit.exact.dispersion, dispersion, 4)


def test_spector_and_mazzeo_grades():
    """Spector and Mazzeo (1980), an example of Greene's Econometric Analysis; logit and probit by statsmodels."""
    table = sm.datasets.spector.load_pandas().data
    x, site = table[["GPA", "TUCE", "PSI"]], np.arange(32) % 5
    for link, published in (("logit", [-13.021, 2.826, 0.095, 2.379]), ("probit", [-7.452, 1.626, 0.052, 1.426])):
        fit = fit_split(families.chosen("binomial", link), x, table.GRADE, site)
        np.testing.assert_allclose(fit.params, published, atol=0.51e-3)


def test_scottish_vote():
    """Gill (2001), Generalized Linear Models; digits by R, from statsmodels' own tests (class Scotvote)."""
    table = sm.datasets.scotland.load_pandas().data
    fit = fit_split(families.Gamma("inverse"), table.drop(columns="YES"), table.YES, np.arange(32) % 8)
    params = [
        -1.776527e-02, 4.961768e-05, 2.034423e-03, -7.181429e-05, 1.118520e-04, -1.467515e-07, -5.186831e-04,
        -2.42717498e-06,
    ]  # fmt: skip
    errors = [
        1.147922e-02,
        1.621577e-05,
        5.320802e-04,
        2.711664e-05,
        4.057691e-05,
        1.236569e-07,
        2.402534e-04,
        7.460253e-07,
    ]
    printed(fit.params, params, 6)
    printed(fit.bse("model"), errors, 6)
    printed([fit.exact.goodness.deviance, fit.exact.null.deviance], [0.087388516417, 0.536072], 6)
    printed(fit.exact.dispersion, 0.003584283, 6)


def test_outpatient_visits_of_the_rand_experiment():
    """R's MASS::glm.nb and Stata's nbreg (log(alpha) and its error), from statsmodels' own tests (class RandHIE)."""
    table = sm.datasets.randhie.load_pandas().data
    fit = fit_split(families.NegativeBinomial(), table.drop(columns="mdvis"), table.mdvis, np.arange(len(table)) % 10)
    params = [
        0.663556087183864, -0.0579469537244314, -0.267787718814838, 0.0412060770911646, -0.0381376804392121,
        0.268915772213171, 0.0381637446219235, -0.0441338846217674, 0.0172521803400544, 0.177960787443151,
    ]  # fmt: skip
    np.testing.assert_allclose(fit.params[:-1], params, rtol=3e-4)  # glm.nb alternates until it is near
    np.testing.assert_allclose(fit.params[-1], 0.256929012449, rtol=1e-6)
    printed(fit.bse("model")[-1], 0.0143932, 6)


def test_party_identification():
    """Stata's mlogit, checked with R's nnet, from statsmodels' own tests (class Anes): six classes against one."""
    table = sm.datasets.anes96.load_pandas().data
    x = table[["logpopul", "selfLR", "age", "educ", "income"]]
    fit = fit_split(families.Multinomial(6), x, table.PID, np.arange(len(table)) % 7)
    first, last = fit.params[:6], fit.params[-6:]
    printed(first, [-0.37340167, -0.01153598, 0.29771435, -0.024945, 0.08249144, 0.00519655], 5)
    printed(last, [-12.105751, -0.14088069, 2.0700801, -0.00943265, 0.3219257, 0.10889408], 5)
    printed(fit.bse("model")[:2], [0.6298376313, 0.0342823657], 7)


@pytest.mark.parametrize(("ties", "published"), [("efron", [1.5721, 0.4124]), ("breslow", [1.5092, 0.4096])])
def test_remission_of_leukaemia(ties, published):
    """Freireich and others (1963): weeks of remission under 6-MP and placebo. Digits by statsmodels' PHReg.

    One site, since a site is a stratum.
    """
    treated = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    relapsed = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    placebo = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]
    group = np.repeat([0.0, 1.0], 21)
    fit = fit_split(families.Cox(ties), group, treated + placebo, np.zeros(42), beside=relapsed + [1] * 21)
    printed([fit.params[0], fit.bse("model")[0]], published, 4)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("size", ["50_2", "100_5", "1000_10"])
def test_cox_regression_with_strata_is_that_of_r(size, ties):
    """R's coxph(Surv(time, status) ~ x + strata(site)), which statsmodels keeps for its own tests."""
    theirs = pytest.importorskip("statsmodels.duration.tests.results.survival_r_results")
    data = np.loadtxt(Path(theirs.__file__).parent / f"survival_data_{size}.csv")
    site = np.repeat(np.arange(5), len(data) // 5)
    fit = fit_split(families.Cox(ties), data[:, 3:], data[:, 0], site, beside=data[:, 1])
    np.testing.assert_allclose(fit.params, getattr(theirs, f"coef_{size}_st_{ties[:3]}"), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(fit.bse("model"), getattr(theirs, f"se_{size}_st_{ties[:3]}"), rtol=1e-5)
