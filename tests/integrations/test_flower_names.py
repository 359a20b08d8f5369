"""Who is who, what claims are worth, and who acts: adversaries who take other names and other weights.

Ten clients have optima near 1, so that the mean parameter w is near 1 in an honest run; somebody pulls it elsewhere.
"""

import random
import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp.strategy import FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Clients, Monitored, ServerOnly, report_partition
from fedgauss.integrations.flower.newcomers import Admission
from fedgauss.integrations.flower.rounds import Upload
from fedgauss.integrations.flower.sampling import as_many
from fedgauss.integrations.flower.weights import Claims

N, D, FIRST = 10, 30, 1000
app = ClientApp(mods=[report_partition()])


HONEST = {}  # nothing is changed
plan = HONEST  # what bad nodes do: (target, factor, examples) by partition and round


@app.train()
def train(message, context):
    """Half of the way to the client's optimum, or to where a bad one wants to be, times a factor."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    target, factor, examples = plan.get(k, lambda r: None)(r) or (1.0, 1.0, 10)
    rng = np.random.default_rng([3, context.node_id, r])
    start = message.content["arrays"]["w"].numpy()
    own = np.random.default_rng([4, k]).normal(scale=0.3, size=D)
    move = factor * (0.5 * (target + own - start) + 0.05 * rng.standard_normal(D))
    arrays = ArrayRecord({"w": Array(start + move)})
    metrics = MetricRecord({"num-examples": examples, "site": k})
    return Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)


class ComingGrid(InProcessGrid):
    """A grid whose nodes come and go: nodes(round) gives the partition of every node that is there."""

    def __init__(self, nodes, keys=None):
        super().__init__(app, N, {})
        self.nodes, self.keys, self.asked, self.number = nodes, keys or {}, {}, 1

    def get_node_ids(self):
        here = self.nodes(self.number)
        for node, partition in here.items():
            config = {"partition-id": partition, "num-partitions": N}
            if node not in self.contexts or self.contexts[node].node_config != config:
                self.contexts[node] = Context(1, node, config, RecordDict(), {})
        return list(here)

    def get_nodes(self):
        return [NodeInfo(node_id=node, public_key=self.keys.get(node, b"")) for node in self.get_node_ids()]

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages and messages[0].metadata.message_type.startswith("evaluate"):
            self.number += 1
        elif messages:
            self.asked[self.number] = {message.metadata.dst_node_id for message in messages}
        return super().send_and_receive(messages, timeout=timeout)


def everybody(r):
    return {FIRST + k: k for k in range(N)}


def protected(fraction=1.0, on_alarm="exclude", **options):
    return Monitored(FedAvg(fraction_train=fraction), Clients(horizon=200, seed=1), on_alarm=on_alarm, **options)


def run(strategy, n_rounds, nodes=everybody, bad=HONEST, keys=None, first=None):
    """The grid, and the mean parameter after each round."""
    global plan
    random.seed(0)
    grid, path = ComingGrid(nodes, keys), []
    plan = bad
    first = ArrayRecord({"w": Array(np.zeros(D))}) if first is None else first
    strategy.start(
        grid, first, num_rounds=n_rounds, evaluate_fn=lambda r, arrays: path.append(arrays["w"].numpy().mean())
    )
    return grid, np.array(path)


def after(last, target=1.0, factor=1.0, examples=10):
    """A client that is bad after a round."""
    return lambda r: (target, factor, examples) if r > last else None


HONEST_W = 1.02  # of the eight or nine who stay; run to run it moves by .01
PULLED = {2: after(20, target=6.0)}  # w is 1.51 where nobody acts on it


def comes_back(r):
    """Client 2's node goes, and comes back in round 25 under another number."""
    return everybody(r) if r < 25 else {node: k for node, k in everybody(r).items() if k != 2} | {2002: 2}


def test_who_comes_back_under_a_new_number_is_in_no_mean(caplog):
    """With numbers alone nobody can tell who it is: it waits for a word, and so does everybody who joins after it."""
    strategy = protected()
    grid, path = run(strategy, 100, comes_back, PULLED)
    assert (strategy.excluded, strategy.left_out) == ({21: (2,)}, (2,))
    assert np.abs(path[22:] - HONEST_W).max() < 0.03
    assert 2002 in grid.asked[100]  # trained and judged all the same
    assert strategy.participation[100] == (0, 1, 3, 4, 5, 6, 7, 8, 9, 10)
    assert "who is left out can come back by a restart" in caplog.text
    assert "client 10 (node 2002) is new. It is judged, but in no mean until accept() lets it in" in caplog.text


