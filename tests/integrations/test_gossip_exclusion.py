"""Peers that go on without a neighbour they named: who, from where, with which weights, and that nobody waits."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from gossip_threads import Threads
from scipy.stats import binom

import fedgauss as fg
from fedgauss.integrations.gossip.healing import Healing
from fedgauss.integrations.gossip.peer import run_peer

_PEERS, _TAU, _BAD = 6, 10, 4
_HONEST = [0, 1, 2, 3, 5]
_ETA = fg.step_sizes.polynomial(0.3, beta=0.75)
_GRAPHS = {"complete": nx.complete_graph(6), "three each": nx.circulant_graph(6, [1, 3]), "ring": nx.cycle_graph(6)}


def federation():
    return fg.problems.random_effects(n_clients=_PEERS, dim=2, heterogeneity=1.0, seed=3)


def poisoned(shift=6.0):
    """Peer 4 pulls elsewhere from step 201 on."""
    return fg.problems.attacks.mean_shift(federation(), [_BAD], shift, start=201)


def gossip(problem, graph, n_steps=600, how=("exclude",) * _PEERS, alpha=0.01, seed=5):
    """What every peer returned, and its rounds."""
    lin, rounds = fg.linearize(federation()), [[] for _ in range(_PEERS)]

    def program(peer, exchange):
        return run_peer(
            *(peer, problem, fg.networks.from_graph(graph), _ETA, n_steps, exchange, lin),
            sync_every=_TAU,
            seed=seed,
            start="optimum",
            alpha=alpha,
            on_alarm=how[peer],
            on_round=rounds[peer].append,
        )

    return Threads(_PEERS).run(program), rounds


def honest_optimum(honest):
    lin = fg.linearize(federation())
    pull = lin.client_gradients[honest].sum(axis=0)
    return lin.optimum - np.linalg.solve(lin.client_hessians[honest].sum(axis=0), pull)


def furthest(runs, honest):
    return max(np.linalg.norm(runs[peer].theta - honest_optimum(honest)) for peer in honest)


@pytest.mark.filterwarnings("ignore:peer 4 names itself")
@pytest.mark.parametrize("name", _GRAPHS)
def test_an_attacker_is_left_out_by_its_neighbours_and_the_others_end_at_their_own_optimum(name):
    """Catches an attacker that is still mixed in, a model that stays poisoned, and weights on which two ends differ.

    The seed is fixed, so it never fails by chance; with another a peer may name an honest neighbour too, at the rate
    that it asks for. Ends lie .24 to .45 from the honest optimum here; without exclusion 1.3 to 1.6.
    """
    graph = _GRAPHS[name]
    runs, rounds = gossip(poisoned(), graph)
    for peer in _HONEST:
        near = peer in graph[_BAD]
        assert list(runs[peer].excluded) == [_BAD] * near
        assert _BAD not in runs[peer].neighbours
        assert runs[peer].lost == {}
        assert runs[peer].monitor.alarm is None  # those who are left are watched anew, and are honest
        assert runs[peer].monitor.round == 60
    assert runs[_BAD].neighbours == ()
    assert runs[_BAD].excluded == {}
    assert {peer: runs[peer].excluded[_BAD] + _TAU for peer in graph[_BAD]} == runs[_BAD].lost
    assert furthest(runs, _HONEST) < 0.6

    left = graph.copy()
    left.remove_node(_BAD)
    for peer in _HONEST:
        last = rounds[peer][-1]
        assert last.shares == pytest.approx(
            {j: 1 / (1 + max(left.degree[peer], left.degree[j])) for j in left[peer]}, abs=1e-15
        )

    for peer in graph[_BAD]:  # each went back to its own model before the onset
        (turn,) = [row for row, seen in enumerate(rounds[peer]) if seen.excluded]
        seen = rounds[peer][turn]
        assert seen.excluded == (_BAD,)
        assert runs[peer].excluded == {_BAD: seen.step}
        assert seen.step == runs[peer].alarm.step + 100
        assert seen.verdict.rollback <= 20
        assert seen.shares == {}
        np.testing.assert_array_equal(seen.theta, rounds[peer][seen.verdict.rollback - 1].theta)
        np.testing.assert_array_equal(rounds[peer][turn + 1].began, seen.theta)
        assert not rounds[peer][turn + 1].verdict.alarm


def test_without_exclusion_the_others_are_drawn_away():
    runs, _ = gossip(poisoned(), _GRAPHS["three each"], how=("go on",) * _PEERS)
    assert all(not run.excluded and not run.lost for run in runs)
    assert min(np.linalg.norm(runs[peer].theta - honest_optimum(_HONEST)) for peer in _HONEST) > 1.2


@pytest.mark.study
@pytest.mark.filterwarnings("ignore:peer 4 names itself")
def test_a_second_attacker_is_left_out_too():
    """Catches a watch that ends with the first exclusion, or that cannot do without who is gone."""
    problem = fg.problems.attacks.mean_shift(poisoned(), [1], 10.0, start=501)
    with pytest.warns(fg.FedgaussWarning, match="peer 1 names itself"):
        runs, _ = gossip(problem, _GRAPHS["complete"], n_steps=1000)
    for peer in (0, 2, 3, 5):
        assert list(runs[peer].excluded) == [_BAD, 1]
        assert runs[peer].excluded[1] > 500
    assert furthest(runs, [0, 2, 3, 5]) < 0.6


@pytest.mark.filterwarnings("ignore:peer 4 names itself")
def test_one_peer_that_excludes_among_others_that_do_not_keeps_nobody_waiting():
    """What it does not see any more still reaches it by way of the others: the limit that the documentation states."""
    runs, _ = gossip(poisoned(), _GRAPHS["complete"], how=("exclude",) + ("go on",) * 5)
    assert list(runs[0].excluded) == [_BAD]
    assert runs[_BAD].lost == {0: runs[0].excluded[_BAD] + _TAU}
    assert runs[0].neighbours == (1, 2, 3, 5)
    assert np.linalg.norm(runs[0].theta - honest_optimum(_HONEST)) > 0.8


def test_an_honest_run_is_the_same_with_it():
    runs, _ = gossip(federation(), _GRAPHS["ring"], n_steps=200)
    carried_on, _ = gossip(federation(), _GRAPHS["ring"], n_steps=200, how=("go on",) * _PEERS)
    for one, other in zip(runs, carried_on, strict=True):
        assert one.excluded == {}
        np.testing.assert_array_equal(one.theta, other.theta)


@pytest.mark.study
@pytest.mark.filterwarnings("ignore:peer . names")
@pytest.mark.parametrize("name", ["three each", "ring"])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_honest_neighbours_stay_and_attackers_go(name, shift):
    """40 runs at alpha = .05. An honest peer names an honest neighbour only after an alarm, and then with chance .10.

    Fails wrongly with probability 1e-4, if attackers are left out by their neighbours in nine cases of ten (117 of 120
    and 78 of 80 when it was written). Catches places among the members that are taken for peers' numbers.
    """
    graph, seeds = _GRAPHS[name], range(40)
    problem = poisoned(shift) if shift else federation()
    runs = [gossip(problem, graph, alpha=0.05, seed=seed)[0] for seed in seeds]
    bad = [_BAD] if shift else []
    honest = [peer for peer in range(_PEERS) if peer not in bad]
    wrong = sum(bool(set(run[peer].excluded) - set(bad)) for run in runs for peer in honest)
    right = sum(_BAD in run[peer].excluded for run in runs for peer in graph[_BAD])
    near = len(seeds) * len(graph[_BAD])
    print(f"{name}, shift {shift:g}: {right} of {near} neighbours leave out the attacker; {wrong} wrong exclusions")
    if shift:
        assert wrong <= binom.isf(1e-4, near, 0.10)
        assert right >= binom.ppf(1e-4, near, 0.90)
    else:
        assert wrong <= binom.isf(1e-4, len(seeds) * _PEERS, 0.05)


# --- when names are asked for, and what is made of them --------------------------------------------------------------


class _Around:
    """A neighbourhood of peers 10, 11, 12 whose monitor rang at step 50, round 5, and names who it is told to."""

    members = (10, 11, 12)

    def __init__(self, malicious):
        self.asked, self.begun = [], []

        def suspects(rate):
            self.asked.append(rate)
            if malicious is None:
                raise ValueError("too few rounds")
            return SimpleNamespace(malicious=malicious)

        self.monitor = SimpleNamespace(round=0, alarm=None, suspects=suspects)

    def begin_anew(self, y):
        self.begun.append(y)
        self.monitor.alarm = None


def acted(malicious, n_steps=500, **options):
    """The steps at which peers were left out, for peer 10, and what became of its column, which counts rounds."""
    around, column = _Around(malicious), SimpleNamespace(theta=np.zeros((1, 1)))
    healing = Healing(10, around, (column,), **options)
    out = {}
    for number in range(1, n_steps // 10 + 1):
        around.monitor.round, column.theta = number, column.theta + 1.0
        alarm = number >= 5 and not out
        verdict = SimpleNamespace(alarm=alarm, invalid=False, step=10 * number, rollback=3 if alarm else None)
        around.monitor.alarm = around.monitor.alarm or (verdict if alarm else None)
        if named := healing.after(verdict):
            out[verdict.step] = named
    return out, around, column.theta[0, 0]


def test_names_are_asked_for_ever_more_rarely_at_rates_that_sum_to_a_tenth():
    for malicious in ((), None):
        out, around, theta = acted(malicious)
        assert around.asked == [0.05, 0.025, 0.0125]  # 100, 200 and 400 steps after the alarm
        assert out == {}
        assert theta == 50.0


def test_who_is_named_is_left_out_and_the_column_goes_back():
    out, around, theta = acted((2,))
    assert out == {150: (12,)}
    assert around.begun == [np.array([3.0])]
    assert theta == 3.0 + 35  # rounds 16 to 50 come after it
    assert around.asked == [0.05]


def test_names_that_are_too_many_are_warned_of_and_nobody_is_left_out():
    with pytest.warns(fg.FedgaussWarning, match=r"peer 10 names \[11, 12\] and may leave out 1 more"):
        assert acted((1, 2))[0] == {}
    assert acted((1, 2), at_most=2)[0] == {150: (11, 12)}


def test_a_peer_that_names_itself_is_told_and_stays():
    with pytest.warns(fg.FedgaussWarning, match="peer 10 names itself: look at its data"):
        assert acted((0,))[0] == {}
    with pytest.warns(fg.FedgaussWarning, match="peer 10 names itself"):
        assert acted((0, 1))[0] == {150: (11,)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"on_alarm": "stop"}, "on_alarm must be 'go on' or 'exclude'; got 'stop'"),
        ({"at_most": 1}, "at_most must be left out unless on_alarm is 'exclude'"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, words):
    problem = federation()
    with pytest.raises(ValueError, match=words):
        run_peer(0, problem, fg.networks.ring(6), _ETA, 100, dict, fg.linearize(problem), sync_every=10, **given)
