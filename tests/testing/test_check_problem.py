"""The battery for problems: every shipped one passes, and every rule finds a broken one."""

import sys
from dataclasses import dataclass, field
from inspect import isabstract

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure, outcome

from fedgauss import linearize, problems
from fedgauss.inference.client_steps import Preconditioned
from fedgauss.problems import AttackedProblem, Moments, Problem, pytree
from fedgauss.testing import check_problem, checks_for_problem, problem
from fedgauss.testing.chance import expect_mean

RNG = np.random.default_rng(0)
K, D = 3, 2
BETA = RNG.standard_normal((K, D))
X = RNG.standard_normal((60, D))
Y = X @ [1.0, -1.0] + RNG.standard_normal(60)
OWNER = np.arange(60) % K
LINEAR = problems.linear(BETA, [1.0, 2.0, 3.0], weights=[0.2, 0.3, 0.5])


def squared_loss(theta, xi):
    return 0.5 * (xi[0] @ theta - xi[1]) ** 2


def normal_row(key, center):
    x, error = jax.random.normal(key, (D,)), jax.random.normal(jax.random.fold_in(key, 1))
    return x, center * x[0] + error


SHIPPED = {
    "linear": LINEAR,
    "linear, correlated": problems.linear(BETA, design_cov=[[2.0, 0.5], [0.5, 1.0]]),
    "linear, Student": problems.linear(BETA, df=5.0),
    "logistic": problems.logistic(BETA),
    "poisson": problems.poisson(0.3 * BETA),
    "huber": problems.huber(BETA),
    "one_versus_rest": problems.one_versus_rest(RNG.standard_normal((K, 2, 2))),
    "from_loss": problems.from_loss(squared_loss, normal_row, dim=D, clients=np.arange(3.0)),
    "from_arrays once": problems.from_arrays(X, Y, OWNER),
    "from_arrays replacement": problems.from_arrays(X, Y > 0, OWNER, "logistic", order="replacement"),
    "gaussian_surrogate": problems.gaussian_surrogate(linearize(LINEAR)),
    "change_at": problems.change_at(LINEAR, problems.linear(BETA + 1.0, weights=[0.2, 0.3, 0.5]), 5),
    "coupled": problems.coupled(LINEAR, 5),
    "preconditioned": Preconditioned(LINEAR, np.diag([1.0, 0.5]), np.full(8, 0.1), "damped"),
}
# Wrappers of problems that are checked themselves, and those that differ from others by a number or compile longest.
RARELY = ("change_at", "coupled", "preconditioned", "from_arrays once", "linear, correlated", "linear, Student")
LONG = dict.fromkeys(RARELY, pytest.mark.study)
ELSEWHERE = {"Chains", "RowBatches"}  # of one run, not of independent replicates


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in SHIPPED])
def test_shipped_problems_conform(name):
    report = check_problem(SHIPPED[name])
    assert len(report.outcomes) == 25


@pytest.mark.study
def test_mnist_conforms():
    check_problem(problems.mnist(3))


def test_no_shipped_problem_is_left_out():
    kinds = [Problem]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if not issubclass(each, AttackedProblem)]
    shipped = {each.__name__ for each in kinds if each.__module__.startswith("fedgauss.") and not isabstract(each)}
    named = {name for name in shipped if not name.startswith("_")} - ELSEWHERE
    assert named == {type(each).__name__ for each in SHIPPED.values()}


@pytree
class Quadratic(Problem):
    """f_k = |theta - c_k - z|^2 / 2 with z ~ N(0, s_k^2 I): a sound problem, for mutants to spoil."""

    centers: np.ndarray  # (K, d)
    sd: np.ndarray  # (K,)
    weights: np.ndarray

    @property
    def dim(self):
        return int(np.shape(self.centers)[1])

    def sample(self, noise, t):
        return jnp.asarray(self.sd)[:, None] * noise.normal(self.dim)

    def plain(self, theta, data):
        return theta - jnp.asarray(self.centers).T[:, :, None] - data

    gradient = plain

    def mean_gradient(self, theta):
        return theta - jnp.asarray(self.centers).T[:, :, None]

    def moments(self, theta):
        eye = np.broadcast_to(np.eye(self.dim), (self.n_clients, self.dim, self.dim))
        return Moments(theta - self.centers, eye, np.asarray(self.sd)[:, None, None] ** 2 * eye)


