"""The battery for regression families: every shipped one passes, and every rule finds a broken one."""

import sys
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure
from broken_parts import names as rule_names

from fedgauss._namespaces import numpy_for
from fedgauss.families import (
    Cox,
    Family,
    Gamma,
    Huber,
    Linear,
    Logistic,
    Multinomial,
    NegativeBinomial,
    OneVersusRest,
    Poisson,
    ResidualMoments,
    names,
)
from fedgauss.families.base import family as family_named
from fedgauss.families.rows import Rows
from fedgauss.testing import check_family, checks_for_family, exact_family, family

SHIPPED = {
    "linear": Linear(),
    "linear, Student": Linear(df=5.0),
    "logistic": Logistic(),
    "logistic, probit": Logistic("probit"),
    "logistic, cloglog": Logistic("cloglog"),
    "poisson": Poisson(),
    "gamma": Gamma(),
    "huber": Huber(),
    "huber, wide": Huber(threshold=3.0),
    "one_versus_rest": OneVersusRest(3),
}
RNG = np.random.default_rng(3)
X = np.column_stack([np.ones(120), RNG.normal(size=(120, 2))])
WEIGHTS, OFFSET = RNG.uniform(0.5, 1.5, 120), 0.2 * RNG.normal(size=120)
COUNTS = RNG.negative_binomial(2, 0.4, 120).astype(float)
TIMES = np.column_stack([RNG.integers(0, 30, 120), RNG.random(120) < 0.7]).astype(float)
POSITIVE = 1.0 + RNG.gamma(5.0, size=120)
GIVEN = {  # families that draw no responses, or take the predictors of the battery for impossible ones
    "negative_binomial": (NegativeBinomial(), Rows(X, COUNTS, OFFSET, WEIGHTS)),
    "negative_binomial, alpha": (NegativeBinomial(0.6), Rows(X, COUNTS, OFFSET, WEIGHTS)),
    "multinomial": (Multinomial(3), Rows(X, RNG.integers(0, 4, 120).astype(float), OFFSET, WEIGHTS)),
    "cox": (Cox(), Rows(X[:, 1:], TIMES, OFFSET, WEIGHTS)),
    "cox, breslow": (Cox("breslow"), Rows(X[:, 1:], TIMES, OFFSET, WEIGHTS)),
    "gamma, inverse": (Gamma("inverse"), Rows(X, POSITIVE, 0.0, WEIGHTS)),
    "gamma, identity": (Gamma("identity"), Rows(X, POSITIVE, 0.0, WEIGHTS)),
    "linear, log": (Linear(link="log"), Rows(X, POSITIVE, OFFSET, WEIGHTS)),
    "poisson, identity": (Poisson("identity"), Rows(X, COUNTS, 0.0, WEIGHTS)),
}


VARIANTS = (
    "logistic, probit",
    "logistic, cloglog",
    "huber, wide",
    "linear, Student",
)  # of families that are here anyway


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.study) if name in VARIANTS else name for name in SHIPPED]
)
def test_shipped_families_conform(name):
    """Their simulated problems are in the battery for problems."""
    battery = [check for check in checks_for_family(SHIPPED[name]) if not check.name.startswith("simulated")]
    assert len(battery) == 14 + 10
    assert [str(found) for found in (check.outcome() for check in battery) if found.status == "failed"] == []


@pytest.mark.parametrize("name", GIVEN)
def test_shipped_families_conform_on_given_rows(name):
    chosen, rows = GIVEN[name]
    battery = [check for check in checks_for_family(chosen, rows) if check.name.startswith(("exact", "classes"))]
    found = [check.outcome() for check in battery]
    assert [str(one) for one in found if one.status == "failed"] == []
    assert sum(one.status == "passed" for one in found) >= 5


