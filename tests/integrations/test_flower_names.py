"""Who is who, and who acts: adversaries who take other names."""

import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_coming import FIRST, OTHERS_W, PULLED, N, after, comes_back, everybody, protected, run
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower.newcomers import Admission


def test_who_comes_back_under_a_new_number_is_in_no_mean(caplog):
    """With numbers alone nobody can tell who it is: it waits for a word, and so does everybody who joins after it."""
    strategy = protected()
    grid, path = run(strategy, 60, comes_back, PULLED)
    assert (strategy.excluded, strategy.left_out) == ({21: (2,)}, (2,))
    assert np.abs(path[22:] - OTHERS_W).max() < 0.03
    assert 2002 in grid.asked[60]  # trained and judged all the same
    assert strategy.participation[60] == (0, 1, 3, 4, 5, 6, 7, 8, 9, 10)
    assert "who is left out can come back by a restart" in caplog.text
    assert "client 10 (node 2002) is new. It is judged, but in no mean until accept() lets it in" in caplog.text


def test_a_run_without_the_rule_is_pulled_away():
    """What the adversary of the test above is worth: it would be blind to a rule that does nothing."""
    strategy = protected()
    strategy._acting.newcomers.take = lambda *args: Admission(set(), set(), set())
    _, path = run(strategy, 40, comes_back, PULLED)
    assert path[-1] > 1.4


def site(reply):
    return reply.content["m"]["site"]


@pytest.mark.parametrize(("identity", "known_by"), [("partition", ""), (site, "'2', "), ("key", "")])
def test_a_name_that_outlives_a_restart_is_left_out_for_good(identity, known_by, caplog):
    keys = {FIRST + k: b"%d" % k for k in range(N)} | {2002: b"2"}
    strategy = protected(identity=identity)
    grid, path = run(strategy, 40, comes_back, PULLED, keys)
    assert strategy.left_out == (2,)
    assert f"left out from now on: client 2 ({known_by}node 1002)" in caplog.text
    assert all(2002 not in asked for r, asked in grid.asked.items() if r > 25)  # it says who it is once at most
    assert len(strategy.participation[25]) == len(strategy.participation[40]) == N - 1
    assert np.abs(path[22:] - OTHERS_W).max() < 0.03
    assert "by a restart" not in caplog.text


def test_a_client_that_restarts_keeps_its_number_and_its_past():
    strategy = protected(identity="partition")
    run(strategy, 30, comes_back)
    assert strategy.nodes == {k: 2002 if k == 2 else FIRST + k for k in range(N)}
    assert strategy.verdicts[25].watched == strategy.verdicts[30].watched == N


def changing(period, first):
    """Client 2's node has another number every few rounds, from a round on."""

    def nodes(r):
        others = {node: k for node, k in everybody(r).items() if k != 2}
        return others | ({3000 + (r - first) // period: 2} if r >= first else {})

    return nodes


@pytest.mark.parametrize(("period", "first"), [(9, 21), (9, 1)])
def test_a_new_name_every_few_rounds_is_seen_and_does_no_harm(period, first, caplog):
    """Five times the negated move; under one name it is seen at once. From round 1 on the first names do act.

    It would fail if a past alone were enough, since nine rounds are one.
    """
    strategy = protected()
    _, path = run(strategy, 62, changing(period, first), {2: lambda r: (1.0, -5.0, 10)})
    assert np.abs(path[25:] - OTHERS_W).max() < 0.03
    r, words = next((r, verdict.note) for r, verdict in strategy.verdicts.items() if "new names" in verdict.note)
    assert r < 60
    assert re.match(r"ALARM: new names move unlike the others, and were in no mean: clients \d+, \d+ and \d+\.", words)
    assert words in caplog.text
    assert not strategy.excluded


def test_an_honest_newcomer_is_in_the_mean_once_it_has_a_past(caplog):
    caplog.set_level("INFO")
    nodes = lambda r: {node: k for node, k in everybody(r).items() if k != 2 or r >= 20}  # noqa: E731
    strategy = protected()
    _, path = run(strategy, 40, nodes, {2: after(0, target=1.2)})
    assert "round 20: client 9 (node 1002) is new. It is judged, but in no mean before it has a past" in caplog.text
    assert "round 28: client 9 (node 1002) has a past and moves like the others: it is in the mean" in caplog.text
    _, bare = run(FedAvg(), 40, nodes, {2: after(0, target=1.2)})
    assert abs(path[-1] - bare[-1]) < 0.01
    assert abs(path[26] - bare[26]) > 0.01


def test_an_operator_s_word_lets_a_newcomer_in():
    strategy = protected()
    _, path = run(strategy, 40, comes_back, PULLED)
    assert abs(path[-1] - OTHERS_W) < 0.03
    strategy.accept(10)
    for client in (2, 3, 99):  # left out for good, acting, and nobody
        with pytest.raises(ValueError, match=f"client must be in quarantine, or new and waiting; client {client} is"):
            strategy.accept(client)
    _, path = run(strategy, 5, comes_back, PULLED, first=strategy.kept.last().arrays)
    assert abs(path[-1] - OTHERS_W) < 0.03  # in rounds 1 to 5 of this start it is honest, and acts
    _, path = run(strategy, 30, comes_back, {2: after(0, target=6.0)}, first=strategy.kept.last().arrays)
    assert path.max() > 1.2


def test_names_go_by_what_they_are():
    with pytest.raises(ValueError, match="identity must be one of 'node', 'key', 'partition'"):
        protected(identity="name")
    with pytest.raises(ValueError, match="identity='key' needs nodes with keys; node 1000 has none"):
        run(protected(identity="key"), 1)

    def unreadable(reply):
        return reply.content["m"]["no such"] if reply.metadata.src_node_id == 1003 else site(reply)

    strategy = protected(identity=unreadable)
    grid, _ = run(strategy, 3)
    assert len(strategy.participation[1]) == N - 1
    assert FIRST + 3 not in grid.asked[2]


def test_nobody_takes_the_name_of_a_client_that_is_there():
    names = {1009: "a"}
    strategy = protected(identity=lambda reply: names.get(reply.metadata.src_node_id, reply.metadata.src_node_id))
    run(strategy, 2, lambda r: everybody(r) if r == 1 else everybody(r) | {4000: 5})
    names[4000] = "a"
    grid, _ = run(strategy, 2, lambda r: everybody(r) | {4000: 5})
    assert 4000 in strategy.nodes.values()  # it was known by another name, and keeps that

    names[4001] = "a"
    grid, _ = run(strategy, 3, lambda r: everybody(r) | {4001: 5})
    assert 4001 not in grid.asked[2]
    assert strategy.nodes[9] == 1009
