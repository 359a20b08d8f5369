"""`GroupSums`: the strategy's run to rounding, no upload at the server; liars, attackers, clients that are absent."""

import logging
import random

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg

from fedgauss.federated.keys import Key
from fedgauss.federated.wire import decode, encode
from fedgauss.integrations.flower import Alarmed, GroupSums, group_sums_mod
from fedgauss.integrations.flower.group_sums_mod import RECORD, WORDS

N, D, BAD = 12, 30, (2, 7)
CURVATURE = np.linspace(0.2, 1.0, D)
OPTIMA = np.random.default_rng(5).normal(scale=1.0, size=(N, D)) + 1.0  # clients are not alike
NODE = 1000  # that of client 0


def change(start, k, r, seed, bad):
    """Ten steps of noisy SGD towards the client's own optimum; a bad client sends the opposite."""
    rng = np.random.default_rng([seed, k, r])
    y = start.copy()
    for _ in range(10):
        y -= 0.1 * (CURVATURE * (y - OPTIMA[k]) + rng.standard_normal(D))
    return start - (y - start) if r > bad else y


def app_with(mods):
    app = ClientApp(mods=mods)

    @app.train()
    def train(message, context):
        k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
        sent = message.content["arrays"]
        start = np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()])
        y = change(start, k, r, context.run_config["seed"], context.run_config.get(f"bad-{k}", 10**6))
        arrays = ArrayRecord({"a": Array(y[:20].reshape(4, 5)), "b": Array(y[20:])})
        arrays["n"] = Array(sent["n"].numpy() + 3)
        metrics = MetricRecord({"num-examples": 10 + k, "loss": float(k)})
        return Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "loss": 1.0})}), reply_to=message)

    return app


def first():
    model = {"a": Array(np.ones((4, 5)) / 10), "b": Array(np.ones(10) / 10), "n": Array(np.array([7]))}
    return ArrayRecord(model)


def inner(kind=FedAvg, **options):
    return kind(min_train_nodes=2, min_available_nodes=N, fraction_evaluate=0.0, **options)


def start(strategy, n_rounds, mods=None, tamper=None, attack=None, seed=0, n_clients=N, grid=InProcessGrid):
    random.seed(0)
    mods = [group_sums_mod(size=4)] if mods is None else mods
    config = {"seed": seed} | {f"bad-{k}": last for k, last in (attack or {}).items()}
    path = []
    strategy.start(
        grid(app_with(mods), n_clients, config, tamper),
        first(),
        num_rounds=n_rounds,
        evaluate_fn=lambda r, arrays: path.append(np.concatenate([a.numpy().ravel() for a in arrays.values()])),
    )
    return np.array(path)


def content(reply):
    return decode(str(reply.content[RECORD]["content"]))


def with_content(reply, **changes):
    reply.content[RECORD] = ConfigRecord({"content": encode(content(reply) | changes)})
    return reply


def is_upload(reply):
    return reply.has_content() and WORDS in reply.content


@pytest.mark.parametrize("kind", [FedAvg, FedAdam])
def test_a_run_is_the_strategys_own_to_rounding(kind):
    """FedAvg of means of groups is FedAvg: it would fail with wrong weights, signs, metrics or lost arrays."""
    alone, summed = inner(kind), GroupSums(inner(kind), size=4, seed=1)
    theirs, ours = start(alone, 5, mods=[]), start(summed, 5)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert summed.void == {}
    assert [len(group) for group in summed.groups] == [4, 4, 4]


def test_metrics_come_as_means_over_groups():
    strategy = GroupSums(inner(), size=4)
    result = strategy.start(InProcessGrid(app_with([group_sums_mod()]), N, {"seed": 0}), first(), num_rounds=1)
    weights = 10.0 + np.arange(N)
    assert result.train_metrics_clientapp[1]["loss"] == pytest.approx(weights @ np.arange(N) / weights.sum())


