"""An attack of no strength, or one that has not begun, leaves the honest run as it is."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauss as fg

N_STEPS, TAU, K = 60, 5, 4  # as in problems/test_attacks.py, whose programs these share
STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
RING = fg.networks.ring(K)
LINEAR, LOGISTIC = fg.problems.random_effects(K, seed=1), fg.problems.logistic(np.ones((K, 2)))
STRENGTH = {  # the strength at which an attack does nothing, whenever it begins
    "mean_shift": 0.0,
    "gradient_scaling": 1.0,
    "gradient_noise": 0.0,
}
LATE = [*STRENGTH, "sign_flip", "label_flip"]
COLLUSION = ["little_is_enough", "inner_product_manipulation"]

some = st.sets(st.integers(0, K - 1), min_size=1, max_size=K - 1).map(sorted)
begins = st.integers(1, 2 * N_STEPS)
schedules = st.one_of(
    st.builds(fg.problems.from_step, begins),
    st.builds(fg.problems.slow_drift, begins, st.floats(1.0, 100.0)),
    st.builds(fg.problems.on_off, begins, st.integers(1, 9), st.integers(1, 9)),
)


def path(problem, network=RING):
    return fg.simulate(problem, network, STEPS, N_STEPS, sync_every=TAU, replicates=8, seed=5, keep="path").path


@cache
def honest(problem):
    return path(problem)


def attack(name, clients, strength, when):
    problem = LOGISTIC if name == "label_flip" else LINEAR
    given_strength = () if name in ("sign_flip", "label_flip") else (strength,)
    return getattr(fg.problems, name)(problem, clients, *given_strength, when)


@pytest.mark.parametrize(
    "name", ["mean_shift", *(pytest.param(name, marks=pytest.mark.study) for name in STRENGTH if name != "mean_shift")]
)
@settings(max_examples=15, deadline=None)
@given(clients=some, when=schedules)
def test_an_attack_of_no_strength_changes_no_bit(name, clients, when):
    idle = attack(name, clients, STRENGTH[name], when)
    np.testing.assert_array_equal(path(idle), honest(idle.problem))


@pytest.mark.study
@pytest.mark.parametrize("name", LATE)
@settings(max_examples=15, deadline=None)
@given(clients=some, when=schedules, strength=st.floats(0.0, 5.0))
def test_an_attack_changes_no_bit_before_it_begins(name, clients, when, strength):
    late = attack(name, clients, strength, when)
    before = int(when.start) - 1
    np.testing.assert_array_equal(path(late)[:, :before], honest(late.problem)[:, :before])


@pytest.mark.parametrize("name", COLLUSION)
@settings(max_examples=15, deadline=None)
@given(clients=some, when=schedules, strength=st.floats(0.0, 5.0))
def test_colluders_change_nothing_but_rounding_before_they_begin(name, clients, when, strength):
    """The mean of the honest gradients is part of the program, and may change how the compiler rounds the others."""
    late = attack(name, clients, strength, when)
    before = int(when.start) - 1
    np.testing.assert_allclose(path(late)[:, :before], honest(late.problem)[:, :before], atol=5e-6)


@settings(max_examples=15, deadline=None)
@given(
    source=st.integers(0, K - 1),
    aside=st.sampled_from([1, K - 1]),
    start=st.integers(1, 2 * N_STEPS),
    factor=st.floats(-5.0, 5.0),
    shift=st.floats(-5.0, 5.0),
)
def test_a_man_in_the_middle_changes_no_bit_before_he_begins(source, aside, start, factor, shift):
    forged = fg.networks.man_in_the_middle(RING, source, (source + aside) % K, start, factor, shift)
    first = -(-start // TAU) * TAU  # the first synchronisation from `start` on
    np.testing.assert_array_equal(path(LINEAR, forged)[:, : first - 1], honest(LINEAR)[:, : first - 1])
