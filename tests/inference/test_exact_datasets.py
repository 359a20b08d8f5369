"""Exact fits of real data, split over sites, against statsmodels on the pooled table.

Every data set comes with statsmodels or scikit-learn. It is split over K = 3, 10 and 40 sites (as many as it has rows,
where these are fewer): at random, sorted by a covariate, and into sites of sizes in proportion to 1, 1/2, 1/3, ...

Statsmodels' GLM reports HC0 under the name of HC1; its OLS multiplies by n / (n - d), as we do for every family.
Clusters lie within sites here: one that is spread over sites would be several.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import datasets as sklearn_data
from statsmodels.discrete.discrete_model import NegativeBinomial as DiscreteNegativeBinomial
from statsmodels.stats.sandwich_covariance import cov_cluster, cov_white_simple

from exact_fits import Split, fit_split
from fedgauss import families
from fedgauss.families import Family

LINKS, LAWS = sm.families.links, sm.families
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .* link function does not respect the domain"),
    pytest.mark.filterwarnings("ignore:cov_type not fully supported"),
]


class Case(NamedTuple):
    """A data set with a family, and statsmodels' law."""

    family: Family
    law: Any
    x: np.ndarray
    y: np.ndarray
    more: dict[str, np.ndarray] = {}  # noqa: RUF012 - never changed


def _of(name: str) -> Any:
    """A data set of statsmodels as a table of numbers."""
    return getattr(sm.datasets, name).load_pandas().data.astype(float)


def longley() -> Case:
    table = _of("longley")
    return Case(families.Linear(), LAWS.Gaussian(), table.drop(columns="TOTEMP"), table.TOTEMP)


def diabetes() -> Case:
    x, y = sklearn_data.load_diabetes(return_X_y=True)
    return Case(families.Linear(), LAWS.Gaussian(), x, y, {"weights": 0.5 + np.arange(len(y)) % 4})


def grunfeld() -> Case:
    table = sm.datasets.grunfeld.load_pandas().data
    return Case(families.Linear(link="log"), LAWS.Gaussian(LINKS.Log()), table[["value", "capital"]], table.invest + 1)


def iris() -> Case:
    x, _ = sklearn_data.load_iris(return_X_y=True)
    return Case(families.Linear(), LAWS.Gaussian(), x[:, 1:], x[:, 0])


def spector() -> Case:
    table = _of("spector")
    return Case(families.Logistic(), LAWS.Binomial(), table[["GPA", "TUCE", "PSI"]], table.GRADE)


def fair() -> Case:
    table = _of("fair")
    law = LAWS.Binomial(LINKS.Probit())
    return Case(families.Logistic("probit"), law, table.drop(columns="affairs"), table.affairs > 0)


def breast_cancer() -> Case:
    """All thirty columns would separate the classes."""
    x, y = sklearn_data.load_breast_cancer(return_X_y=True)
    return Case(families.Logistic("cloglog"), LAWS.Binomial(LINKS.CLogLog()), x[:, [1, 4, 8, 9]], y)


def anes96() -> Case:
    table = _of("anes96")
    columns = ["logpopul", "TVnews", "selfLR", "age", "educ", "income"]
    return Case(families.Logistic(), LAWS.Binomial(), table[columns], table.vote, {"offset": 0.1 * table.PID})


def star98() -> Case:
    """Successes of trials."""
    table = _of("star98")
    x = table.iloc[:, 2:14]
    return Case(families.Logistic(), LAWS.Binomial(), x, table.NABOVE, {"beside": table.NABOVE + table.NBELOW})


def committee() -> Case:
    """Bills that a committee reported of those assigned to it; the counts are of two congresses."""
    table = _of("committee")
    x = table[["SIZE", "SUBS", "STAFF"]]
    return Case(families.Logistic(), LAWS.Binomial(), x, table.BILLS104, {"beside": table.BILLS104 + table.BILLS103})


def cpunish() -> Case:
    table = _of("cpunish")
    x = np.column_stack([np.log(table.INCOME), table.drop(columns=["EXECUTIONS", "INCOME"])])
    return Case(families.Poisson(), LAWS.Poisson(), x, table.EXECUTIONS)


