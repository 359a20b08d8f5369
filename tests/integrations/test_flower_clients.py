"""`Clients`: a run whose clients turn bad is seen, taken back and gone on with, whatever the strategy."""

import random
import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM

import fedgauss as fg
from fedgauss.integrations.flower import Alarmed, Clients, Monitored, ServerOnly
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.sinks import client_log
from fedgauss.integrations.sinks.base import as_json

N, D, ROUNDS, BAD, HONEST = 10, 30, 40, (2, 7), (0, 1, 3, 4, 5, 6, 8, 9)
ATTACK = {2: 20, 7: 20}  # the last good rounds of clients that turn bad
CURVATURE = np.linspace(0.2, 1.0, D)
OPTIMA = np.random.default_rng(5).normal(scale=1.0, size=(N, D)) + 1.0  # clients are not alike
STRATEGIES = {
    "FedAvg": (FedAvg, {}),
    "FedAvgM": (FedAvgM, {"server_momentum": 0.5, "server_learning_rate": 0.7}),
    "FedAdam": (FedAdam, {"eta": 0.05}),
}

app = ClientApp()


@app.train()
def train(message, context):
    """Ten steps of noisy SGD towards the client's own optimum, in two arrays; bad clients send the opposite."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    rng = np.random.default_rng([context.run_config["seed"], k, r])
    sent = message.content["arrays"]
    start = np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()])
    y = start.copy()
    for _ in range(10):
        y -= 0.02 * (CURVATURE * (y - OPTIMA[k]) + 0.1 * rng.standard_normal(D))
    if r > context.run_config.get(f"bad-{k}", ROUNDS):
        y = start - (y - start)
    arrays = ArrayRecord({"a": Array(y[:20].reshape(4, 5)), "b": Array(y[20:])})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)


@app.evaluate()
def evaluate(message, context):
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)


def inner(name="FedAvg", **options):
    kind, own = STRATEGIES[name]
    return kind(min_train_nodes=2, min_available_nodes=N, **(own | options))


def protected(name="FedAvg", sink=None, at_most=None, **options):
    watcher = Clients(alpha=0.05, horizon=ROUNDS, seed=1)
    return Monitored(inner(name, **options), watcher, on_alarm="exclude", sink=sink, at_most=at_most)


def start(strategy, attack=None, tamper=None, n_rounds=ROUNDS, seed=0, first=None, order=0):
    """The arrays after each round, as one vector each."""
    random.seed(order)  # Flower samples its nodes with it, and their order is the order of its sums
    path = {}
    first = ArrayRecord({"a": Array(np.zeros((4, 5))), "b": Array(np.zeros(10))}) if first is None else first
    config = {"seed": seed} | {f"bad-{k}": last for k, last in (attack or {}).items()}
    strategy.start(
        InProcessGrid(app, N, config, tamper),
        first,
        num_rounds=n_rounds,
        evaluate_fn=lambda r, arrays: path.update({r: as_vector(arrays)}),
    )
    return path


def as_vector(arrays):
    return np.concatenate([arrays["a"].numpy().ravel(), arrays["b"].numpy()])


def loss(y):
    """Of the clients that stay honest, less the smallest that it can be."""
    centre = OPTIMA[list(HONEST)].mean(axis=0)
    return float(0.5 * np.sum(CURVATURE * (y - centre) ** 2))


def alike(a, b):
    """But for the order of sums: Flower draws the order of the nodes that it sees."""
    return np.allclose(a, b, rtol=1e-9, atol=1e-12)


def gone(clients, after=0):
    """A grid from which nothing comes of these clients after a round."""
    return lambda reply, k, r: None if k in clients and r > after else reply


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_is_taken_back_and_goes_on_without_those_who_turned_bad(name):
    """It would fail if suspects went on being asked, if the run went on from attacked arrays, or if the watch stopped.

    Two of ten clients send the opposite of what they learnt: unprotected, the distance of the loss from its minimum is
    twice to five hundred times as large.
    """
    told, asked = [], set()

    def tamper(reply, k, r):
        asked.add((r, k, reply.metadata.message_type))
        return reply

    strategy = protected(name, sink=lambda r, verdict: told.append(as_json(r, verdict)))
    path = start(strategy, ATTACK, tamper)
    ((number, alarm),) = [(r, verdict) for r, verdict in strategy.verdicts.items() if verdict.alarm]
    assert (number, set(alarm.suspects)) == (21, set(BAD))
    assert 8 <= alarm.rollback <= 20
    assert np.array_equal(path[21], path[alarm.rollback])
    assert (strategy.excluded, strategy.left_out) == ({21: BAD}, BAD)
    assert [strategy.nodes[k] for k in BAD] == [1002, 1007]
    assert max(r for r, k, kind in asked if k in BAD and kind.startswith("train")) == 21
    assert max(r for r, k, kind in asked if k in BAD and kind.startswith("evaluate")) == 20
    assert strategy.participation[40] == HONEST
    assert sorted(strategy.verdicts) == list(range(1, 41))
    assert strategy.verdicts[40].round == strategy.kept.last().round == 40
    assert '"alarm": true' in told[20]
    lost = 21 - alarm.rollback
    never = start(inner(name), ATTACK, gone(BAD, 20), n_rounds=ROUNDS - lost)
    assert loss(path[40]) < 1.3 * loss(never[ROUNDS - lost])
    assert loss(path[40]) < 0.6 * loss(start(inner(name), ATTACK)[40])


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_honest_run_is_that_of_the_bare_strategy_to_the_bit(name):
    strategy = protected(name)
    path, bare = start(strategy), start(inner(name))
    assert all(np.array_equal(path[r], bare[r]) for r in bare)
    assert not strategy.excluded
    assert strategy.verdicts[40].watched == N


def alarm_in(strategy, number, suspects, rollback):
    """Let the watcher say so, whatever it sees."""
    watcher = strategy.watcher
    judge = watcher.judge_uploads

    def told(seen):
        verdict = judge(seen)
        if seen.number != number:
            return verdict
        first = rollback + 1
        return replace(
            verdict, alarm=True, suspects=suspects, onset=first, onset_interval=(first, first), rollback=rollback
        )

    watcher.judge_uploads = told


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_the_strategy_remembers_is_taken_back_too(name):
    """FedAvgM goes on from arrays of its own, and momentum would carry the attack on: the run after the alarm is that
    of a strategy that never saw rounds 6 to 9."""
    strategy = protected(name)
    alarm_in(strategy, 9, (3,), rollback=5)
    path = start(strategy, n_rounds=14)
    bare = start(inner(name), None, lambda reply, k, r: None if 5 < r < 10 or (k == 3 and r > 9) else reply, 14)
    assert not np.array_equal(path[8], bare[8])
    assert all(alike(path[r], bare[r]) for r in range(9, 15))
    assert strategy.kept.before(8).round == 5  # attacked arrays are no longer there to go back to
    assert strategy.kept.before(9).round == 9
    assert np.array_equal(as_vector(strategy.kept.before(9).arrays), path[5])


def test_a_second_attack_is_seen_after_the_first():
    """It would fail if an alarm that was acted on stayed an alarm, or rounds were counted anew."""
    strategy = protected()
    start(strategy, {2: 20, 7: 28})
    assert strategy.excluded == {21: (2,), 29: (7,)}
    assert strategy.verdicts[29].rollback == 28


@pytest.mark.parametrize("at_most", [1, None])
def test_a_run_stops_where_too_many_would_be_left_out(at_most):
    """One of two suspects, or by default five of ten clients."""
    strategy = protected(at_most=at_most)
    alarm_in(strategy, 9, BAD if at_most else (0, 1, 2, 3, 4), rollback=5)
    with pytest.raises(Alarmed) as caught:
        start(strategy, n_rounds=12)
    assert (caught.value.server_round, caught.value.rollback.round) == (9, 5)
    assert not strategy.excluded


def test_an_alarm_right_after_another_counts_with_it():
    """It would fail if the second were taken for a part of the first, which nobody looks at twice."""
    strategy = protected(at_most=1)
    alarm_in(strategy, 9, (3,), rollback=5)
    alarm_in(strategy, 10, (4,), rollback=9)
    with pytest.raises(Alarmed) as caught:
        start(strategy, n_rounds=12)
    assert caught.value.server_round == 10
    assert strategy.excluded == {9: (3,)}


def test_an_alarm_stops_a_run_before_the_strategy_sees_the_round():
    shown = []

    class Shown(FedAvg):
        def aggregate_train(self, server_round, replies):
            shown.append(server_round)
            return super().aggregate_train(server_round, replies)

    with pytest.raises(Alarmed, match="clients 7 and 2 no longer move like the others") as caught:
        start(Monitored(Shown(min_available_nodes=N), Clients(horizon=ROUNDS, seed=1)), ATTACK)
    assert shown[-1] == 20
    assert caught.value.last.round == 20


def with_arrays(reply, value):
    reply.content["arrays"] = ArrayRecord({"a": Array(np.full((4, 5), value)), "b": Array(np.zeros(10))})
    return reply


def with_metrics(reply):
    reply.content["m"] = MetricRecord({"num-examples": 10, "more": 1.0})
    return reply


def without_arrays(reply):
    del reply.content["arrays"]
    return reply


UNUSABLE = {
    "not finite": (lambda reply: with_arrays(reply, np.nan), "not finite"),
    "huge": (lambda reply: with_arrays(reply, 1e30), "changed a parameter by 1e\\+30"),
    "far off": (lambda reply: with_arrays(reply, 1e6), "times as far as the median client"),
    "no arrays": (without_arrays, "0 records of arrays"),
    "other metrics": (with_metrics, "other records or metrics than most"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_client_whose_reply_cannot_be_used_is_left_out_and_the_run_goes_on(name, caplog):
    """As if it had gone away: one client could otherwise hold up a run for ever, or spoil its momentum."""
    change, words = UNUSABLE[name]

    def tamper(reply, k, r):
        training = reply.metadata.message_type.startswith("train")
        return change(reply) if k == 5 and r >= 4 and training else reply

    strategy = protected("FedAdam")
    path = start(strategy, None, tamper, n_rounds=8)
    bare = start(inner("FedAdam"), None, gone({5}, 3), n_rounds=8)
    assert all(alike(path[r], bare[r]) for r in bare)
    assert (strategy.excluded, strategy.refused) == ({4: (5,)}, {})
    assert strategy.participation[4] == (0, 1, 2, 3, 4, 6, 7, 8, 9)
    assert re.search(words, caplog.text)
    assert "left out from now on: client 5 (node 1005)" in caplog.text


def test_a_round_that_half_of_the_clients_spoil_is_an_alarm():
    """A model that diverges makes every upload nonsense: no reason to leave everybody out."""
    strategy = protected()
    with pytest.raises(Alarmed, match=r"ALARM after round 3: invalid update.*good round is 3.*Client 0 sent") as caught:
        start(strategy, None, lambda reply, k, r: with_arrays(reply, np.nan) if k < 5 and r == 4 else reply)
    assert caught.value.server_round == 4
    assert not strategy.excluded


def test_clients_that_are_not_always_there_are_watched_too():
    """Seven of ten are asked in each round; numbers are given as nodes come, so nodes say who was left out."""
    strategy = protected(fraction_train=0.7)
    start(strategy, dict.fromkeys(BAD, 26))
    assert {strategy.nodes[k] - 1000 for k in strategy.left_out} == set(BAD)
    assert min(strategy.excluded) > 26


@pytest.mark.parametrize(
    ("horizon", "share", "expected"),
    [
        (40, 1.0, [("INFO", 1, "no client is judged.*8 earlier rounds"), ("INFO", 12, "judged from now on")]),
        (40, 0.2, [("WARNING", 1, "no client is judged.*At least 4 clients must take part in a round; 2 did")]),
        (3, 1.0, [("WARNING", 1, "8 earlier rounds"), ("WARNING", 4, "the horizon of 3 rounds is over")]),
    ],
)
def test_the_log_says_once_whether_clients_are_judged(horizon, share, expected, caplog):
    """Without an alarm, a run in which nobody can be judged looks like one that is watched."""
    caplog.set_level("INFO")
    with pytest.warns(UserWarning, match="horizon must be at least 12") if horizon < 12 else nullcontext():
        watcher = Clients(horizon=horizon, seed=1)
    start(Monitored(inner(fraction_train=share), watcher, on_alarm="exclude"), n_rounds=14)
    said = [(record.levelname, record.getMessage()) for record in caplog.records if "fedgauss" in record.getMessage()]
    for (level, message), (expected_level, number, words) in zip(said, expected, strict=True):
        assert level == expected_level
        assert re.match(f"fedgauss, round {number}: .*{words}", message)


def test_a_new_start_keeps_numbers_and_who_was_left_out():
    """With other numbers each client would be compared with another's past; the bad ones would be asked again."""
    strategy = protected(fraction_train=0.7)
    path = start(strategy, dict.fromkeys(BAD, 26))
    nodes, out = strategy.nodes, strategy.left_out
    last = strategy.kept.last()
    assert np.array_equal(as_vector(last.arrays), path[40])
    start(strategy, dict.fromkeys(BAD, 0), n_rounds=6, seed=1, first=last.arrays, order=3)
    assert (strategy.nodes, strategy.left_out) == (nodes, out)
    assert not strategy.excluded
    assert not any(set(out) & set(present) for present in strategy.participation.values())
    assert strategy.kept.last().round == strategy.monitor.round == 46