@pytest.mark.parametrize("name", ["negative_binomial", "multinomial", "cox"])
def test_families_for_exact_fits_alone_pass_the_whole_battery(name):
    report = check_family(*GIVEN[name])
    assert not any(found.name.startswith("simulated") for found in report.outcomes)


@pytest.mark.study
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_families_conform_as_problems(name):
    check_family(SHIPPED[name])


def test_no_shipped_family_is_left_out():
    kinds = {type(each) for each in [*SHIPPED.values(), *(chosen for chosen, _ in GIVEN.values())]}
    shipped = {type(family_named(name)) for name in names()}
    assert {kind for kind in shipped if kind.__module__.startswith("fedgauss.")} == kinds


@dataclass(frozen=True)
class Exponential(Family):
    """y is exponential with mean exp(eta): a sound family, for mutants to spoil."""

    name = "exponential_for_a_test"
    needs = "positive numbers"
    signal = 0.3

    def mean(self, predictor):
        return numpy_for(predictor).exp(predictor)

    def residual(self, predictor, response):
        return 1.0 - response * numpy_for(predictor).exp(-predictor)

    def loss(self, predictor, response):
        return predictor[0] + response * np.exp(-predictor[0])

    def weight(self, predictor, response):
        return np.ones_like(predictor)

    def curvature(self, predictor, response):
        return response * np.exp(-predictor)

    def check_response(self, response):
        if np.any(response <= 0):
            raise ValueError(f"responses must be positive; the smallest is {response.min():g}.")

    def start(self, totals, n_rows):
        return np.log(totals / n_rows)

    def respond(self, predictor, noise, noise_sd):
        return -jnp.exp(predictor[0]) * jnp.log(noise.uniform(1)[0])

    def residual_moments(self, u, v):
        q = np.exp(v - u)
        return ResidualMoments(1.0 - q, 1.0 - 2.0 * q + 2.0 * q**2, q)

    def slopes(self, theta_var, beta_var, gap_var, noise_sd):
        growth = jnp.exp(gap_var / 2)
        return growth, growth


def test_the_sound_family_conforms_by_itself_and_as_a_problem():
    report = check_family(Exponential())
    assert len(report.outcomes) == 14 + 10 + 25
    skipped = [found.name for found in report.outcomes if found.status == "skipped"]
    assert skipped == ["found by name", "rescaled", "classes", "exact: perfect fit", "simulated: max steps"]


def test_a_family_that_draws_no_responses_is_checked_as_far_as_it_goes():
    silent = dataclass(frozen=True)(type("Silent", (Family,), {"name": "silent", "mean": lambda self, eta: eta}))()
    assert all(found.status != "failed" for found in check_family(silent).outcomes)
    assert not any(check.name.startswith("simulated") for check in checks_for_family(silent))


def spoiled(kind=Exponential, **attributes):
    """A sound family with other attributes."""
    return dataclass(frozen=True)(type("Spoiled", (kind,), attributes))()


class Mutable(Exponential):
    __hash__ = None


def three_columns(self, response):
    return np.stack([response] * 3, axis=1)


def changed_sums(**changes):
    """Sums in which some terms are functions of what they should be."""

    def sums(self, rows, theta):
        right = Family.sums(self, rows, theta)
        return right._replace(**{name: change(getattr(right, name), rows) for name, change in changes.items()})

    return sums