def cancer() -> Case:
    """Deaths in proportion to the population: an exposure."""
    table = _of("cancer")
    x = np.log(table[["population"]])
    weights = 1.0 + np.arange(len(table)) % 3
    return Case(
        families.Poisson(), LAWS.Poisson(), x, table.cancer, {"offset": np.log(table.population), "weights": weights}
    )


def randhie() -> Case:
    table = _of("randhie")[::20]
    return Case(families.Poisson(), LAWS.Poisson(), table.drop(columns="mdvis"), table.mdvis)


def randhie_alpha() -> Case:
    table = _of("randhie")[::20]
    law = LAWS.NegativeBinomial(alpha=1.3)
    return Case(families.NegativeBinomial(1.3), law, table.drop(columns="mdvis"), table.mdvis)


def scotland() -> Case:
    table = _of("scotland")
    return Case(families.Gamma("inverse"), LAWS.Gamma(), table.drop(columns="YES"), table.YES)


def engel() -> Case:
    table = _of("engel")
    return Case(families.Gamma(), LAWS.Gamma(LINKS.Log()), table.income / 1000, table.foodexp, {"weights": _ramp(235)})


def strikes() -> Case:
    table = _of("strikes")
    return Case(families.Gamma("identity"), LAWS.Gamma(LINKS.Identity()), table.iprod, table.duration)


def _ramp(n: int) -> np.ndarray:
    return np.linspace(0.5, 2.0, n)


CASES: list[Callable[[], Case]] = [
    longley, diabetes, grunfeld, iris, spector, fair, breast_cancer, anes96, star98, committee, cpunish, cancer,
    randhie, randhie_alpha, scotland, engel, strikes,
]  # fmt: skip
SPLITS = [
    pytest.param(k, kind, marks=[pytest.mark.study] if k == 10 else [])
    for k in (3, 10, 40)
    for kind in ("random", "by a covariate", "unbalanced")
]


def split(n_sites: int, kind: str, x: np.ndarray) -> np.ndarray:
    """The site of each row; every site has one at least."""
    n, generator = len(x), np.random.default_rng(n_sites)
    n_sites = min(n_sites, n)
    if kind == "by a covariate":
        return np.argsort(np.argsort(x[:, 0], kind="stable"), kind="stable") * n_sites // n
    share = 1.0 / np.arange(1, n_sites + 1) if kind == "unbalanced" else np.ones(n_sites)
    others = generator.choice(n_sites, n - n_sites, p=share / share.sum())
    return generator.permutation(np.concatenate([np.arange(n_sites), others]))


def clusters_of(site: np.ndarray) -> np.ndarray:
    """A few in each site."""
    return site * 3 + np.arange(len(site)) % 3


@cache
def pooled(case: Callable[[], Case]) -> tuple[Case, Any]:
    """The data, and statsmodels' fit of them all, converged as far as it goes."""
    family, law, x, y, more = case()
    x, y = np.asarray(x, float).reshape(len(y), -1), np.asarray(y, float)
    more = {name: np.asarray(values, float) for name, values in more.items()}
    response = np.column_stack([y, more["beside"] - y]) if "beside" in more else y
    theirs = {"offset": more.get("offset")} | ({"var_weights": more["weights"]} if "weights" in more else {})
    fit = sm.GLM(response, sm.add_constant(x), family=law, **theirs).fit(tol=1e-15, maxiter=200, tol_criterion="params")
    return Case(family, law, x, y, more), fit


@pytest.mark.parametrize(("n_sites", "kind"), SPLITS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_generalised_linear_models(case, n_sites, kind):
    data, theirs = pooled(case)
    site = split(n_sites, kind, data.x)
    ours = fit_split(data.family, data.x, data.y, site, clusters=clusters_of(site), **data.more)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-8)
    compare_errors(ours, theirs, clusters_of(site))
    goodness, null = ours.exact.goodness, ours.exact.null
    found = [goodness.deviance, goodness.log_likelihood, goodness.pearson, null.deviance, ours.exact.dispersion]
    wanted = [theirs.deviance, theirs.llf, theirs.pearson_chi2, theirs.null_deviance, theirs.scale]
    np.testing.assert_allclose(found, wanted, rtol=1e-8)