def test_a_run_without_the_rule_is_pulled_away():
    """What the adversary of the test above is worth: it would be blind to a rule that does nothing."""
    strategy = protected()
    strategy._acting.newcomers.take = lambda *args: Admission(set(), set(), set())
    _, path = run(strategy, 60, comes_back, PULLED)
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
    assert np.abs(path[22:] - HONEST_W).max() < 0.03
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


@pytest.mark.parametrize(("period", "first"), [(9, 21), (9, 1), (17, 21)])
def test_a_new_name_every_few_rounds_is_seen_and_does_no_harm(period, first, caplog):
    """Five times the negated move; under one name it is seen at once. From round 1 on the first names do act.

    It would fail if a past alone were enough, since nine rounds are one.
    """
    strategy = protected()
    _, path = run(strategy, 90, changing(period, first), {2: lambda r: (1.0, -5.0, 10)})
    assert np.abs(path[25:] - HONEST_W).max() < 0.03
    r, words = next((r, verdict.note) for r, verdict in strategy.verdicts.items() if "new names" in verdict.note)
    assert r < 60
    assert re.match(r"ALARM: new names move unlike the others, and were in no mean: clients \d+, \d+ and \d+\.", words)
    assert words in caplog.text
    assert not strategy.excluded


def test_an_honest_newcomer_is_in_the_mean_once_it_has_a_past(caplog):
    caplog.set_level("INFO")
    nodes = lambda r: {node: k for node, k in everybody(r).items() if k != 2 or r >= 20}  # noqa: E731
    strategy = protected()
    _, path = run(strategy, 40, nodes)
    assert "round 20: client 9 (node 1002) is new. It is judged, but in no mean before it has a past" in caplog.text
    assert "round 28: client 9 (node 1002) has a past and moves like the others: it is in the mean" in caplog.text
    _, bare = run(FedAvg(), 40)
    assert abs(path[-1] - bare[-1]) < 0.01
    assert abs(path[26] - bare[26]) > 0.005


def test_an_operator_s_word_lets_a_newcomer_in():
    strategy = protected()
    _, path = run(strategy, 40, comes_back, PULLED)
    assert abs(path[-1] - HONEST_W) < 0.03
    strategy.accept(10)
    with pytest.raises(ValueError, match="client must be the number of one that was seen; got 99"):
        strategy.accept(99)
    _, path = run(strategy, 5, comes_back, PULLED, first=strategy.kept.last().arrays)
    assert abs(path[-1] - HONEST_W) < 0.03  # in rounds 1 to 5 of this start it is honest, and acts
    _, path = run(strategy, 30, comes_back, {2: after(0, target=6.0)}, first=strategy.kept.last().arrays)
    assert path.max() > 1.2


@pytest.mark.parametrize("times", [10.0, 2.0])
def test_a_claim_counts_for_at_most_so_many_times_the_median(times, caplog):
    """From the first round on. Unbounded, they would move w to 6; the client has times / (times + 9) of the mean."""
    strategy = protected(largest_claim=times)
    _, path = run(strategy, 25, bad={2: after(0, target=6.0, examples=10**14)})
    share = times / (times + N - 1)
    _, honest = run(FedAvg(), 25)
    np.testing.assert_allclose(path[-5:], 1.0 + 5.0 * share, atol=0.06)
    assert abs(honest[-1] - 1.0) < 0.03
    assert f"client 2 claims 1e+14 examples, the median client 10: from now on it counts for at most {times:g}" in (
        caplog.text
    )


def test_sizes_of_one_to_ten_times_the_median_count_as_they_are():
    """To the bit: sizes 1:100 about a median of 10."""
    sizes = (1, 2, 4, 7, 10, 10, 13, 25, 50, 100)
    bad = {k: after(0, examples=size) for k, size in enumerate(sizes)}
    _, path = run(protected(), 8, bad=bad)
    _, bare = run(FedAvg(), 8, bad=bad)
    assert np.array_equal(path, bare)