def test_nothing_is_asked_of_clients_and_nothing_that_they_say_of_themselves_counts():
    """A client that was not asked could otherwise take the number of another before it comes."""

    def tamper(reply, k, r):
        reply.content["fedgauss"] = ConfigRecord({"partition": [3.0]})
        return reply

    strategy = protected()
    path, bare = start(strategy, None, tamper, n_rounds=3), start(inner(), n_rounds=3)
    assert strategy.nodes == {k: 1000 + k for k in range(N)}
    assert np.array_equal(path[3], bare[3])
    assert strategy.watcher.request(1) == {}


def test_what_can_be_left_out_is_checked():
    with pytest.raises(ValueError, match=r"on_alarm='exclude' needs Clients, .* got ServerOnly"):
        Monitored(inner(), ServerOnly(11), on_alarm="exclude")
    with pytest.raises(ValueError, match="at_most must be left out unless on_alarm is 'exclude' or"):
        Monitored(inner(), Clients(), at_most=2)
    with pytest.raises(ValueError, match="at_most must be"):
        protected(at_most=0)
    with pytest.raises(ValueError, match="alpha must"):
        Clients(alpha=2.0)


def test_a_protected_run_has_a_log_from_which_a_watcher_judges_alike(tmp_path):
    """An upload that is none in round 5, an alarm in round 21: left out at once, and without going back or with."""

    def tamper(reply, k, r):
        if (k, r) == (5, 5):
            reply.content["arrays"] = ArrayRecord({"a": Array(np.full((4, 5), np.nan)), "b": Array(np.zeros(10))})
        return reply

    watcher = Clients(alpha=0.05, horizon=ROUNDS, seed=1)
    log = client_log(tmp_path / "run.jsonl", watcher.monitor)
    strategy = Monitored(inner(), watcher, on_alarm="exclude", sink=log)
    start(strategy, ATTACK, tamper, n_rounds=26)
    log.close()
    run, verdicts = Run(fg.ClientMonitor()), {}
    for text in (tmp_path / "run.jsonl").read_bytes().splitlines():
        run.take_json(text)
        if run.verdict is not None:
            verdicts[run.round] = run.verdict
    assert verdicts == strategy.verdicts
    assert strategy.excluded == {5: (5,), 21: BAD}
    assert run.monitor.exclusions == watcher.monitor.exclusions
    assert [set(out.clients) for out in run.monitor.exclusions] == [{5}, set(BAD)]