MUTANTS = [
    ("named", spoiled(name="waiting time"), "name = 'waiting time'"),
    ("named", spoiled(aliases=["exp"]), r"aliases = \['exp'\]"),
    ("found by name", spoiled(name="poisson"), r"Poisson\(.*\) under 'poisson'"),
    ("comparable", Mutable(), "TypeError: unhashable type"),
    ("comparable", spoiled(__eq__=lambda self, other: self is other), "a copy that is not equal"),
    ("described", spoiled(describe=lambda self: "two\nlines"), "two.nlines"),
    ("described", spoiled(needs=""), "needs = ''"),
    ("shapes", spoiled(mean=lambda self, eta: jnp.exp(eta[0])), r"`mean` of shape \(3, 4096\)"),
    ("shapes", spoiled(respond=lambda self, eta, noise, sd: jnp.exp(eta)), r"responses of shape \(1, 3, 4096\)"),
    ("shapes", spoiled(residual=lambda self, eta, y: eta / 0.0), "not finite"),
    ("mean", spoiled(mean=lambda self, eta: 2.0 * jnp.exp(eta)), r"mean is .* draws average"),
    ("unbiased", spoiled(residual=lambda self, eta, y: 1.0 - 1.2 * y * jnp.exp(-eta)), "the mean residual is 0"),
    ("convex", spoiled(residual=lambda self, eta, y: y * jnp.exp(-eta) - 1.0), "a residual that falls by"),
    ("steepness", spoiled(steepness=lambda self, eta, y: 0.0 * eta), "a steepness .* below the slope"),
    ("steepness", spoiled(steepness=lambda self, eta, y: y), r"shape \(3, 4096\), not \(1, 3, 4096\)"),
    ("responses suit", spoiled(kind=Poisson, respond=Exponential.respond), "poisson responses must be counts"),
    ("responses suit", spoiled(read=lambda self, target, values, levels: values + 1.0), "other values from `read`"),
    ("start", spoiled(start=lambda self, totals, n_rows: totals / n_rows), "a mean residual of"),
    ("start", spoiled(start_terms=lambda self, response: response), r"`start_terms` of shape \(12288,\)"),
    ("start", spoiled(start_terms=three_columns), r"\[.* .* .*\]"),
    ("rescaled", spoiled(kind=Huber, rescaled=lambda self, scale: self), "residuals that differ by"),
    ("sides", spoiled(sides=lambda self, response: [response]), r"shape \(12288,\) with values"),
    ("classes", spoiled(kind=OneVersusRest, with_classes=lambda self, n: replace(self, n_outputs=2)), "with 2 classes"),
    ("classes", spoiled(kind=Multinomial, classes_of_outputs=lambda self, classes: classes), "3 outputs for the class"),
    ("exact: residual", spoiled(loss=lambda self, eta, y: eta[0] + y), "residuals that differ .* by"),
    ("exact: curvature", spoiled(curvature=lambda self, eta, y: np.ones_like(eta)), "a curvature off by"),
    ("exact: weight", spoiled(weight=lambda self, eta, y: 1.0 - y * np.exp(-eta)), "a weight of -"),
    ("exact: score", spoiled(sums=changed_sums(score=lambda score, rows: -score)), "a score off by 2 of"),
    ("exact: observed", spoiled(observed=lambda self, rows, theta: np.eye(3)), "an information off by"),
    ("exact: information", spoiled(weight=lambda self, eta, y: -np.ones_like(eta)), "an eigenvalue of -"),
    ("exact: adds up", spoiled(sums=changed_sums(score=lambda s, rows: s / rows.n)), "`sums` of two halves"),
    ("exact: row scores", spoiled(row_scores=lambda self, rows, theta: np.ones((rows.n, 3))), "a total off by"),
    ("exact: goodness", spoiled(log_likelihood=lambda self, eta, y, phi: self.loss(eta, y)), "a rise of .* and not"),
    ("exact: perfect fit", spoiled(kind=Poisson, deviance=Family.deviance), "a deviance of"),
    ("simulated: mean gradient", spoiled(slopes=lambda self, *variances: (1.0, 1.0)), "mean_gradient is"),
]


@pytest.mark.parametrize(("name", "broken", "pattern"), MUTANTS)
def test_every_rule_finds_a_broken_family(name, broken, pattern):
    expect_failure(checks_for_family(broken), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(family._RULES, sys.modules[__name__])
    spoilt = {name for name, _, _ in MUTANTS}
    assert {f"exact: {name}" for name in rule_names(exact_family.RULES)} <= spoilt