def test_the_server_receives_no_upload_and_nothing_that_one_could_be_computed_from():
    """Every message to the server is looked at, whatever its record: it has the words, and few numbers beside them.

    What the words hide is a theorem (`tests/federated/test_group_sums.py`); this is that nothing else leaves. Words and
    sums of words without one of the group, are uniform and near nothing that is hidden: a mean within five standard
    errors fails wrongly by chance 6e-7, and a number below 1e-12 of the range comes by chance 5e-9 in all.
    """
    seen, kept = [], {}

    def tamper(reply, k, r):
        seen.append((k, r, RecordDict(dict(reply.content))))  # as it came: the strategy puts means into some later
        return reply

    def spy(message, context, call_next):
        reply = call_next(message, context)
        sent, arrays = message.content["arrays"], reply.content["arrays"]
        k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
        kept[k, r] = np.concatenate([(arrays[n].numpy() - sent[n].numpy()).ravel() for n in sent])
        return reply

    strategy = GroupSums(inner(), size=4, seed=1)
    start(strategy, 3, mods=[group_sums_mod(), spy], tamper=tamper)
    uploads = {(k, r): content for k, r, content in seen if WORDS in content}
    assert uploads.keys() == kept.keys() == {(k, r) for k in range(N) for r in (1, 2, 3)}
    for others in (content for _, _, content in seen if WORDS not in content):
        assert set(others) == {RECORD}  # introductions and agreements
        assert set(decode(str(others[RECORD]["content"]))) in ({"entry"}, {"tags"})
    mates = {node - NODE: [other - NODE for other in group] for group in strategy.groups for node in group}
    words = {}
    for at, content in uploads.items():
        assert set(content) == {RECORD, WORDS}
        assert list(content[WORDS]) == ["words"]
        told = decode(str(content[RECORD]["content"]))
        assert set(told) == {"shared", "examples", "metrics", "signature", "layout", "names"}
        assert len(told["shared"]) == 3
        assert all(p.shape == (2,) for p in told["shared"].values())
        assert told["metrics"].shape == (1, 4)
        words[at] = content[WORDS]["words"].numpy()
        assert words[at].shape == (D + 1,)
    for (k, r), hidden in kept.items():
        mine = np.rint((10 + k) * hidden * 2.0**24).astype(np.int64).view(np.uint64)
        for left in mates[k]:  # what came without one of the group
            total = np.sum([words[j, r] for j in mates[k] if j != left], axis=0, dtype=np.uint64)
            for found in (total, words[k, r], total - mine, words[k, r] - mine):
                assert np.abs(found.view(np.int64) / 2.0**63).min() > 1e-12
    uniform = np.concatenate(list(words.values())).astype(np.float64) / 2.0**64
    assert uniform.mean() == pytest.approx(0.5, abs=5 / (12 * uniform.size) ** 0.5)
    exact = {r: sum(words[k, r] for k in mates[0]).view(np.int64) / 2.0**24 for r in (1, 2, 3)}
    for r, total in exact.items():  # and the whole of a group is its sum, so that the words are those of uploads
        assert total == pytest.approx(sum((10 + k) * kept[k, r] for k in mates[0]), abs=1e-6)


def test_no_upload_leaves_a_client_whose_server_does_not_add_up():
    """A server without GroupSums, or one that trains before groups agreed, gets errors and no arrays."""
    seen = []

    def tamper(reply, k, r):
        seen.append(reply)
        return reply

    start(inner(), 1, mods=[group_sums_mod()], tamper=tamper)
    assert len(seen) == N
    assert not any(reply.has_content() for reply in seen)


def test_a_group_that_is_not_complete_is_void_and_the_others_go_on():
    """Client 3 is away in round 2 alone: its group's sum is not used in it, and is used again in round 3."""
    strategy = GroupSums(inner(), size=4, seed=1)
    path = start(strategy, 3, tamper=lambda reply, k, r: None if (k, r) == (3, 2) else reply)
    assert set(strategy.void) == {2}
    assert "1003 did not answer" in strategy.void[2][0]
    group = next(group for group in strategy.groups if NODE + 3 in group)
    there = [k for k in range(N) if NODE + k not in group]
    ends = np.array([change(path[1][:D], k, 2, 0, 10**6) for k in there])
    weights = 10.0 + np.array(there)
    assert path[2][:D] == pytest.approx(weights @ ends / weights.sum(), abs=1e-6)


