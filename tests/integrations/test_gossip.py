"""Peers that gossip: the iterates of `simulate`, the matrix that survivors agree on, and what each can watch."""

import sys

import networkx as nx
import numpy as np
import pytest
from gossip_threads import Hung, Threads
from scipy.stats import binom

import fedgauss as fg
from fedgauss.integrations.gossip.messages import Message, unpacked
from fedgauss.integrations.gossip.neighbourhood import Neighbourhood
from fedgauss.integrations.gossip.peer import run_peer
from fedgauss.integrations.gossip.shares import neighbours_of, shares
from fedgauss.integrations.gossip.torch_links import TorchLinks

_PEERS, _STEPS, _TAU = 6, 200, 10
_ETA = fg.step_sizes.polynomial(0.3, beta=0.75)


def federation(weights=None):
    return fg.problems.random_effects(n_clients=_PEERS, dim=2, heterogeneity=1.0, seed=3, weights=weights)


def gossip(problem, network, n_steps=_STEPS, die=None, **options):
    """What every peer returned, and its rounds. `die` is (peer, step)."""
    lin = fg.linearize(problem.reference())
    rounds = [[] for _ in range(_PEERS)]

    def program(peer, exchange):
        def on_round(seen):
            rounds[peer].append(seen)
            if die == (peer, seen.step):
                raise Hung

        return run_peer(
            *(peer, problem, network, _ETA, n_steps, exchange, lin),
            **{"sync_every": _TAU, "seed": 5, "on_round": on_round, **options},
        )

    return Threads(_PEERS).run(program), rounds


def matrix_at(rounds, row):
    """C as peers made it in a round, (K, K); zero for those that had gone."""
    mixing = np.zeros((_PEERS, _PEERS))
    for peer, seen in enumerate(rounds):
        if row < len(seen):
            mixing[peer, peer] = 1.0 - sum(seen[row].shares.values())
            for other, share in seen[row].shares.items():
                mixing[peer, other] = share
    return mixing


def uploads(problem, network, replicates, n_steps=_STEPS, seed=5):
    """began and sent of every client, (R, J, K, d) each."""
    runs = fg.simulate(
        *(problem, network, _ETA, n_steps),
        sync_every=_TAU,
        replicates=replicates,
        seed=seed,
        observe=[fg.observers.uploads(_TAU)],
    )
    return runs.began.astype(float), runs.sent.astype(float)


def part_of(lin, members):
    """What members would tell each other."""
    rows = list(members)
    weights = lin.weights[rows] / lin.weights[rows].sum()
    return fg.linearization(
        *(lin.client_hessians[rows], lin.client_noise_cov[rows], weights),
        optimum=lin.optimum,
        gradients=lin.client_gradients[rows],
    )


def watched(lin, members, began, sent, n_steps=_STEPS, alpha=0.05, gone=None):
    """The verdicts of one neighbourhood over one run; `gone` is (member, first row without it)."""
    eta = _ETA.eta(n_steps) * lin.n_clients * lin.weights[list(members)].mean()
    around = Neighbourhood(members, part_of(lin, members), eta, _TAU, alpha, began[0][list(members)])
    verdicts = []
    for row in range(len(sent)):
        here = [m for m in members if gone is None or m != gone[0] or row < gone[1]]
        tables = ({m: table[row, m] for m in here} for table in (began, sent))
        verdicts.append(around.update(*tables, (row + 1) * _TAU))
    return verdicts


@pytest.mark.parametrize("network", [fg.networks.ring(6), fg.networks.star(6), fg.networks.complete(6)])
def test_peers_make_the_iterates_of_simulate(network):
    problem = federation()
    began, sent = uploads(problem, network, replicates=1)
    _, rounds = gossip(problem, network)
    for peer, seen in enumerate(rounds):
        np.testing.assert_allclose([r.began for r in seen], began[0, :, peer], atol=2e-6)
        np.testing.assert_allclose([r.sent for r in seen], sent[0, :, peer], atol=2e-6)
    for row in range(len(rounds[0])):
        np.testing.assert_allclose(matrix_at(rounds, row), network.matrix, atol=1e-12)