def quadratic(kind=Quadratic, weights=(0.2, 0.3, 0.5)):
    return kind(BETA, np.array([0.5, 1.0, 2.0]), np.array(weights))


def spoiled(**methods):
    """The sound problem with other methods."""
    return quadratic(pytree(type("Spoiled", (Quadratic,), methods)))


def moments_with(**changes):
    """Moments of which a part is changed by a function."""

    def moments(self, theta):
        found = Quadratic.moments(self, theta)
        return found._replace(**{name: change(getattr(found, name)) for name, change in changes.items()})

    return moments


@dataclass(frozen=True, repr=False)
class Comparable(Quadratic):
    """Compared by its fields, and so without a hash that works."""


@pytree
class Listed(Quadratic):
    names: list = field(default_factory=list, metadata={"static": True})


@pytree
class Worded(Quadratic):
    name: str = "words"


def reads_the_wall_clock(self, noise, t):
    return jnp.asarray(np.random.standard_normal((2, 3, noise.n_replicates)), jnp.float32)  # noqa: NPY002


def branching(self, noise, t):
    return noise.normal(2) if t > 3 else 2.0 * noise.normal(2)


def first_of_all(self, noise, t):
    """Whoever asks is given the centres of the first clients."""
    return noise.normal(2) + jnp.asarray(self.centers)[: noise.shape[0]].T[:, :, None]


def pulled_to_data(self, theta, data):
    return theta - data


def doubled(self, theta):
    return 2.0 * Quadratic.mean_gradient(self, theta)


def lopsided(hessian):
    return hessian + np.triu(np.ones((2, 2)))