def gone_after_round_1(reply, k, r):
    return None if k == 3 and r >= 2 else reply


def test_a_group_waits_for_its_clients():
    """Else the difference of sums before and after would be the lost client's own: no more is told than at first."""
    strategy = GroupSums(inner(), size=4, seed=1)
    start(strategy, 6, tamper=gone_after_round_1)
    assert set(strategy.void) == {2, 3, 4, 5, 6}
    assert list(strategy.told.values()) == pytest.approx([0.5] * N)


def test_with_patience_the_others_of_a_lost_clients_group_go_on_and_what_that_tells_is_said(caplog):
    """Three others join another group. The sums of both groups, less that of the new one, are the lost client's."""
    logger = logging.getLogger("flwr")
    logger.addHandler(caplog.handler)
    try:
        strategy = GroupSums(inner(), size=4, seed=1, patience=3)
        start(strategy, 7, tamper=gone_after_round_1)
    finally:
        logger.removeHandler(caplog.handler)
    assert set(strategy.void) == {2, 3, 4}
    assert sorted(map(len, strategy.groups)) == [4, 7]
    assert strategy.told[NODE + 3] == pytest.approx(1.0)
    mates = sorted(value for node, value in strategy.told.items() if node != NODE + 3)
    assert mates == pytest.approx([0.5] * 8 + [3**-0.5] * 3)
    said = list(dict.fromkeys(record.message for record in caplog.records if "cosine" in record.message))
    assert ["of 0.50 at most and 0.50" in words for words in said] == [True, False]
    assert "of 1.00 at most and 0.56" in said[1]


def test_who_lies_about_shared_words_is_left_out_and_nobody_else():
    """A client that says other things than its peer of the words that they share is named by the key that both show."""

    def tamper(reply, k, r):
        if k == 5 and r == 2 and is_upload(reply):
            told = content(reply)
            other = sorted(told["shared"])[0]
            told["shared"][other] = told["shared"][other] + np.uint64(2**40)
            return with_content(reply, shared=told["shared"])
        return reply

    strategy = GroupSums(inner(), size=4, seed=1)
    start(strategy, 4, tamper=tamper)
    assert set(strategy.left_out) == {NODE + 5}
    assert "signed" in strategy.left_out[NODE + 5]  # whoever changes a message on its way is found earlier


def forged(partition, change):
    """A reply of one client in round 2 as it never sends it."""

    def tamper(reply, k, r):
        if (k, r) == (partition, 2) and is_upload(reply):
            change(reply)
        return reply

    return tamper


def other_words(reply):
    words = reply.content[WORDS]["words"].numpy()
    reply.content[WORDS] = ArrayRecord({"words": Array(words + np.uint64(1))})


