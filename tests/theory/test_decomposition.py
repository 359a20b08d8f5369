"""W + D_1 + D_2 + D_3 + D_4 is the error of the run: in the engine, and in its float64 twin."""

from __future__ import annotations

import numpy as np
import pytest

import fedgauss as fg
from oracles.data import regression_data, standardised_noise
from oracles.decomposition import decomposition
from oracles.local_sgd import local_sgd

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
N, TAU, RUNS = 40, 5, 50


def equal_problem():
    """The random-effects model, spelled out: a covariance for each client, as below, so that they share a program."""
    same = fg.problems.random_effects(4, seed=7)
    return fg.problems.linear(same.coefficients, same.noise_var, np.tile(np.eye(2), (4, 1, 1)))


def unequal_problem():
    rng = np.random.default_rng(5)
    root = rng.standard_normal((4, 2, 4))
    cov = root @ np.swapaxes(root, 1, 2) / 4 + 0.3 * np.eye(2)
    return fg.problems.linear(rng.standard_normal((4, 2)), 1.0, cov, [0.1, 0.2, 0.3, 0.4])


def terms_of(problem, start="zeros", phase=0):
    return fg.theory.error_terms(
        problem,
        fg.networks.ring(4),
        STEPS,
        N,
        sync_every=TAU,
        sync_phase=phase,
        replicates=RUNS,
        seed=3,
        start=start,
    )


def twin(problem, start=(0.0, 0.0), phase=0):
    x, y = regression_data(problem, N, RUNS, seed=3)
    identity = np.broadcast_to(np.eye(2), (4, 2, 2))
    eta, mask = STEPS.eta(N), fg.step_sizes.sync_mask(TAU, N, phase)
    mixing = fg.networks.ring(4).matrix
    fixed = (problem.coefficients, problem.noise_var, identity, problem.weights, mixing, eta, mask)
    path = local_sgd(*fixed, start, x, standardised_noise(problem, x, y))
    fixed = (problem.coefficients, problem.noise_var, problem.design_cov, problem.weights, eta)
    return decomposition(path, x, y, *fixed)


# One start a client; D_1 knows their mean only, (1, -1.5).
APART = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, -1.5], [1.0, -3.0]])


@pytest.mark.parametrize(
    ("start", "phase"), [((0.0, 0.0), 0), ((0.0, 0.0), 1), (APART, 0)], ids=["plain", "phase", "start"]
)
@pytest.mark.parametrize("make", [pytest.param(equal_problem, marks=pytest.mark.study), unequal_problem])
def test_the_terms_are_those_of_the_float64_twin(make, start, phase):
    problem = make()
    terms = terms_of(problem, start=np.asarray(start), phase=phase)
    left, *parts = twin(problem, start, phase)
    np.testing.assert_allclose(left, sum(parts), rtol=1e-10, atol=1e-10)
    ours = [terms.noise, terms.start, terms.curvature, terms.drift, terms.moving]
    for mine, theirs in zip([terms.left, *ours], [left, *parts], strict=True):
        np.testing.assert_allclose(mine, theirs.T, atol=1e-3 * np.abs(left).max())


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(equal_problem(), id="equal", marks=pytest.mark.study),
        pytest.param(unequal_problem(), id="unequal"),
        pytest.param(fg.problems.logistic(np.linspace(-0.3, 0.3, 8).reshape(4, 2)), id="logistic"),
        pytest.param(
            fg.problems.poisson(np.linspace(-0.3, 0.3, 8).reshape(4, 2)), id="poisson", marks=pytest.mark.study
        ),
        pytest.param(fg.problems.huber(np.linspace(-2, 2, 8).reshape(4, 2)), id="huber", marks=pytest.mark.study),
    ],
)
def test_the_terms_add_up(problem):
    assert terms_of(problem).gap < 1e-3


@pytest.mark.study
def test_the_terms_add_up_at_the_base_setting_of_the_paper():
    problem, ring = fg.problems.random_effects(10, seed=1), fg.networks.ring(10)
    terms = fg.theory.error_terms(problem, ring, STEPS, 500, sync_every=20, replicates=200)
    assert terms.gap < 1e-3


def test_curvature_and_drift_vanish_in_the_random_effects_model():
    left, _, _, d2, d3, _ = twin(equal_problem())
    assert np.abs(d2).max() < 1e-12 * np.abs(left).max()
    assert np.abs(d3).max() < 1e-12 * np.abs(left).max()
    terms = terms_of(equal_problem())
    assert np.abs(terms.curvature).max() < 1e-4
    assert np.abs(terms.drift).max() < 1e-4


def test_drift_does_not_vanish_with_unequal_hessians_and_weights():
    assert np.abs(terms_of(unequal_problem(), start="optimum").drift).max() > 0.05


def test_per_client_steps_are_refused():
    with pytest.raises(ValueError, match="one step size for all clients"):
        fg.theory.error_terms(equal_problem(), fg.networks.ring(4), np.full((5, 4), 0.1), 5)


def test_problems_without_a_mean_gradient_are_refused():
    problem = fg.problems.huber(np.zeros((4, 2)), df=5)
    with pytest.raises(NotImplementedError, match="no closed-form mean gradient"):
        terms_of(problem)


def test_terms_print_themselves():
    text = str(terms_of(equal_problem()))
    assert "D_4  moving noise" in text