def test_chains_are_those_of_client_ga():
    problem, network = federation(), fg.networks.ring(6)
    finished, _ = gossip(problem, network, chains=8)
    expected = fg.approx.client(fg.linearize(problem), network, _ETA, _STEPS, sync_every=_TAU, replicates=8, seed=5)
    np.testing.assert_allclose(np.mean([peer.chains for peer in finished], axis=0), expected.last, atol=2e-6)


# --- a peer is lost --------------------------------------------------------------------------------------------------


def test_survivors_agree_on_metropolis_weights_and_go_on():
    """Peer 2 falls silent after step 100. Catches ends of an edge that come to different weights."""
    finished, rounds = gossip(federation(), fg.networks.ring(6), die=(2, 100))
    assert finished[2] is None
    assert {peer: run.lost for peer, run in enumerate(finished) if run is not None and run.lost} == {
        1: {2: 110},
        3: {2: 110},
    }
    alive = [0, 1, 3, 4, 5]
    ring = nx.cycle_graph(6)
    ring.remove_node(2)
    expected = fg.networks.from_graph(ring).matrix  # a path of five
    for row in range(20):
        mixing = matrix_at(rounds, row)
        np.testing.assert_allclose(mixing, mixing.T, atol=1e-15)
        np.testing.assert_allclose(mixing[alive].sum(axis=1), 1.0)
        assert np.diag(mixing)[alive].min() > 0.0
        if row == 10:  # the round in which it is missed: its weight stays with those who miss it
            assert mixing[1, 1] == mixing[3, 3] == pytest.approx(2 / 3)
        if row > 10:
            np.testing.assert_allclose(mixing[np.ix_(alive, alive)], expected, atol=1e-15)
    # From there on it is local SGD of five peers on a path: mixing leaves their mean alone.
    for row in range(11, 20):
        means = [np.mean([getattr(rounds[k][row], name) for k in alive], axis=0) for name in ("sent", "theta")]
        np.testing.assert_allclose(*means, atol=1e-6)


def test_an_alarm_outlives_the_loss_of_a_neighbour():
    """The attacker is peer 4, and peer 3, who has noticed, loses its other neighbour."""
    problem = fg.problems.attacks.mean_shift(federation(), [4], 4.0, start=101)
    finished, rounds = gossip(problem, fg.networks.ring(6), n_steps=400, die=(2, 300), alpha=0.01, start="optimum")
    assert finished[3].lost == {2: 310}
    assert finished[3].alarm.step <= 300
    assert all(seen.verdict.alarm for seen in rounds[3] if seen.step >= finished[3].alarm.step)
    assert finished[3].monitor.round == 40
    members = finished[3].members
    assert [members[k] for k in finished[3].monitor.suspects().malicious] == [4]
    assert finished[1].alarm is None  # it has lost peer 2 as well, and knows nothing of peer 4


def test_what_no_honest_peer_sends_is_not_mixed_in():
    """A neighbour that sends nonsense is cut off like a lost one."""
    good = Message(2, np.ones(2), np.zeros(2), np.zeros((2, 3))).packed()
    back = unpacked(good, n_chains=3, n_clients=6)
    assert back.degree == 2
    assert back.chains.shape == (2, 3)
    for place, value in [(1, np.nan), (3, np.inf), (1, 1e200), (0, 2.5), (0, 0.0), (0, 6.0)]:
        bad = good.copy()
        bad[place] = value
        assert unpacked(bad, n_chains=3, n_clients=6) is None