HOSTILE = {
    "fewer words": lambda reply: reply.content.update({WORDS: ArrayRecord({"words": Array(np.zeros(3, np.uint64))})}),
    "floats": lambda reply: reply.content.update({WORDS: ArrayRecord({"words": Array(np.zeros(D + 1))})}),
    "no words": lambda reply: reply.content.pop(WORDS),
    "other words": other_words,
    "no record": lambda reply: reply.content.pop(RECORD),
    "no JSON": lambda reply: reply.content.update({RECORD: ConfigRecord({"content": "{"})}),
    "a list": lambda reply: reply.content.update({RECORD: ConfigRecord({"content": "[]"})}),
    "other names": lambda reply: with_content(reply, names=["loss", "more"]),
    "names that are none": lambda reply: with_content(reply, names=[1]),
    "one record": lambda reply: with_content(reply, layout={"arrays": "m", "metrics": "m"}),
    "huge examples": lambda reply: with_content(reply, examples=1e300),
    "no shares": lambda reply: with_content(reply, shared={}),
    "shares with a stranger": lambda reply: with_content(reply, shared={"7": np.zeros(2, np.uint64)}),
    "another signature": lambda reply: with_content(reply, signature="0" * 128),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_who_sends_nonsense_is_left_out_and_nobody_else(change):
    """It would fail if a reply that breaks the rules raised, was added up, or got another client blamed."""
    strategy = GroupSums(FedAvg(min_train_nodes=2, min_available_nodes=8, fraction_evaluate=0.0), size=4, seed=1)
    path = start(strategy, 3, tamper=forged(5, change), n_clients=8)
    assert set(strategy.left_out) == {NODE + 5}
    assert set(strategy.void) == {2}
    assert np.isfinite(path).all()
    assert np.abs(path).max() < 20.0


def test_two_of_a_group_who_send_another_form_blame_nobody_but_themselves():
    """What is usual is what most clients of the round send, not what half of a group does."""
    seen = GroupSums(inner(), size=4, seed=1)
    start(seen, 1)
    pair = [node - NODE for node in seen.groups[0][:2]]

    def tamper(reply, k, r):
        return with_content(reply, names=["other"]) if k in pair and r == 2 and is_upload(reply) else reply

    strategy = GroupSums(inner(), size=4, seed=1)
    start(strategy, 2, tamper=tamper)
    assert set(strategy.left_out) == {NODE + k for k in pair}


def liar(by=2**40, partition=5, from_round=2):
    """A mod that lies as the client itself, with its signature."""
    real = group_sums_mod()

    def mod(message, context, call_next):
        from fedgauss.federated import group_sums

        mine = context.node_config["partition-id"] == partition
        config = message.content.config_records.get("config", {})
        if not mine or int(config.get("server-round", 0)) < from_round:
            return real(message, context, call_next)
        projected = group_sums._projected
        calls = []

        def lie(words, directions):
            calls.append(1)
            return projected(words, directions) + np.uint64(by if len(calls) == 1 else 0)

        group_sums._projected = lie
        try:
            return real(message, context, call_next)
        finally:
            group_sums._projected = projected

    return mod


def test_a_client_that_signs_its_lie_is_named_by_the_key_that_both_show():
    strategy = GroupSums(inner(), size=4, seed=1)
    start(strategy, 4, mods=[liar()])
    assert set(strategy.left_out) == {NODE + 5}
    assert "lied" in strategy.left_out[NODE + 5]
    assert set(strategy.void) == {2}


def test_noise_in_place_of_an_upload_is_traced_to_its_sender():
    """Uniform words, signed: the sum of its group is noise, and so is the number that its own words give."""

    def noisy(message, context, call_next):
        reply = call_next(message, context)
        if context.node_config["partition-id"] == 4 and message.content["config"]["server-round"] == 2:
            arrays = reply.content["arrays"]
            sent = message.content["arrays"]
            rng = np.random.default_rng(0)
            wild = {n: Array(sent[n].numpy() + 500 * rng.normal(size=sent[n].numpy().shape)) for n in ("a", "b")}
            reply.content["arrays"] = ArrayRecord({**wild, "n": arrays["n"]})
        return reply

    strategy = GroupSums(inner(), size=4, seed=1)
    path = start(strategy, 4, mods=[group_sums_mod(), noisy])
    assert set(strategy.left_out) == {NODE + 4}
    assert np.abs(path).max() < 20.0


def test_a_change_that_is_far_off_but_for_both_numbers_is_found_by_directions_drawn_later():
    """It is at right angles to the model and its last matrix. Without the look its group would be void for ever."""

    def aside(message, context, call_next):
        reply = call_next(message, context)
        if context.node_config["partition-id"] == 4 and message.content["config"]["server-round"] >= 2:
            sent = message.content["arrays"]
            y = np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()])
            in_last = np.concatenate([y[:20], np.zeros(10)])
            basis = np.linalg.qr(np.column_stack([y, in_last]))[0]
            wild = 500 * np.random.default_rng(0).normal(size=D)
            wild -= basis @ (basis.T @ wild)
            reply.content["arrays"] = ArrayRecord(
                {
                    "a": Array((y + wild)[:20].reshape(4, 5)),
                    "b": Array((y + wild)[20:]),
                    "n": reply.content["arrays"]["n"],
                }
            )
        return reply

    strategy = GroupSums(inner(), size=4, seed=1)
    path = start(strategy, 4, mods=[group_sums_mod(), aside])
    assert set(strategy.left_out) == {NODE + 4}
    assert np.abs(path).max() < 20.0


