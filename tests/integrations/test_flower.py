"""`Monitored` around real strategies, with the example's ClientApp on an in-process grid."""

import random
import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config, example_lin
from flower_watch.client_app import app, train
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedMedian, Krum

import fedgauss as fg
from fedgauss.detect.client_rounds import ClientInnovations
from fedgauss.integrations.flower import Alarmed, Monitored, Reported, ServerOnly
from fedgauss.integrations.flower.feed import _as_in_the_paper
from fedgauss.integrations.flower.kept import KeptArrays
from fedgauss.integrations.flower.roster import Roster
from fedgauss.integrations.flower.rounds import TrainingRound, Upload, _other_types

CONFIG = example_config(n_rounds=24, attack_after=14, shift=1.0, watch="reports")
HONEST = CONFIG | {"attack-after": 24}
N, TAU = CONFIG["n-clients"], CONFIG["local-steps"]
STEPS = fg.step_sizes.constant(CONFIG["rate"])
LIN = example_lin(CONFIG)


def fedavg(kind=FedAvg, **options):
    return kind(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N, **options)


def monitor(alpha=0.01):
    return fg.Monitor(LIN, STEPS, TAU, alpha=alpha, horizon=500)


def first_arrays():
    return ArrayRecord({"weight": Array(np.zeros((1, 3)))})


PLAIN = ClientApp()  # without mods
PLAIN.train()(train)


def start(strategy, config=CONFIG, tamper=None, n_rounds=None, client=app, first=None):
    """The arrays after each round."""
    random.seed(0)  # Flower samples its nodes with it, and their order is the order of its sums
    path = {}
    strategy.start(
        InProcessGrid(client, N, config, tamper),
        first or first_arrays(),
        num_rounds=n_rounds or config["n-rounds"],
        evaluate_fn=lambda server_round, arrays: path.update({server_round: arrays["weight"].numpy().ravel()}),
    )
    return path