MUTANTS = [
    ("dimensions", spoiled(dim=2.0), r"dim = 2\.0"),
    ("weights", quadratic(weights=(0.5, 0.5, 0.5)), r"weights that sum to 1\.5"),
    ("weights", quadratic(weights=(0.0, 0.5, 0.5)), "a smallest weight of 0"),
    ("weights", quadratic(weights=np.eye(3)), r"weights of shape \(3, 3\)"),
    ("pytree", quadratic(type("NotRegistered", (Quadratic,), {})), "NotRegistered is a leaf itself"),
    ("pytree", quadratic(Listed), "a static field names that cannot be hashed"),
    ("pytree", quadratic(Worded), "fields that are not numbers: str"),
    ("hashable", quadratic(Comparable), "TypeError: unhashable"),
    ("short repr", spoiled(__repr__=lambda self: repr(vars(self)) * 3), "7 lines and 549 characters"),
    ("gradient shape", spoiled(gradient=lambda self, theta, data: data.swapaxes(1, 2)), r"shape \(2, 8192, 3\)"),
    ("gradient finite", spoiled(gradient=lambda self, theta, data: jnp.log(theta)), "entries that are not"),
    ("repeatable", spoiled(sample=reads_the_wall_clock), "another program"),
    ("chunks", spoiled(gradient=lambda self, theta, data: theta - theta.mean(axis=-1, keepdims=True)), "differ by"),
    ("fresh data", spoiled(sample=lambda self, noise, t: noise.of_run.normal(2)), "the same data in steps 1 and 2"),
    ("fresh data", spoiled(sample=lambda self, noise, t: noise.normal(2)[..., :1]), "the same data in every replicate"),
    ("independent clients", spoiled(sample=lambda self, noise, t: noise.normal(2)[:, :1]), "of neighbouring clients"),
    ("shared data", spoiled(gradient=lambda self, theta, data: jax.vmap(jnp.subtract, (2, 2), 2)(theta, data)), "size"),
    ("curvature", spoiled(curvature=lambda self, theta, data, along: 2.0 * along), r"5 per cent in 100%"),
    ("curvature", spoiled(hessian_factors=lambda self, theta, data: 2 * (theta[None],)), "`hessian_factors` whose"),
    ("curvature", spoiled(steepness=lambda self, theta, data, along: along), r"`steepness` of shape \(2, 3, 8192\)"),
    ("compiles", spoiled(sample=branching), "TracerBoolConversionError"),
    ("guess", spoiled(guess=lambda self: np.zeros(3)), r"shape \(3,\)"),
    ("guess", spoiled(guess=lambda self: np.full(2, np.nan)), "nan"),
    ("mean gradient", spoiled(mean_gradient=doubled, gradient=Quadratic.plain), "mean_gradient is"),
    ("moments shape", spoiled(moments=moments_with(gradient=np.transpose)), r"shapes \(\(2, 3\)"),
    ("moments shape", spoiled(moments=moments_with(hessian=lopsided)), "away from its transpose"),
    ("moments shape", spoiled(moments=moments_with(noise_cov=np.negative)), r"an eigenvalue of -4"),
    ("moments gradient", spoiled(moments=moments_with(gradient=lambda g: 1.2 * g)), r"moments\.gradient is"),
    ("moments noise", spoiled(moments=moments_with(noise_cov=np.sqrt)), r"moments\.noise_cov is 2 at index"),
    ("moments hessian", spoiled(moments=moments_with(hessian=lambda h: 2.0 * h)), "a Hessian 1 away from a difference"),
    ("moments hessian", spoiled(risk=lambda self, theta: (self.centers, np.zeros((3, 2, 2)))), "`risk` .* away"),
    ("optimum", spoiled(moments=moments_with(gradient=lambda g: g + 1.0)), "the gradient at the optimum is 0 at index"),
    ("optimum", spoiled(moments=moments_with(hessian=np.negative, gradient=np.negative)), "eigenvalue of -1"),
    ("reference", spoiled(reference=lambda self: problems.logistic(np.ones((3, 4)))), "3 clients and 4 dimensions"),
    ("reference", spoiled(reference=lambda self: None), "NoneType"),
    ("replicates", spoiled(replicates=lambda self, first, count: first), "Got: int"),
    ("some clients", spoiled(serves_some=True), "Incompatible shapes for broadcasting"),
    ("some clients", spoiled(serves_some=True, sample=first_of_all, gradient=pulled_to_data), "asked alone"),
    ("max steps", spoiled(max_steps=lambda self: 2.5), r"2\.5"),
]


@pytest.mark.parametrize(("name", "broken", "pattern"), MUTANTS)
def test_every_rule_finds_a_broken_problem(name, broken, pattern):
    expect_failure(checks_for_problem(broken), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(problem._RULES, sys.modules[__name__])


def test_the_sound_problem_conforms_wherever_it_is_looked_at():
    report = check_problem(quadratic(), at=[3.0, -1.0])
    assert [found.name for found in report.outcomes if found.status == "skipped"] == ["some clients", "max steps"]


def test_a_problem_without_noise_draws_no_data():
    still = spoiled(sample=lambda self, noise, t: jnp.zeros((2, 3, noise.n_replicates)))
    assert outcome(checks_for_problem(still), "fresh data").status == "skipped"


def test_a_check_by_sampling_seldom_fails_wrongly_and_finds_a_small_error():
    """One thousand checks of a thousand-draw mean: at most 1e-4 each, so that 3 failures have a chance below 2e-4."""
    draws = RNG.exponential(size=(1000, 1024))
    failures = 0
    for each in draws:
        try:
            expect_mean(each[None], np.ones(1), "the mean", "none.")
        except AssertionError:
            failures += 1
    assert failures <= 2
    with pytest.raises(AssertionError, match=r"the mean is 1\.3 at index \(0,\), but 1024 draws average"):
        expect_mean(draws[:1], np.array([1.3]), "the mean", "none.")