def compare_errors(ours: Split, theirs: Any, clusters: np.ndarray, back: Any = 1.0) -> None:
    """Model, HC0, HC1 and cluster."""
    n, d = ours.n_rows, len(ours.params)
    white = np.sqrt(np.diag(cov_white_simple(theirs, use_correction=False)))
    by_cluster = np.sqrt(np.diag(cov_cluster(theirs, clusters, use_correction=True)))
    np.testing.assert_allclose(back * ours.bse("model"), np.asarray(theirs.bse).T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(back * ours.bse("HC0"), white, rtol=1e-6)
    np.testing.assert_allclose(back * ours.bse("HC1"), np.sqrt(n / (n - d)) * white, rtol=1e-6)
    np.testing.assert_allclose(back * ours.bse("cluster"), by_cluster, rtol=1e-6)


def test_hc1_is_that_of_ordinary_least_squares():
    x, y = sklearn_data.load_diabetes(return_X_y=True)
    theirs = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HC1")
    ours = fit_split(families.Linear(), x, y, np.arange(len(y)) % 10)
    np.testing.assert_allclose(ours.bse("HC1"), theirs.bse, rtol=1e-6)


@cache
def _negative_binomial() -> tuple[np.ndarray, np.ndarray, Any]:
    table = _of("randhie")[::20]
    x, y = table.drop(columns="mdvis").to_numpy(), table.mdvis.to_numpy()
    return x, y, DiscreteNegativeBinomial(y, sm.add_constant(x)).fit(method="newton", tol=1e-14, maxiter=200, disp=0)


@pytest.mark.parametrize(("n_sites", "kind"), SPLITS)
def test_negative_binomial_with_alpha_estimated(n_sites, kind):
    """The last parameter is alpha in statsmodels and log(alpha) here: its standard error is alpha times ours."""
    x, y, theirs = _negative_binomial()
    site = split(n_sites, kind, x)
    ours = fit_split(families.NegativeBinomial(), x, y, site, clusters=clusters_of(site))
    alpha = np.exp(ours.params[-1])
    np.testing.assert_allclose([*ours.params[:-1], alpha], theirs.params, rtol=1e-8)
    compare_errors(ours, theirs, clusters_of(site), np.array([1.0] * (len(ours.params) - 1) + [alpha]))
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-8)


@cache
def _multinomial() -> tuple[np.ndarray, np.ndarray, Any]:
    """Party identification: seven classes."""
    table = _of("anes96")
    x = table[["logpopul", "selfLR", "age", "educ", "income"]].to_numpy()
    return x, table.PID.to_numpy(), sm.MNLogit(table.PID.to_numpy(), sm.add_constant(x)).fit(
        method="newton", tol=1e-14, maxiter=100, disp=0
    )  # fmt: skip


@pytest.mark.parametrize(("n_sites", "kind"), SPLITS)
def test_multinomial(n_sites, kind):
    x, y, theirs = _multinomial()
    site = split(n_sites, kind, x)
    ours = fit_split(families.Multinomial(6), x, y, site, clusters=clusters_of(site))
    np.testing.assert_allclose(ours.params, theirs.params.T.ravel(), rtol=1e-8)
    compare_errors(ours, theirs, clusters_of(site))
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-8)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize(("n_sites", "kind"), SPLITS[:6])
def test_cox_regression_of_heart_transplants(n_sites, kind, ties):
    """With the sites as strata, by which the fit depends on the split."""
    table = _of("heart")
    x = np.column_stack([table.age, (table.age - 45.0) ** 2 / 100.0])
    site = split(n_sites, kind, x)
    pooled = sm.PHReg(table.survival, x, status=table.censors, strata=site, ties=ties)
    theirs = pooled.fit(method="newton", tol=1e-14, maxiter=100)
    ours = fit_split(families.Cox(ties), x, table.survival, site, beside=table.censors)
    np.testing.assert_allclose(ours.params, theirs.params, rtol=1e-8)
    np.testing.assert_allclose(ours.bse("model"), theirs.bse, rtol=1e-6)
    np.testing.assert_allclose(ours.exact.goodness.log_likelihood, theirs.llf, rtol=1e-8)
