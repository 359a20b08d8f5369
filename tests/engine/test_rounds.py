"""Rounds as federations have them: links that fail, pairs that meet, clients that come and go."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.engine.participation import among_smallest
from oracles.rounds import federated_sgd

STEPS, N, TAU = fg.step_sizes.polynomial(0.3, beta=0.75), 20, 3
RING, EVERYBODY = fg.networks.ring(5), fg.networks.complete(5)


def clients(n_clients=5, seed=3):
    """Clients that differ in everything."""
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((n_clients, 2, 4))
    weights = rng.uniform(0.5, 1.5, n_clients)
    cov = g @ np.swapaxes(g, 1, 2) / 4 + 0.2 * np.eye(2)
    beta = rng.standard_normal((n_clients, 2))
    return fg.problems.linear(beta, rng.uniform(0.5, 2, n_clients), cov, weights / weights.sum())


CASES = {
    "a ring with failing links": (fg.networks.failing(RING, 0.4), {}),
    "all pairs with failing links": (fg.networks.failing(fg.networks.lazy(5, 0.4), 0.3), {}),
    "pairs of an odd number": (fg.networks.gossip_pairs(5), {}),
    "one pair": (fg.networks.gossip_pairs(6, pairs=1), {}),
    "two of five and a server": (EVERYBODY, {"participation": 2}),
    "a share, half a server": (fg.networks.lazy(5, 0.4), {"participation": 0.6}),
    "clients that come and go on a ring": (RING, {"participation": 3}),
    "and links fail": (fg.networks.failing(RING, 0.4), {"participation": 3}),
    "and pairs meet": (fg.networks.gossip_pairs(6), {"participation": 4}),
    "unequal local steps": (RING, {"local_steps": [1, 3, 2, 1, 7]}),
    "momentum": (RING, {"optimiser": fg.Optimiser(momentum=0.7)}),
    "momentum that is kept": (RING, {"optimiser": fg.Optimiser(momentum=0.7, keep_momentum=True)}),
    "FedProx on a ring": (RING, {"optimiser": fg.Optimiser(proximal=0.5)}),
    "server momentum": (EVERYBODY, {"optimiser": fg.Optimiser(server_momentum=0.6)}),
    "all of it": (
        EVERYBODY,
        {"participation": 3, "local_steps": [1, 3, 2, 1, 7]}
        | {"optimiser": fg.Optimiser(momentum=0.7, keep_momentum=True, proximal=0.5, server_momentum=0.6)},
    ),
}
# Each compiles a program of its own; the others go with the studies.
QUICK = {"and links fail", "all of it"}
MARKED = [case if case in QUICK else pytest.param(case, marks=pytest.mark.study) for case in CASES]


def run(network, n_steps=N, **more):
    arguments = {"sync_every": TAU, "replicates": 6, "seed": 7, "keep": "path", "observe": [fg.observers.uploads(1)]}
    return fg.simulate(clients(network.n_clients), network, STEPS, n_steps, **(arguments | more))


@pytest.mark.parametrize("case", MARKED)
def test_engine_follows_the_slow_twin(case):
    """Catches a draw that is not the documented one, and weights that go to the wrong client."""
    network, more = CASES[case]
    start = np.arange(2.0 * network.n_clients).reshape(-1, 2) / 5
    runs = run(network, start=start, **more)
    share = more.get("participation")
    count = round(share * 5) if isinstance(share, float) else share
    rule = asdict(more.get("optimiser", fg.Optimiser()))
    rule = {name: value for name, value in rule.items() if value is not None}
    mask = fg.step_sizes.sync_mask(TAU, N)
    path = federated_sgd(
        clients(network.n_clients), network, STEPS.eta(N), mask, start, 6, 7, count, more.get("local_steps"), **rule
    )
    np.testing.assert_allclose(runs.path, path.mean(axis=1).transpose(2, 0, 1), atol=2e-5)
    # Theta_t of every client but the last: where the block of one step after it began
    np.testing.assert_allclose(runs.began[:, 1:], path[:-1].transpose(3, 0, 1, 2), atol=2e-5)


@pytest.mark.parametrize(
    "case",
    ["and links fail", *(pytest.param(case, marks=pytest.mark.study) for case in ("and pairs meet", "all of it"))],
)
def test_draws_depend_on_neither_chunks_nor_segments_nor_length(case, monkeypatch):
    from fedgauss.engine import chunks as module

    network, more = CASES[case][0], CASES[case][1] | {"observe": ()}
    whole = run(network, replicates=100, **more)
    np.testing.assert_array_equal(whole.path, run(network, replicates=100, memory_budget=5e4, **more).path)
    np.testing.assert_array_equal(whole.path[:40], run(network, replicates=40, **more).path)
    np.testing.assert_array_equal(whole.path, run(network, n_steps=31, replicates=100, **more).path[:, :N])
    monkeypatch.setattr(module.Chunks, "_first_segment", lambda self, count: 7)
    monkeypatch.setattr(module.Chunks, "_adapt", lambda self, *rest: None)
    np.testing.assert_array_equal(whole.path, run(network, replicates=100, **more).path)


@pytest.mark.study
def test_a_run_goes_on_in_the_middle_of_a_round():
    problem = clients()
    common = {"sync_every": 4, "replicates": 20, "seed": 3, "participation": 2, "observe": [fg.observers.uploads(1)]}
    whole = fg.simulate(problem, RING, STEPS, 30, **common)
    rest = fg.simulate(problem, RING, STEPS, 30, after=14, start=whole.began[:, 14], **common)
    np.testing.assert_array_equal(rest.last, whole.last)


@pytest.mark.study
def test_everybody_is_the_share_one():
    network = fg.networks.lazy(5, 0.4)
    np.testing.assert_allclose(run(network, participation=1.0).path, run(network).path, atol=1e-6)
    plain = fg.Optimiser(momentum=0.0, proximal=0.0)
    np.testing.assert_allclose(run(RING, local_steps=[9] * 5, optimiser=plain).path, run(RING).path, atol=1e-6)
    never = fg.networks.failing(RING, 0.0)
    np.testing.assert_allclose(run(never).path, run(RING).path, atol=1e-6)


@pytest.mark.study
def test_together_is_alone_to_the_bit():
    problem = clients()
    shares = [fg.Setting(problem, RING, STEPS, TAU, participation=m) for m in (0.2, 3, 1.0)]
    losses = [fg.Setting(problem, fg.networks.failing(RING, p), STEPS, tau) for p, tau in ((0.1, 2), (0.5, 3))]
    pushes = [
        fg.Setting(problem, EVERYBODY, STEPS, TAU, local_steps=steps, optimiser=fg.Optimiser(b, proximal=b / 2))
        for steps, b in (([1, 2, 3, 1, 2], 0.0), ([3, 1, 1, 1, 2], 0.8))
    ]
    for settings in (shares, losses, pushes):
        for one, runs in zip(settings, fg.simulate_together(settings, N, replicates=20, seed=5), strict=True):
            alone = fg.simulate(
                problem, one.network, STEPS, N, sync_every=one.sync_every, replicates=20, seed=5,
                participation=one.participation, local_steps=one.local_steps, optimiser=one.optimiser,
            )  # fmt: skip
            np.testing.assert_array_equal(runs.average, alone.average)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([{"participation": 2}, {}], "parts of an optimiser for all or for none"),
        ([{"participation": 2, "sync_every": 2}, {"participation": 2, "sync_every": 5}], "the rounds in which clients"),
    ],
)
def test_other_rounds_are_refused_together(settings, said):
    problem = clients()
    with pytest.raises(ValueError, match=said):
        fg.simulate_together([fg.Setting(problem, RING, STEPS, **more) for more in settings], 10)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"participation": 1}, "share or a count; got 1, which may be either. Use 1.0 for all clients, or 0.2 for one"),
        ({"participation": 0.0}, r"must lie in \(0, 1\]; got 0. Use a share such as 0.3"),
        ({"participation": 1.5}, r"must lie in \(0, 1\]; got 1.5"),
        ({"participation": 6}, "participation must be at most 5; got 6"),
        ({"participation": 0.05}, "at least one client in a round; 0.05 of 5 leaves none"),
        ({"participation": "half"}, "participation must be a real number; got 'half'"),
        ({"participation": 2, "sync_every": None}, "needs rounds, which end where clients mix; they never do"),
    ],
)
def test_shares_that_cannot_be_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        run(RING, **more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"local_steps": [1, 2]}, r"local_steps must have shape \(5,\); got \(2,\). Give one whole number for each"),
        ({"local_steps": [1, 2, 0, 1, 1]}, "whole numbers from 1 on; client 2 has 0. Give one whole number for each"),
        ({"local_steps": [1, 2, 1.5, 1, 1]}, "whole numbers from 1 on; client 2 has 1.5"),
        ({"local_steps": [1] * 5, "sync_every": None}, "local_steps needs rounds, which end where clients mix"),
        ({"optimiser": 0.9}, r"must be an Optimiser; got 0.9. Use fg.Optimiser\(momentum=0.9\)"),
        ({"optimiser": fg.Optimiser(momentum=0.5), "sync_every": 1}, "does nothing in rounds of one step"),
        ({"optimiser": fg.Optimiser(server_momentum=0.5)}, r"needs a server, networks.complete\(5\); got ring"),
        ({"optimiser": fg.Optimiser(proximal=1.0), "sync_every": None}, "proximal needs rounds"),
        ({"optimiser": fg.Optimiser(proximal=1.0), "after": 3}, "only be continued with plain steps.*after=3"),
    ],
)
def test_rounds_that_cannot_be_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        run(RING, **more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), or nothing is ever forgotten; got 1. Use 0.9"),
        ({"server_momentum": -0.1}, r"server_momentum must lie in \[0, 1\)"),
        ({"proximal": -1.0}, "proximal must not be negative, or it drives clients apart; got -1"),
        ({"keep_momentum": True}, "keep_momentum needs momentum; got none"),
    ],
)
def test_optimisers_that_cannot_be_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        fg.Optimiser(**more)


def test_forged_messages_and_absent_clients_are_refused_together():
    forged = fg.networks.man_in_the_middle(RING, 0, 1, start=1)
    with pytest.raises(ValueError, match="without forged messages; got one with a man in the middle"):
        run(forged, participation=2)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_the_smallest_words_are_found(count):
    words = np.random.default_rng(0).integers(0, 2**32, (7, 50), dtype=np.uint32)
    words[:, 0] = 0  # equal ones: the first clients
    words[:, 1] = 2**32 - 1
    ranks = np.argsort(np.argsort(words >> 3, axis=0, kind="stable"), axis=0)
    np.testing.assert_array_equal(np.asarray(among_smallest(words, count)), ranks < count)


def test_every_set_of_clients_is_equally_likely():
    """Two of four in 12,000 rounds: chi-squared with 5 degrees of freedom.

    False failure: 1e-5. Catches a client that is chosen 3 % too often.
    """
    from scipy import stats

    from fedgauss._random import Noise, stage_key

    words = Noise(stage_key(5, "data"), np.uint32(0), 4, 12_000).stream("participation").words(1)[0]
    chosen = np.asarray(among_smallest(words, 2))
    counts = np.unique(chosen.T @ (1 << np.arange(4)), return_counts=True)[1]
    assert len(counts) == 6
    assert chosen.sum(axis=0).min() == chosen.sum(axis=0).max() == 2
    assert stats.chisquare(counts).pvalue > 1e-5
