from __future__ import annotations

import jax
import numpy as np
import pytest

import fedgauss as fg

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
RING = fg.networks.ring(4)
HONEST = fg.problems.random_effects(4, seed=0)


def shifted(clients, by):
    beta = HONEST.coefficients.copy()
    beta[clients] += by
    return fg.problems.linear(beta, HONEST.noise_var)


def path(problem, n=60):
    return fg.simulate(problem, RING, STEPS, n, sync_every=5, replicates=8, start="optimum", keep="path").path


def test_a_change_leaves_the_past_alone_and_then_follows_the_new_problem():
    attacked = fg.problems.change_at(HONEST, shifted([0, 1], 3.0), start=30)
    before, after = path(HONEST), path(attacked)
    np.testing.assert_allclose(before[:, :29], after[:, :29], atol=1e-6)
    assert np.abs(before[:, 29:] - after[:, 29:]).max(axis=2).min() > 1e-4


def test_an_attack_can_be_repaired():
    attacked = fg.problems.change_at(HONEST, shifted([0, 1], 3.0), start=30)
    repaired = fg.problems.change_at(attacked, HONEST, start=31)
    np.testing.assert_allclose(path(attacked)[:, :30], path(repaired)[:, :30], atol=1e-6)
    assert np.abs(path(repaired)[:, -1] - path(attacked)[:, -1]).max() > 0.1
    with pytest.raises(ValueError, match="got one at step 20 after one at step 30"):
        fg.problems.change_at(attacked, HONEST, start=20)


def test_linearize_of_a_changed_loss_sees_the_honest_part_alone():
    def problem(center):
        return fg.problems.from_loss(
            lambda theta, xi: 0.5 * ((theta - xi) ** 2).sum(),
            lambda key, k: center + jax.random.normal(key, (2,)),
            dim=2,
            clients=4,
        )

    changed = fg.problems.change_at(problem(0.0), problem(10.0), start=5)
    lin = fg.linearize(changed, samples=256, batches=16)
    assert np.abs(lin.optimum).max() < 0.1


def test_a_change_at_step_one_is_the_other_problem():
    other = shifted([2], -1.0)
    changed = fg.problems.change_at(HONEST, other, start=1)
    start = np.zeros(2)
    runs = [fg.simulate(p, RING, STEPS, 20, replicates=8, start=start).average for p in (changed, other)]
    np.testing.assert_allclose(*runs, atol=1e-6)


def test_theory_of_a_changed_problem_is_that_of_the_honest_one():
    attacked = fg.problems.change_at(HONEST, shifted([0], 1.0), start=9)
    np.testing.assert_allclose(fg.linearize(attacked).optimum, fg.linearize(HONEST).optimum)


@pytest.mark.parametrize(
    ("after", "start", "message"),
    [
        (HONEST, 0, "start must be at least 1; got 0. Steps count from 1"),
        (HONEST, 2**32, "start must be at most"),
        (fg.problems.random_effects(5, seed=0), 3, "same clients and dimension; got 4 x 2 before and 5 x 2"),
        (fg.problems.linear(HONEST.coefficients, weights=[0.1, 0.2, 0.3, 0.4]), 3, "same weights"),
        (fg.problems.gaussian_surrogate(fg.linearize(HONEST)), 3, "data of the same shapes"),
    ],
)
def test_bad_changes_are_refused(after, start, message):
    with pytest.raises(ValueError, match=message):
        fg.problems.change_at(HONEST, after, start)


def test_problems_print_themselves():
    assert repr(HONEST) == "<Regression: 4 clients, 2 dimensions>"
