"""Going on from where a shorter run ended."""

import numpy as np
import pytest

import fedgauss as fg

PROBLEM, STEPS = fg.problems.random_effects(4, seed=1), fg.step_sizes.polynomial(0.3, 0.75)
EVERYBODY = fg.networks.complete(4)


def run(n_steps, **options):
    options = {"sync_every": 10, "replicates": 20, "seed": 3, "observe": [fg.observers.Path(10)]} | options
    return fg.simulate(PROBLEM, EVERYBODY, STEPS, n_steps, **options)


def test_two_halves_are_the_whole():
    whole, first = run(60), run(30)
    second = run(60, after=30, start=np.repeat(first.last[:, None], 4, axis=1))
    np.testing.assert_array_equal(second.last, whole.last)
    np.testing.assert_array_equal(second.path[:, 3:], whole.path[:, 3:])
    both = (30 * first.average + 30 * second.average) / 60
    np.testing.assert_allclose(both, whole.average, rtol=1e-5, atol=1e-6)


def test_nothing_is_left_to_do():
    with pytest.raises(ValueError, match="after must be at most 59; got 60"):
        run(60, after=60)