class Recording(FedAvg):
    """Keeps everything that it is asked and given."""

    def __init__(self):
        super().__init__(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
        self.sent, self.seen = [], []

    def configure_train(self, server_round, arrays, config, grid):
        messages = super().configure_train(server_round, arrays, config, grid)
        self.sent.append((server_round, arrays["weight"].numpy().tolist(), len(messages)))
        return messages

    def aggregate_train(self, server_round, replies):
        def readable(record):
            return {k: v.numpy().tolist() if isinstance(v, Array) else v for k, v in record.items()}

        self.seen.append(
            [(m.metadata.src_node_id, {name: readable(r) for name, r in m.content.items()}) for m in replies]
        )
        return super().aggregate_train(server_round, replies)


def test_the_strategy_sees_what_it_would_see_alone():
    alone, inside = Recording(), Recording()
    path = start(alone, HONEST, n_rounds=8, client=PLAIN)
    watcher = Reported(STEPS, TAU, N, after=2, horizon=500)
    again = start(Monitored(inside, watcher), HONEST, n_rounds=8)
    assert watcher.monitor is not None  # so there was something to hide
    assert (inside.sent, inside.seen) == (alone.sent, alone.seen)
    assert all(np.array_equal(path[r], again[r]) for r in path)


def test_an_attack_is_alarmed_on_and_arrays_from_before_it_are_there():
    path = start(fedavg())
    strategy = Monitored(fedavg(), monitor())
    with pytest.raises(Alarmed) as caught:
        start(strategy)
    alarm = caught.value
    assert 14 < alarm.server_round <= 18
    assert 121 <= alarm.verdict.onset <= 161
    assert alarm.last.round == alarm.server_round - 1
    assert alarm.rollback.round == alarm.verdict.rollback <= 15
    for good in (alarm.last, alarm.rollback):
        assert np.array_equal(good.arrays["weight"].numpy().ravel(), path[good.round])
    assert strategy.participation[3] == tuple(range(N))
    assert "ALARM" in str(alarm)


def test_an_honest_run_is_left_alone():
    strategy = Monitored(fedavg(), monitor())
    path = start(strategy, HONEST)
    assert sorted(path) == list(range(25))
    assert sorted(strategy.verdicts) == list(range(1, 25))
    assert not any(verdict.alarm or verdict.note for verdict in strategy.verdicts.values())
    assert not strategy.refused


def test_going_on_names_the_clients():
    strategy = Monitored(fedavg(), monitor(), on_alarm="go on")
    start(strategy)
    assert strategy.verdicts[24].alarm
    assert {2, 7} <= set(strategy.monitor.suspects().malicious)
    first = min(r for r, verdict in strategy.verdicts.items() if verdict.alarm)
    assert strategy.kept.last().round == first - 1


def test_a_callback_is_called_once_and_may_reset():
    alarms = []
    strategy = Monitored(fedavg(), monitor(), on_alarm=alarms.append)
    start(strategy)
    assert len(alarms) == 1
    assert isinstance(alarms[0], Alarmed)
    assert strategy.verdicts[24].alarm


def test_what_to_do_on_alarm_is_checked():
    with pytest.raises(ValueError, match="on_alarm must be 'stop', 'go on', 'exclude', 'quarantine' or a function"):
        Monitored(fedavg(), monitor(), on_alarm="continue")
    with pytest.raises(ValueError, match=r"strategy must be a flwr.serverapp.strategy.Strategy; got str"):
        Monitored("FedAvg", monitor())


def test_a_monitor_of_another_model_is_refused():
    other = fg.Monitor(fg.linearization(np.eye(2)[None], np.eye(2)[None]), STEPS, TAU)
    with pytest.raises(ValueError, match="must be for all 3 parameters of the model; it is for 2"):
        start(Monitored(fedavg(), other), HONEST, n_rounds=1)


@pytest.mark.parametrize(
    ("kind", "options"), [(FedMedian, {}), (Krum, {"num_malicious_nodes": 2}), (FedAdam, {"eta": 0.05})]
)
def test_strategies_that_do_not_average_run_as_alone_and_the_verdict_says_what_they_are(kind, options):
    path = start(fedavg(kind, **options), HONEST, n_rounds=5)
    strategy = Monitored(fedavg(kind, **options), monitor(), on_alarm="go on")
    again = start(strategy, HONEST, n_rounds=5)
    assert all(np.array_equal(path[r], again[r]) for r in path)
    assert "not the mean of what clients sent" in strategy.verdicts[5].note


def replaced(reply, weight):
    reply.content["arrays"] = ArrayRecord({"weight": weight if isinstance(weight, Array) else Array(weight)})
    return reply


def with_two_records(reply):
    reply.content["more"] = ArrayRecord({"weight": Array(np.zeros(3))})
    return reply


def without_arrays(reply):
    del reply.content["arrays"]
    return reply


def with_examples(reply, count):
    reply.content["metrics"] = MetricRecord({"num-examples": count})
    return reply


def claiming(reply, partition):
    reply.content["fedgauss"] = ConfigRecord({"partition": partition if isinstance(partition, list) else [partition]})
    return reply


def with_metrics(reply, **more):
    reply.content["metrics"] = MetricRecord({"num-examples": 400} | more)
    return reply


HOSTILE = {
    "not finite": (lambda reply: replaced(reply, np.full((1, 3), np.nan)), "finite"),
    "infinite": (lambda reply: replaced(reply, np.full((1, 3), np.inf)), "finite"),
    "absurd": (lambda reply: replaced(reply, np.full((1, 3), 1e30)), "not plausible"),
    "a shape that would broadcast": (lambda reply: replaced(reply, np.zeros((1, 1))), r"shape \(1, 1\)"),
    "a shape that would not": (lambda reply: replaced(reply, np.zeros((4, 7))), r"shape \(4, 7\)"),
    "words": (lambda reply: replaced(reply, np.array([["a", "b", "c"]])), "of type <U1"),
    "no array at all": (lambda reply: replaced(reply, Array("float64", (1, 3), "numpy.ndarray", b"x")), "be read"),
    "another name": (lambda r: r.content.update({"arrays": ArrayRecord({"w": Array(np.zeros(3))})}) or r, "in place"),
    "no arrays": (without_arrays, "sent 0 records"),
    "too many": (with_two_records, "sent 2 records"),
    "another type": (lambda reply: replaced(reply, np.zeros((1, 3), np.float16)), "of type float16; most sent float64"),
    "no number of examples": (lambda reply: with_examples(reply, float("nan")), "num-examples = nan in place of"),
    "negative examples": (lambda reply: with_examples(reply, -5), "num-examples = -5 in place of"),
    "no examples": (lambda reply: with_examples(reply, 0), "num-examples = 0 in place of"),
    "too many examples": (lambda reply: with_examples(reply, 1.7e308), "num-examples = 1.7e"),
    "a list of examples": (lambda reply: with_examples(reply, [1, 2]), r"num-examples = \[1, 2\] in place of"),
    "no metrics": (lambda reply: reply.content.pop("metrics") and reply, "The strategy cannot use the replies"),
    "other metrics": (lambda reply: with_metrics(reply, more=1), "The strategy cannot use the replies"),
}


def state(watched):
    words, arrays = watched.state()
    return words, {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_reply_is_refused_and_the_monitor_stays_as_it_was(name):
    """Client 5 sends it in round 4: refused there, and the run goes on as if the monitor had not seen the round."""
    change, words = HOSTILE[name]

    def tamper(reply, partition, server_round):
        return change(reply) if (partition, server_round) == (5, 4) else reply

    states, alarms = {}, []
    strategy = Monitored(fedavg(), monitor(), on_alarm=alarms.append)
    judge = strategy.watcher.judge

    def judged(seen, after):
        states[seen.number, "before"] = state(strategy.monitor)
        verdict = judge(seen, after)
        states[seen.number, "after"] = state(strategy.monitor)
        return verdict

    strategy.watcher.judge = judged
    path = start(strategy, HONEST, tamper, n_rounds=6)
    assert (4, "before") not in states
    assert states[5, "before"] == states[3, "after"]
    assert [(a.verdict.channel, a.server_round) for a in alarms] == [("invalid update", 4)]
    assert alarms[0].last.round == 3
    assert np.array_equal(path[4], path[3])
    assert not strategy.verdicts[6].alarm
    assert (strategy.monitor.round, strategy.monitor.step) == (5, 50)
    assert re.search(words, str(alarms[0]))


def test_an_invalid_update_stops_a_run_that_stops_on_alarms():
    def tamper(reply, partition, server_round):
        return replaced(reply, np.full((1, 3), np.nan)) if (partition, server_round) == (5, 2) else reply

    told = []
    with pytest.raises(Alarmed, match="invalid update") as caught:
        start(
            Monitored(fedavg(), monitor(), sink=lambda r, verdict: told.append((r, verdict.alarm))),
            HONEST,
            tamper,
            n_rounds=4,
        )
    assert told == [(1, False), (2, True)]  # a sink hears of the alarm that ends a run
    assert (caught.value.server_round, caught.value.rollback.round) == (2, 1)


def test_clients_that_do_not_answer_are_not_counted_as_present():
    def tamper(reply, partition, server_round):
        return None if partition in (1, 6) and server_round in (5, 6) else reply

    strategy = Monitored(fedavg(), monitor())
    start(strategy, HONEST, tamper, n_rounds=8)
    assert strategy.participation[5] == (0, 2, 3, 4, 5, 7, 8, 9)
    assert strategy.participation[7] == tuple(range(N))
    assert strategy.monitor.round == 8


@pytest.mark.parametrize(
    ("claim", "words"), [(3, "Two nodes say that they are client 3: 1003 and 1005"), (99, "There is no client 99")]
)
def test_a_client_that_takes_a_place_that_is_not_its_own_is_noticed(claim, words):
    def tamper(reply, partition, server_round):
        return claiming(reply, claim) if (partition, server_round) == (5, 1) else reply

    with pytest.raises(Alarmed, match=words):
        start(Monitored(fedavg(), monitor()), HONEST, tamper, n_rounds=2)


def test_a_node_cannot_speak_for_a_client_that_is_absent():
    """Client 5 is away when node 1007, new in round 2, says that it is client 5: it would frame it."""

    def tamper(reply, partition, server_round):
        if (partition, server_round) in {(7, 1), (5, 2)}:
            return None
        return claiming(reply, 5) if (partition, server_round) == (7, 2) else reply

    strategy = Monitored(fedavg(), monitor(), on_alarm="go on")
    start(strategy, HONEST, tamper, n_rounds=3)
    assert strategy.refused == {2: ("Two nodes say that they are client 5: 1005 and 1007.",)}
    assert strategy.participation[3] == tuple(range(N))  # it said who it is, and has its own number
    assert strategy.nodes == {k: 1000 + k for k in range(N)}


@pytest.mark.parametrize("claim", [3, 99, -1, 2.5, np.nan, "a", [1, 2], [1e300]])
def test_what_a_known_client_says_of_itself_does_not_matter(claim):
    def tamper(reply, partition, server_round):
        return claiming(reply, claim) if (partition, server_round) == (5, 2) else reply

    strategy = Monitored(fedavg(), monitor())
    start(strategy, HONEST, tamper, n_rounds=2)
    assert strategy.participation[2] == tuple(range(N))


def test_clients_are_numbered_by_what_they_said_first():
    roster = Roster()
    assert [roster.number(node) for node in (50, 70)] == [0, 1]
    assert [roster.number(node, k) for node, k in ((80, 4), (90, 2))] == [4, 2]
    assert [roster.number(90, 7), roster.number(95), roster.number(50), roster.number(99)] == [2, 3, 0, 5]
    assert 95 in roster
    assert 96 not in roster
    with pytest.raises(ValueError, match="Two nodes say that they are client 4: 80 and 96"):
        roster.number(96, 4)
    assert 96 not in roster
    assert roster.nodes == {0: 50, 1: 70, 2: 90, 3: 95, 4: 80, 5: 99}


def test_mods_are_not_needed():
    strategy = Monitored(fedavg(), monitor())
    start(strategy, HONEST, n_rounds=3, client=PLAIN)
    assert strategy.participation[3] == tuple(range(N))


def test_a_round_without_any_answer_is_left_out():
    strategy = Monitored(fedavg(), monitor())
    path = start(strategy, HONEST, lambda reply, k, r: None if r == 3 else reply, n_rounds=5)
    assert np.array_equal(path[3], path[2])
    assert sorted(strategy.verdicts) == [1, 2, 4, 5]
    assert strategy.participation[3] == ()


def test_uploads_become_those_of_the_paper_with_the_same_innovations():
    rng = np.random.default_rng(0)
    before, each = rng.standard_normal(3), rng.standard_normal((N, 3))
    uploads = tuple(Upload(k, {"w": row}, 1.0, {}) for k, row in enumerate(each))
    table = _as_in_the_paper(monitor(), TrainingRound(1, {"w": before}, uploads))
    began = np.broadcast_to(before, table.shape)
    alike = ClientInnovations(LIN, STEPS, np.full(N, 1 / N)).of_round(began, each, 0, TAU)  # FedAvg's own steps
    np.testing.assert_allclose(ClientInnovations(LIN, STEPS).of_round(began, table, 0, TAU), alike, rtol=1e-9)
    # To first order it is the way scaled by K w_k, so that the plain mean is the weighted one.
    np.testing.assert_allclose(table.mean(axis=0), LIN.weights @ each, atol=0.1)
    part = _as_in_the_paper(monitor(), TrainingRound(1, {"w": before}, (uploads[1], uploads[4])))
    np.testing.assert_array_equal(part[[1, 4]], table[[1, 4]])
    assert np.isnan(part[[0, 9]]).all()


def test_kept_arrays_are_few_and_dense_near_the_end():
    kept = KeptArrays()
    for r in range(2001):
        kept.add(r, ArrayRecord({"round": Array(np.array(r))}))
    assert len(kept) <= 32 * 8
    for wanted in range(0, 2001, 9):
        good = kept.before(wanted)
        assert good.round <= wanted
        assert wanted - good.round <= (2000 - wanted) / 16
        assert int(good.arrays["round"].numpy()) == good.round
    assert kept.last().round == 2000


class Looping(FedAvg):
    """A `start` of its own, with attributes, a helper and super()."""

    def start(self, *args, **kwargs):
        self.best = 0
        return super().start(*args, **kwargs)

    def aggregate_train(self, server_round, replies):
        self._note_best(server_round)
        return super().aggregate_train(server_round, replies)

    def _note_best(self, server_round):
        self.best = max(self.best, server_round)


def test_a_strategy_with_a_start_of_its_own_runs_as_alone_and_is_left_as_it_was():
    inner = fedavg(Looping)
    before = dict(vars(inner))
    strategy = Monitored(inner, monitor())
    start(strategy, HONEST, n_rounds=3)
    assert sorted(strategy.verdicts) == [1, 2, 3]
    assert vars(inner) == before | {"best": 3}
    with pytest.raises(ValueError, match="strategy must not be Monitored itself"):
        Monitored(strategy, monitor())


def hit(change, client=5, number=4):
    return lambda reply, k, r: change(reply) if (k, r) == (client, number) else reply


@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_nonsense_does_not_reach_a_strategy_that_remembers(value):
    """Adam's momentum would keep it; without the round the run is the honest one, a round of clients' draws later."""
    bad = hit(lambda reply: replaced(reply, np.full((1, 3), value)))
    strategy = Monitored(fedavg(FedAdam, eta=0.05), monitor(), on_alarm="go on")
    path = start(strategy, HONEST, bad, n_rounds=6)
    lost = start(fedavg(FedAdam, eta=0.05), HONEST, lambda reply, k, r: None if r == 4 else reply, n_rounds=6)
    assert all(np.array_equal(path[r], lost[r]) for r in lost)
    assert list(strategy.refused) == [4]


def test_a_first_round_that_is_not_plausible_is_refused():
    strategy = Monitored(fedavg(), monitor(), on_alarm="go on")
    path = start(strategy, HONEST, hit(lambda reply: replaced(reply, np.full((1, 3), 1e60)), number=1), n_rounds=3)
    assert np.array_equal(path[1], path[0])
    assert strategy.verdicts[1].channel == "invalid update"
    assert not strategy.verdicts[3].alarm


@pytest.mark.parametrize("watcher", [Reported(STEPS, TAU, N, after=9), ServerOnly(11, sync_every=TAU)], ids=type)
def test_an_invalid_update_is_an_alarm_in_a_warm_up_too(watcher):
    told = []
    strategy = Monitored(fedavg(), watcher, sink=lambda r, verdict: told.append((r, verdict.channel)))
    with pytest.raises(Alarmed, match=r"ALARM after round 3 \(step 30\): invalid update.*good round is 2") as caught:
        start(strategy, HONEST, hit(lambda reply: replaced(reply, np.full((1, 3), np.nan)), number=3), n_rounds=5)
    assert told == [(3, "invalid update")]
    assert caught.value.rollback.round == caught.value.last.round == 2


def test_a_sink_that_fails_is_warned_of_and_the_run_goes_on():
    def broken(server_round, verdict):
        raise OSError("disk full")

    strategy = Monitored(fedavg(), monitor(), sink=broken)
    with pytest.warns(fg.FedgaussWarning, match="the sink broken failed and the run goes on; OSError: disk full"):
        start(strategy, HONEST, n_rounds=3)
    assert sorted(strategy.verdicts) == [1, 2, 3]


def test_nodes_are_asked_for_their_partition_until_they_have_replied_and_by_server_only_never():
    def asked(watcher, tamper=None):
        found = []

        def mod(message, context, call_next):
            if "fedgauss" in message.content:
                found.append((message.content["config"]["server-round"], context.node_config["partition-id"]))
            return call_next(message, context)

        client = ClientApp(mods=[mod])
        client.train()(train)
        start(Monitored(fedavg(), watcher), HONEST, tamper, n_rounds=3, client=client)
        return sorted(found)

    first = [(1, k) for k in range(N)]
    assert asked(monitor()) == first
    assert asked(monitor(), lambda reply, k, r: None if (k, r) == (5, 1) else reply) == [*first, (2, 5)]
    assert asked(ServerOnly(11)) == []


def test_types_may_differ_from_those_sent_but_not_between_clients():
    """FedAvg makes floats of integers, such as a count of batches, and clients go on sending integers."""

    def sent(*types):
        return _other_types(tuple(Upload(k, {"w": np.zeros(3, kind)}, 1.0, {}) for k, kind in enumerate(types)))

    assert sent(np.int64, np.int64, np.int64) == {}
    assert sent(np.float32, np.float64, np.float32) == {
        1: "Client 1 sent an array 'w' of type float64; most sent float32."
    }


def test_weights_that_are_not_the_monitors_are_noted():
    def tamper(reply, partition, server_round):
        return with_examples(reply, 50_000) if (partition, server_round > 1) == (0, True) else reply

    strategy = Monitored(fedavg(), monitor(), on_alarm="go on")
    start(strategy, HONEST, tamper, n_rounds=3)
    assert [bool(strategy.verdicts[r].note) for r in (1, 2, 3)] == [False, True, True]
    assert re.search(r"otherwise than the monitor \(client 0 by 0\.9\d+, not 0\.\d+\)", strategy.verdicts[3].note)


@pytest.fixture(scope="module")
def alarmed():
    """A strategy that stopped at an alarm, and the alarm."""
    strategy = Monitored(fedavg(), monitor())
    with pytest.raises(Alarmed) as caught:
        start(strategy)
    return strategy, caught.value


def test_a_run_goes_on_after_an_alarm_with_the_arrays_to_go_back_to(alarmed):
    strategy, alarm = alarmed
    start(strategy, HONEST, n_rounds=8, first=alarm.rollback.arrays)
    assert sorted(strategy.verdicts) == list(range(1, 9))
    assert not any(verdict.alarm for verdict in strategy.verdicts.values())
    assert "began elsewhere than the last one ended" in strategy.verdicts[1].note
    assert not strategy.verdicts[2].note
    with pytest.raises(Alarmed) as caught:  # a new attack
        start(strategy, CONFIG | {"attack-after": 8}, n_rounds=20, first=alarm.rollback.arrays)
    assert caught.value.server_round > 8


def test_a_run_that_begins_elsewhere_is_no_attack_and_keeps_its_own_arrays():
    strategy = Monitored(fedavg(), monitor())
    start(strategy, HONEST, n_rounds=10)
    path = start(strategy, HONEST, n_rounds=5)
    assert sorted(strategy.participation) == [1, 2, 3, 4, 5]
    assert strategy.kept.last().round == 15
    assert np.array_equal(strategy.kept.last().arrays["weight"].numpy().ravel(), path[5])
    assert np.array_equal(strategy.kept.before(0).arrays["weight"].numpy().ravel(), path[0])


def test_a_monitor_that_was_loaded_goes_on_where_it_was(tmp_path):
    strategy = Monitored(fedavg(), monitor())
    path = start(strategy, HONEST, n_rounds=5)
    strategy.monitor.save(tmp_path / "monitor.npz")
    later = Monitored(fedavg(), fg.Monitor.load(tmp_path / "monitor.npz"))
    last = ArrayRecord({"weight": Array(path[5].reshape(1, 3))})
    bad = hit(lambda reply: replaced(reply, np.full((1, 3), np.nan)), number=2)
    with pytest.raises(Alarmed) as caught:
        start(later, HONEST, bad, n_rounds=3, first=last)
    assert not later.verdicts[1].note
    assert later.verdicts[1].round == 6
    assert caught.value.rollback.round == 6


def test_a_wrapper_that_changes_arrays_outside_is_said_to_belong_inside(caplog):
    """Noise that the monitor does not see would otherwise be an alarm in every run."""
    watched = Monitored(fedavg(), monitor())
    start(DifferentialPrivacyServerSideFixedClipping(watched, 0.5, 5.0, N), HONEST, n_rounds=6)
    assert not any(verdict.alarm for verdict in watched.verdicts.values())
    assert "put it inside: Monitored(that(strategy), ...)" in caplog.text


TWO = ClientApp()


@TWO.train()
def two_arrays(message, context):
    """Noisy steps towards a = 5, b = -3; client 3 returns its arrays in another order."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    rng = np.random.default_rng([1, k, r])
    sent = message.content["arrays"]
    a, b = sent["a"].numpy().copy(), sent["b"].numpy().copy()
    for _ in range(10):
        a -= 0.05 * (a - 5.0 + rng.standard_normal(2))
        b -= 0.05 * (b + 3.0 + rng.standard_normal(2))
    arrays = {"b": Array(b), "a": Array(a)} if k == 3 else {"a": Array(a), "b": Array(b)}
    metrics = MetricRecord({"num-examples": 10})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "m": metrics}), reply_to=message)


def test_arrays_keep_their_order_whoever_replies_first():
    lin = fg.linearization([np.eye(4)] * N, [np.eye(4)] * N)
    watched = fg.Monitor(lin, STEPS, TAU, alpha=0.01, horizon=500)
    first = ArrayRecord({"a": Array(np.full(2, 5.0)), "b": Array(np.full(2, -3.0))})
    orders = []
    random.seed(0)
    Monitored(fedavg(), watched).start(
        InProcessGrid(TWO, N),
        first,
        num_rounds=8,
        evaluate_fn=lambda server_round, arrays: orders.append(list(arrays)),
    )
    assert orders == [["a", "b"]] * 9
    assert np.all(np.abs(watched.mean - [5.0, 5.0, -3.0, -3.0]) < 1.0)
