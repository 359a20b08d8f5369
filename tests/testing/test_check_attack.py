"""The battery for attacks: every shipped one passes, and every rule finds a broken one."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from broken_parts import expect_every_rule_has_a_mutant, expect_failure

from fedgauss import problems
from fedgauss.problems import AttackedProblem, pytree
from fedgauss.problems.attacked import MeanLaw, ScaledGradient
from fedgauss.testing import attack, check_attack, check_problem, checks_for_attack

RNG = np.random.default_rng(0)
HONEST = problems.linear(RNG.standard_normal((3, 2)), [1.0, 2.0, 3.0], weights=[0.2, 0.3, 0.5])
X = RNG.standard_normal((60, 2))
LABELS = (X[:, 0] + RNG.standard_normal(60) > 0).astype(float)
ROWS = problems.from_arrays(X, LABELS, np.arange(60) % 3, "logistic", order="replacement")
BAD = [1]

SHIPPED = {
    "mean_shift": problems.mean_shift(HONEST, BAD, [1.0, -0.5], 9),
    "label_flip": problems.label_flip(ROWS, BAD, 9),
    "sign_flip": problems.sign_flip(HONEST, BAD, 9),
    "gradient_scaling": problems.gradient_scaling(HONEST, BAD, 2.5, 9),
    "gradient_noise": problems.gradient_noise(HONEST, BAD, [3.0, 1.0], 9),
    "little_is_enough": problems.little_is_enough(HONEST, BAD, 1.5, 9),
    "inner_product_manipulation": problems.inner_product_manipulation(HONEST, BAD, 0.8, 9),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_attacks_conform(name):
    report = check_attack(SHIPPED[name])
    assert len(report.outcomes) == 12


def test_no_shipped_attack_is_left_out():
    kinds, found = {type(each) for each in SHIPPED.values()}, [AttackedProblem]
    for kind in found:
        found += [each for each in kind.__subclasses__() if each.__module__.startswith("fedgauss.")]
    assert set(found[1:]) == kinds


def test_an_attack_is_a_problem_too():
    check_problem(SHIPPED["sign_flip"])


def test_other_problems_are_refused():
    with pytest.raises(ValueError, match=r"must be a subclass of problems\.AttackedProblem; got Regression"):
        check_attack(HONEST)


def spoiled(factor=2.0, chosen=(0.0, 1.0, 0.0), **methods):
    """Gradient scaling with other methods."""
    kind = pytree(type("Spoiled", (ScaledGradient,), methods))
    return kind(HONEST, np.array(chosen), problems.from_step(9), factor)


def at_once(self, theta, data):
    """Without regard to the schedule."""
    return self.problem.gradient(theta, data[1]) * (1.0 + jnp.asarray(self.chosen)[:, None])


def everybody(self, theta, data):
    return self.problem.gradient(theta, data[1]) * (1.0 + data[0].max())


def half_at_full(self, theta, data):
    strength, xi, _ = data
    return self.problem.gradient(theta, xi) * (1.0 + 4.0 * strength * (1.0 - strength) + 0.1 * strength)


def branching(self, theta, data):
    return self.problem.gradient(theta, data[1]) * (2.0 if data[0].max() > 0 else 1.0)


def honest_moments(self, theta):
    return self.problem.moments(theta)


def wrong_shape(self, theta):
    return self.problem.moments(theta)._replace(gradient=np.zeros((2, 3)))


def honest_mean(self, theta):
    moments = self.problem.moments(theta)
    weights = np.asarray(self.weights)
    return MeanLaw(weights @ moments.gradient, np.einsum("k,kij->ij", weights**2, moments.noise_cov))


NOT_REGISTERED = type("NotRegistered", (ScaledGradient,), {})

MUTANTS = [
    ("same clients", spoiled(weights=np.full(3, 1 / 3)), r"weights \[0\.33"),
    ("same clients", spoiled(dim=4), "dim = 4, not 2"),
    ("same clients", spoiled(max_steps=lambda self: 7), "7 steps, not None"),
    ("chosen clients", spoiled(chosen=(1.0, 1.0, 1.0)), r"\[1\. 1\. 1\.\]"),
    ("chosen clients", spoiled(chosen=(0.5, 0.0, 0.0)), r"\[0\.5 0\.  0\. \]"),
    ("chosen clients", spoiled(chosen=(0.0, 1.0)), r"shape \(2,\)"),
    ("pytree", NOT_REGISTERED(HONEST, np.array([0.0, 1.0, 0.0]), problems.from_step(9), 2.0), "is a leaf itself"),
    ("reference", spoiled(reference=lambda self: self), "<Spoiled: 3 clients, 2 dimensions>, not <Regression"),
    ("honest before", spoiled(gradient=at_once), "gradients that differ by .* at step 2"),
    ("acts afterwards", spoiled(factor=1.0), r"honest gradients of clients \[1\]"),
    ("spares the others", spoiled(gradient=everybody), "honest clients' gradients that differ by"),
    ("grows with intensity", spoiled(gradient=half_at_full), "at half intensity and .* at full"),
    ("moments", spoiled(attacked_moments=honest_moments), r"attacked_moments\.gradient is .* draws average"),
    ("moments", spoiled(attacked_moments=wrong_shape), r"shapes \(\(2, 3\)"),
    ("mean law", spoiled(attacked_mean=honest_mean), r"attacked_mean\.gradient is"),
    ("preserves mean", spoiled(preserves_mean=True), "the claimed shift of the mean is 0 at index"),
    ("compiles", spoiled(gradient=branching), "TracerBoolConversionError"),
]


@pytest.mark.parametrize(("name", "broken", "pattern"), MUTANTS)
def test_every_rule_finds_a_broken_attack(name, broken, pattern):
    expect_failure(checks_for_attack(broken), name, pattern)


def test_every_rule_has_a_mutant():
    expect_every_rule_has_a_mutant(attack._RULES, sys.modules[__name__])