def test_a_lie_moves_the_median_by_one_place():
    claims = Claims(10.0)
    uploads = [Upload(k, {}, size, {}) for k, size in enumerate((10.0, 20.0, 30.0, 1e15))]
    assert claims.weights(uploads, 1) == {3: 250.0}
    assert claims.weights(uploads[:1], 2) == {}  # by what the others claimed last
    claims.forget([3])
    assert claims.weights([Upload(4, {}, 1e15, {})], 3) == {4: 250.0}
    assert Claims(10.0).weights(uploads[2:], 1) == {}  # of two, nobody knows which one lies
    with pytest.raises(ValueError, match="largest_claim must be at least 1"):
        Claims(0.5)


def test_half_of_ten_without_two_are_still_five():
    """It would fail if nodes that are left out were sampled, or counted among those of whom half are sampled."""
    strategy = protected(fraction=0.5)
    strategy._standing.out.update({2: "", 7: ""})
    strategy._roster.numbers.update({f"node {FIRST + k}": k for k in range(N)})
    strategy._roster._names.update({FIRST + k: f"node {FIRST + k}" for k in range(N)})
    before = dict(vars(strategy.strategy))
    grid, _ = run(strategy, 37)
    assert {len(asked) for asked in grid.asked.values()} == {5}
    assert set().union(*grid.asked.values()) == {FIRST + k for k in range(N)} - {FIRST + 2, FIRST + 7}
    assert vars(strategy.strategy) == before


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("out", [1, 2, 4])
def test_as_many_are_sampled_as_before(fraction, out):
    inner = FedAvg(fraction_train=fraction, min_train_nodes=3, min_available_nodes=N)
    with as_many(inner, N - out, out):
        found = max(int((N - out) * inner.fraction_train), inner.min_train_nodes)
        assert found == min(max(int(N * fraction), 3), N - out)
        assert inner.min_available_nodes == N - out
    assert (inner.fraction_train, inner.min_train_nodes, inner.min_available_nodes) == (fraction, 3, N)


def test_a_run_goes_on_after_its_server_was_restarted(tmp_path, caplog):
    """Who was left out, and why; everybody's past; and what is no news is not asked again."""
    caplog.set_level("INFO")
    path = tmp_path / "run.state"
    strategy = protected(state=path)
    run(strategy, 30, bad=PULLED)
    again = protected(state=path)
    assert again.left_out == (2,)
    assert re.match("ALARM at round 21: client 2 no longer moves", again.reasons[2])
    assert "left out since before: client 2 (node 1002). ALARM at round 21" in caplog.text
    grid, w = run(again, 20, bad={2: after(0, target=6.0)}, first=strategy.kept.last().arrays)
    assert FIRST + 2 not in set().union(*grid.asked.values())
    assert (again.excluded, again.monitor.round) == ({}, 50)
    assert again.verdicts[1].watched == N - 1  # nobody has to be known anew
    assert np.abs(w - HONEST_W).max() < 0.03
    assert fg.ClientMonitor.load(path).round == 50  # it is a monitor's file, too


def test_names_that_did_not_outlive_a_restart_are_said_and_accuse_nobody(tmp_path, caplog):
    """Other numbers of the same nodes were compared with others' pasts, and three honest clients were excluded."""
    path = tmp_path / "run.state"
    run(protected(state=path), 30, bad=PULLED)
    again = protected(state=path)
    _, w = run(again, 30, lambda r: {5000 + k: 9 - k for k in range(N)})
    assert not again.excluded
    assert "nobody who answered was there before the restart" in caplog.text
    assert abs(w[-1] - 1.01) < 0.03
    kept = protected(state=path, identity="key")
    assert kept.left_out == (2,)


def test_a_state_is_whole_or_refused(tmp_path):
    path = tmp_path / "run.state"
    run(protected(state=path), 3)
    with pytest.raises(ValueError, match="horizon must be 200, as in"):
        Monitored(FedAvg(), Clients(horizon=100), state=path)
    with pytest.raises(ValueError, match=r"state needs Clients, .* got ServerOnly"):
        Monitored(FedAvg(), ServerOnly(11), state=path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"run\.state must be a file that ClientMonitor\.save wrote"):
        protected(state=path)
    path.unlink()
    fg.ClientMonitor(horizon=200).save(path)
    with pytest.raises(ValueError, match="it has a monitor only"):
        protected(state=path)


def test_a_full_disk_stops_no_run(tmp_path, caplog):
    strategy = protected(state=tmp_path / "missing" / "run.state")
    run(strategy, 2)
    assert caplog.text.count("the state is not saved") == 2


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
