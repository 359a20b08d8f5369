"""Several settings in one pass are what each would be alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine.observers import Average, Disagreement, at, sup_partial_sum
from fedgauss.engine.simulate import Setting, simulate_together

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
WATCH = (sup_partial_sum(np.zeros(2)), at((3, 20, 40), Average()), at((40,), Disagreement()))


def settings(observe=WATCH, n_clients=6):
    """Other clients, networks, step sizes, mixing times and kinds of start."""
    clients = [fg.problems.random_effects(n_clients, seed=s) for s in range(4)]
    return [
        Setting(clients[0], fg.networks.ring(n_clients), STEPS, 5, 0, "zeros", observe),
        Setting(clients[1], fg.networks.lazy(n_clients, 0.3), STEPS, 7, 1, "optimum", observe),
        Setting(clients[2], fg.networks.ring(n_clients), STEPS, None, 0, fg.near_optimum(0.25), observe),
        Setting(clients[3], fg.networks.ring(n_clients), fg.step_sizes.polynomial(0.5, beta=0.9), observe=observe),
    ]


def alone(setting, n_steps, **more):
    return fg.simulate(
        setting.problem,
        setting.network,
        setting.steps,
        n_steps,
        sync_every=setting.sync_every,
        sync_phase=setting.sync_phase,
        start=setting.start,
        observe=setting.observe,
        **more,
    )


def test_together_is_alone_to_the_bit():
    """Catches a setting that sees another's clients, mixing times, start or random numbers."""
    together = simulate_together(settings(), 40, replicates=50, seed=3)
    for setting, runs in zip(settings(), together, strict=True):
        expected = alone(setting, 40, replicates=50, seed=3)
        np.testing.assert_array_equal(runs.average, expected.average)
        np.testing.assert_array_equal(runs.last, expected.last)
        assert runs.observed.keys() == expected.observed.keys()
        for name, value in expected.observed.items():
            np.testing.assert_array_equal(runs.observed[name], value)


def test_chunks_never_change_a_result():
    whole, chunked = (simulate_together(settings(), 40, replicates=50, memory_budget=b) for b in (2**30, 2e4))
    for one, other in zip(whole, chunked, strict=True):
        np.testing.assert_array_equal(one.average, other.average)


@pytest.mark.study
def test_large_networks_share_their_edges():
    """Beyond 64 clients mixing goes by a table of neighbours."""
    many = [
        Setting(fg.problems.random_effects(70, seed=s), fg.networks.ring(70), STEPS, tau) for s, tau in ((0, 2), (1, 3))
    ]
    for setting, runs in zip(many, simulate_together(many, 12, replicates=20), strict=True):
        np.testing.assert_array_equal(runs.average, alone(setting, 12, replicates=20).average)


def test_the_setting_that_diverges_is_found():
    *calm, _ = settings()
    wild = replace(calm[0], steps=fg.step_sizes.constant(200.0))
    with pytest.warns(fg.FedgaussWarning), pytest.raises(fg.DivergedError) as caught:
        simulate_together([*calm, wild], 100, replicates=50)
    assert caught.value.eta == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Setting(fg.problems.random_effects(7), fg.networks.ring(7), STEPS), "one shape"),
        (Setting(fg.problems.logistic(np.zeros((6, 2))), fg.networks.ring(6), STEPS), "one kind"),
        (Setting(fg.problems.random_effects(6), fg.networks.ring(6), STEPS, observe=["cusum"]), "one kind"),
    ],
)
def test_settings_of_another_kind_are_refused(other, said):
    with pytest.raises(ValueError, match=said):
        simulate_together([settings(observe=())[0], other], 10)


def test_another_network_beyond_64_clients_is_refused():
    problem = fg.problems.random_effects(70)
    ring, torus = (Setting(problem, net, STEPS) for net in (fg.networks.ring(70), fg.networks.torus(7, 10)))
    with pytest.raises(ValueError, match=r"one shape|share their network"):
        simulate_together([ring, torus], 10)


def test_no_setting_is_refused():
    with pytest.raises(ValueError, match="at least one Setting"):
        simulate_together([], 10)