BUFFERS = {
    "norm.num_batches_tracked": lambda rng: np.array(50 + rng.integers(3)),
    "norm.running_mean": lambda rng: 100.0 * rng.normal(size=6),
    "seen": lambda rng: rng.integers(10_000, size=3),  # a counter that no name tells; FedAvg makes floats of it
}


def with_buffers(reply, k, r):
    """What `state_dict()` of a model with a batch normalisation has beside its parameters."""
    if reply is not None and reply.metadata.message_type.startswith("train"):
        rng = np.random.default_rng([k, r])
        sent = reply.content["arrays"]
        reply.content["arrays"] = ArrayRecord(
            {**dict(sent.items()), **{name: Array(drawn(rng)) for name, drawn in BUFFERS.items()}}
        )
    return reply


def first_with_buffers():
    arrays = {"a": np.zeros((4, 5)), "b": np.zeros(10), "norm.running_mean": np.zeros(6)}
    arrays |= {"norm.num_batches_tracked": np.array(0), "seen": np.zeros(3, dtype=np.int64)}
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_counters_and_running_statistics_change_no_verdict(seed, caplog):
    """One counter in the upload hid the sign flip for ten rounds and more; it is averaged as by the strategy alone."""
    caplog.set_level("INFO")
    plain, buffered = protected(), protected()
    path = start(plain, ATTACK, seed=seed)
    same = start(buffered, ATTACK, with_buffers, seed=seed, first=first_with_buffers())
    assert buffered.verdicts == plain.verdicts
    assert buffered.excluded == plain.excluded == {21: BAD}
    assert all(np.array_equal(path[r], same[r]) for r in path)
    assert 50 <= buffered.kept.last().arrays["norm.num_batches_tracked"].numpy() <= 52
    said = [record.getMessage() for record in caplog.records if "not judged:" in record.getMessage()]
    assert said == [
        "fedgauss: whole numbers and running statistics are averaged, but not judged: "
        "norm.num_batches_tracked, norm.running_mean and seen."
    ]
    again = start(buffered, ATTACK, with_buffers, n_rounds=2, first=buffered.kept.last().arrays)  # all floats by now
    assert len(again) == 3
    assert buffered.verdicts[2].round == 42


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (np.zeros((4, 5), dtype=np.int8), "trained; there are none to judge"),
        (np.zeros((4, 5), dtype="V2"), r"an array 'a' of type \|V2; bfloat16 must be sent as float32"),
    ],
)
def test_a_run_that_begins_with_nothing_to_judge_is_refused(sent, words):
    strategy = protected()
    with pytest.raises(ValueError, match=words):
        strategy.start(InProcessGrid(app, N, {"seed": 0}), ArrayRecord({"a": Array(sent)}), num_rounds=1)