ATTACK = {2: 25, 7: 25}  # the last good rounds of clients that turn bad


def test_two_that_turn_their_sign_are_named_left_out_and_the_run_goes_back():
    """No single upload was seen, and both are named within ten rounds; honest clients are not."""
    strategy = GroupSums(inner(), size=4, seed=1, horizon=40, on_alarm="exclude")
    start(strategy, 40, attack=ATTACK)
    assert set(strategy.left_out) == {NODE + k for k in BAD}
    number, alarm = next((r, verdict) for r, verdict in strategy.verdicts.items() if verdict.alarm)
    assert 26 <= number <= 35
    assert set(alarm.suspects) <= {NODE + k for k in BAD}
    assert alarm.rollback <= 25
    assert not any(NODE + k in group for group in strategy.groups for k in BAD)


def test_an_alarm_stops_the_run_with_the_arrays_to_go_back_to():
    strategy = GroupSums(inner(), size=4, seed=1, horizon=40)
    with pytest.raises(Alarmed) as caught:
        start(strategy, 40, attack=ATTACK)
    assert caught.value.rollback.round <= 25
    assert set(caught.value.rollback.arrays) == {"a", "b", "n"}


def test_an_honest_run_has_no_alarm():
    strategy = GroupSums(inner(), size=4, seed=1, horizon=40)
    start(strategy, 40)
    assert not any(verdict.alarm for verdict in strategy.verdicts.values())
    assert strategy.verdicts[40].watched == N
    assert strategy.left_out == {}


def test_a_server_that_invents_clients_gets_nothing_where_keys_are_pinned(tmp_path):
    """The server puts keys of its own into the roster, signed by itself, so that it would know all words but one."""
    files = {k: tmp_path / f"{k}.key" for k in range(N)}
    pinned = [Key.read(path).public for path in files.values()]

    def key_of(context):
        return files[context.node_config["partition-id"]]

    honest = GroupSums(inner(), size=4, seed=1)
    start(honest, 1, mods=[group_sums_mod(key_of=key_of, pinned=pinned)])
    assert honest.void == {}
    (tmp_path / "1.key").unlink()  # this client has another key than was pinned
    invented = GroupSums(inner(), size=4, seed=1)
    start(invented, 1, mods=[group_sums_mod(key_of=key_of, pinned=pinned)])
    assert NODE + 1 not in {node for group in invented.groups for node in group}


def test_a_client_answers_a_round_once():
    """A server that asks the same round again, with other groups, is refused: differences would be single uploads."""

    class Twice(InProcessGrid):
        def send_and_receive(self, messages, *, timeout=None):
            messages = list(messages)
            content = [RecordDict(dict(message.content)) for message in messages]
            replies = super().send_and_receive(messages, timeout=timeout)
            if not all(record.get(RECORD, {}).get("order") == "train" for record in content):
                return replies
            for message, before in zip(messages, content, strict=True):
                message.content = before
            self.again = super().send_and_receive(messages, timeout=timeout)
            return replies

    grids = []

    def grid(*args):
        grids.append(Twice(*args))
        return grids[-1]

    start(GroupSums(inner(), size=4, seed=1), 1, grid=grid)
    again = [reply for reply in grids[0].again if reply.has_content() and WORDS in reply.content]
    assert again == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 2}, "size must"),
        ({"size": 40}, "at most 32"),
        ({"on_alarm": "ban"}, "on_alarm"),
        ({"alpha": 2}, "alpha"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        GroupSums(inner(), **options)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1, 2])], ids=["text", "whole numbers"])
def test_models_without_numbers_that_train_are_refused_in_words(array):
    with pytest.raises(ValueError, match="arrays must"):
        GroupSums(inner(), size=4).start(
            InProcessGrid(app_with([group_sums_mod()]), N, {"seed": 0}), ArrayRecord({"a": Array(array)}), num_rounds=1
        )


def test_fewer_clients_than_a_group_are_refused_in_words():
    with pytest.raises(ValueError, match="a group of 4 clients"):
        start(GroupSums(FedAvg(min_available_nodes=3, fraction_evaluate=0.0), size=4), 1, n_clients=3)
