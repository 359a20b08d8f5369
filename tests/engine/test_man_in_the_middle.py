"""A forged message on one edge: against a slow twin, honest until it begins, and refused where there is no edge."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine.mixing import DenseMixing, EdgeMixing, NeighbourMixing, TamperedMixing, mixing_of
from oracles.data import regression_data

STEPS = fg.step_sizes.polynomial(0.3, beta=0.75)
N_STEPS, TAU, START = 24, 3, 13  # the first forged message is that of step 15
NETWORKS = {
    "dense": (fg.networks.ring(5), DenseMixing),
    "dense, uniform": (fg.networks.lazy(5, 0.4), DenseMixing),
    "neighbours": (fg.networks.ring(80), NeighbourMixing),
    "neighbours, uniform": (fg.networks.complete(80), NeighbourMixing),
    "edges": (fg.networks.star(80), EdgeMixing),
}


def tampered(network, source=0, target=1, start=START, factor=-0.5, shift=(1.0, -2.0)):
    return fg.networks.man_in_the_middle(network, source, target, start, factor, shift)


# The other two ways of mixing go with the studies: each compiles programs of its own.
CASES = [case if case == "edges" else pytest.param(case, marks=pytest.mark.study) for case in NETWORKS]


def simulated(network, n_steps=N_STEPS, sync_every=TAU, **more):
    problem = fg.problems.random_effects(network.n_clients, seed=4)
    look = [fg.observers.uploads(TAU)]
    return fg.simulate(
        problem, network, STEPS, n_steps, sync_every=sync_every, replicates=6, seed=7, keep="path", observe=look, **more
    )


def twin(network, forgers):
    """What clients send, (R, J, K, d), one message at a time; each forger is (source, target, start, factor, shift)."""
    problem = fg.problems.random_effects(network.n_clients, seed=4)
    n_clients, matrix = problem.n_clients, network.matrix
    x, y = regression_data(problem, N_STEPS, 6, 7)
    theta, sent = np.zeros((n_clients, 2, 6)), []
    for t in range(1, N_STEPS + 1):
        residual = (x[t - 1] * theta).sum(axis=1) - y[t - 1]
        theta = theta - STEPS.eta(N_STEPS)[t - 1] * x[t - 1] * residual[:, None]
        if t % TAU == 0:
            sent.append(np.moveaxis(theta, -1, 0))
            mixed = np.zeros_like(theta)
            for source, target in zip(*np.nonzero(matrix), strict=True):
                message = theta[source]
                for a, b, start, factor, shift in forgers:
                    if (a, b) == (source, target) and t >= start:
                        message = factor * theta[source] + np.broadcast_to(shift, 2)[:, None]
                mixed[target] += matrix[source, target] * message
            theta = mixed
    return np.stack(sent, axis=1)


@pytest.mark.parametrize("case", CASES)
def test_a_run_follows_the_recursion_with_one_forged_message(case):
    network, kind = NETWORKS[case]
    forged = tampered(network)
    mixing = mixing_of(forged, dim=2)
    assert isinstance(mixing, TamperedMixing)
    assert isinstance(mixing.inner, kind)
    expected = twin(network, [(0, 1, START, -0.5, (1.0, -2.0))])
    np.testing.assert_allclose(simulated(forged).sent, expected, atol=2e-5)
    assert np.abs(expected - twin(network, [])).max() > 1e-2  # the twin tells an attack from none


def test_two_edges_are_forged_by_two_men():
    network = fg.networks.ring(5)
    both = tampered(tampered(network), 1, 0, start=7, factor=2.0, shift=0.5)
    expected = twin(network, [(0, 1, START, -0.5, (1.0, -2.0)), (1, 0, 7, 2.0, 0.5)])
    np.testing.assert_allclose(simulated(both).sent, expected, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_honest_to_the_bit_until_the_first_forged_message(case):
    network, _ = NETWORKS[case]
    honest, forged = simulated(network), simulated(tampered(network))
    np.testing.assert_array_equal(forged.path[:, :14], honest.path[:, :14])
    np.testing.assert_array_equal(forged.sent[:, :5], honest.sent[:, :5])
    assert (forged.path[:, 14] != honest.path[:, 14]).all()


@pytest.mark.parametrize("case", CASES)
def test_only_the_target_is_told_something_else(case):
    network, _ = NETWORKS[case]
    honest, forged = simulated(network), simulated(tampered(network))
    differs = (forged.began[:, 5] != honest.began[:, 5]).any(axis=(0, 2))  # where clients begin after step 15
    np.testing.assert_array_equal(np.flatnonzero(differs), [1])


@pytest.mark.parametrize("case", CASES)
def test_a_message_passed_on_as_it_was_changes_no_bit(case):
    network, _ = NETWORKS[case]
    idle = tampered(network, start=1, factor=1.0, shift=0.0)
    np.testing.assert_array_equal(simulated(idle).path, simulated(network).path)
    np.testing.assert_array_equal(simulated(idle).sent, simulated(network).sent)


def test_steps_without_synchronisation_are_not_attacked():
    silent = tampered(NETWORKS["edges"][0], start=1)
    runs = [simulated(network, sync_every=None) for network in (silent, silent.honest)]
    np.testing.assert_array_equal(runs[0].path, runs[1].path)


@pytest.mark.parametrize("case", ["dense", pytest.param("neighbours", marks=pytest.mark.study)])
def test_several_forgers_run_together_are_what_each_is_alone(case):
    """Numbers and vectors of shift stack, and a forger who does nothing stands for an honest setting."""
    network, _ = NETWORKS[case]
    problem, look = fg.problems.random_effects(network.n_clients, seed=4), [fg.observers.uploads(TAU)]
    many = [tampered(network, factor=f, shift=s) for f, s in ((1.0, 0.0), (-1.0, 0.0), (1.0, (2.0, 3.0)))]
    settings = [fg.Setting(problem, one, STEPS, TAU, observe=look).keeping("path") for one in many]
    for one, runs in zip(many, fg.simulate_together(settings, N_STEPS, replicates=6, seed=7), strict=True):
        alone = simulated(one)
        np.testing.assert_array_equal(runs.average, alone.average)
        np.testing.assert_array_equal(runs.last, alone.last)


@pytest.mark.study
def test_chunks_do_not_change_a_forged_run():
    problem, forged = fg.problems.random_effects(5, seed=4), tampered(fg.networks.ring(5))
    whole, chunked = (
        fg.simulate(problem, forged, STEPS, 30, sync_every=TAU, replicates=200, memory_budget=budget)
        for budget in (2**30, 1e4)
    )
    np.testing.assert_array_equal(whole.last, chunked.last)


def test_forgers_on_several_edges_run_apart():
    problem = fg.problems.random_effects(5, seed=4)
    others = [tampered(fg.networks.ring(5), target=k) for k in (1, 4)]
    with pytest.raises(ValueError, match="when and on which edge an attack begins"):
        fg.simulate_together([fg.Setting(problem, other, STEPS) for other in others], 5)


def test_theory_is_that_of_the_honest_network():
    network = fg.networks.lazy(6, 0.4)
    forged = tampered(network)
    np.testing.assert_array_equal(forged.matrix, network.matrix)
    assert forged.second_eigenvalue == network.second_eigenvalue
    assert forged.edges == network.edges
    assert forged.weight == pytest.approx(network.matrix[0, 1])
    assert str(forged) == f"{network}; messages from 0 to 1 are forged from step {START} on"
    problem = fg.problems.random_effects(6, seed=4)
    exact = [
        fg.theory.exact_moments(problem, n, STEPS, 30, sync_every=TAU, start_mean=np.zeros(2)).cov_last
        for n in (network, forged)
    ]
    np.testing.assert_array_equal(*exact)


RING = fg.networks.ring(5)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tampered(RING, 0, 2), r"must average with each other; clients 0 and 2 do not\. .*averages with 1, 4"),
        (
            lambda: tampered(RING, 3, 3),
            "must differ.*got 3 twice. For a malicious client, use an attack of",
        ),
        (lambda: tampered(RING, 0, 5), r"target must be at most 4; got 5\. Clients are numbered 0 to 4"),
        (lambda: tampered(RING, -1, 0), "source must be at least 0; got -1. Clients are numbered 0 to 4"),
        (lambda: tampered(RING, 0.5, 1), "source must be a whole number; got 0.5"),
        (lambda: tampered(RING, start=0), "start must be at least 1; got 0. Steps count from 1"),
        (lambda: tampered(RING, factor=np.nan), "factor must be finite; got nan"),
        (lambda: tampered(RING, shift=[1.0, np.inf]), "shift must be finite; got inf"),
        (lambda: tampered(RING, shift=np.zeros((5, 2))), r"shift must be a number or a vector.*got shape \(5, 2\)"),
        (
            lambda: tampered(np.eye(5)),
            r"network must be made by fedgauss.networks; got ndarray\. Use networks.from_mat",
        ),
        (lambda: tampered(nx.cycle_graph(5)), "network must be made by fedgauss.networks; got Graph"),
        (
            lambda: tampered(tampered(RING)),
            "only one man in the middle; messages from 0 to 1 are already forged from",
        ),
        (
            lambda: simulated(tampered(RING, shift=[1.0, 2.0, 3.0])),
            r"shift of man_in_the_middle must be a number or have shape \(2,\), .*got shape \(3,\)",
        ),
    ],
)
def test_a_forger_that_cannot_be_is_refused_with_rule_value_and_fix(build, message):
    with pytest.raises(ValueError, match=message):
        build()