@pytest.mark.parametrize("nonsense", [np.nan, 1e30])
def test_a_peer_that_sends_nonsense_is_cut_off(nonsense):
    problem, threads = federation(), Threads(_PEERS)
    lin = fg.linearize(problem)

    def program(peer, exchange):
        calls = []

        def hostile(messages):
            calls.append(messages)
            if len(calls) < 6:
                return exchange(messages)
            for other, message in messages.items():
                threads.pipes[peer, other].put(np.r_[message[:1], np.full(len(message) - 1, nonsense)])
            raise Hung

        own = hostile if peer == 0 else exchange
        return run_peer(peer, problem, fg.networks.ring(6), _ETA, _STEPS, own, lin, sync_every=_TAU, seed=5)

    finished = threads.run(program)
    for neighbour in (1, 5):
        assert finished[neighbour].lost == {0: 50}
        assert finished[neighbour].alarm is None
        assert finished[neighbour].monitor.round == _STEPS // _TAU
        assert np.all(np.isfinite(finished[neighbour].theta))


def test_weights_need_not_be_known_elsewhere():
    assert shares(2, {0: 2, 5: 4}) == {0: 1 / 3, 5: 1 / 5}
    assert neighbours_of(0, fg.networks.ring(6)) == (1, 5)
    with pytest.raises(ValueError, match=r"Metropolis weights.*lazy\(0.5\) has c_01 = 0.0833 and not 0.167"):
        neighbours_of(0, fg.networks.lazy(6, 0.5))


def test_who_lacks_torch_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'fedgauss\[gossip\]'"):
        TorchLinks(0, 2, "file:///nowhere")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_steps": 95}, "n_steps must be a multiple of sync_every = 10; got 95. Use 90?"),
        ({"steps": np.full((100, 6), 0.1)}, "steps must be the same for all peers"),
        ({"client": 6}, "client must be at most 5"),
    ],
)
def test_settings_that_peers_cannot_share_are_refused(given, words):
    problem = federation()
    settings = {"client": 0, "problem": problem, "network": fg.networks.ring(6), "steps": _ETA, "n_steps": 100}
    with pytest.raises(ValueError, match=words):
        run_peer(**settings | given, exchange=dict, lin=fg.linearize(problem), sync_every=10)


# --- what a peer watches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, np.array([1, 2, 3, 1, 2, 3]) / 12])
def test_a_neighbourhood_of_everybody_is_what_a_server_sees(weights):
    """On the complete graph all began at the mean, so a peer's monitor must say what a server's says."""
    problem = federation(weights)
    lin = fg.linearize(problem)
    began, sent = uploads(problem, fg.networks.complete(6), replicates=1)
    server = fg.Monitor(lin, _ETA, _TAU, horizon=_STEPS, start=began[0, 0, 0])
    expected = [server.update(row.mean(axis=0)) for row in sent[0]]
    found = watched(lin, tuple(range(6)), began[0], sent[0])
    np.testing.assert_allclose([v.statistic for v in found], [v.statistic for v in expected], atol=1e-4)
    assert [v.threshold for v in found] == [v.threshold for v in expected]


@pytest.mark.study
@pytest.mark.parametrize("gone", [None, (0, 25)])
@pytest.mark.parametrize("weights", [None, np.array([1, 2, 3, 1, 2, 3]) / 12])
def test_a_neighbourhood_keeps_its_level(weights, gone):
    """On a ring where clients differ, at alpha = .05, also when a neighbour is lost half-way.

    Fails wrongly with probability 1e-4. Catches a monitor that takes the loss of a client with another optimum for an
    attack: without what the clients' gradients say of it, 59 of 60 runs ring.
    """
    problem, replicates, n_steps = federation(weights), 400, 500
    lin = fg.linearize(problem)
    began, sent = uploads(problem, fg.networks.ring(6), replicates, n_steps)
    rings = [
        any(v.alarm for v in watched(lin, (0, 1, 2), b, s, n_steps, gone=gone))
        for b, s in zip(began, sent, strict=True)
    ]
    assert sum(rings) <= binom.isf(1e-4, replicates, 0.05)
