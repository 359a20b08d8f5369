"""`stop_when`: a Flower run that ends early returns what it has, and a rule sees only rounds that changed the model."""

import random
from functools import cache

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config
from flower_watch.client_app import app
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from fedgauss.integrations.flower import Clients, Monitored
from fedgauss.stopping import Plateau

CONFIG = example_config(n_rounds=8, attack_after=8)
N = CONFIG["n-clients"]


def start(stop_when, n_rounds=8, evaluate_fn=None, tamper=None, positional=False, on_alarm="go on"):
    random.seed(0)  # Flower samples its nodes with it
    fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
    strategy = Monitored(fedavg, Clients(), on_alarm=on_alarm, stop_when=stop_when)
    first = ArrayRecord({"weight": Array(np.zeros((1, 3)))})
    grid = InProcessGrid(app, N, CONFIG, tamper)
    if positional:
        return strategy, strategy.start(grid, first, n_rounds, 3600, None, None, evaluate_fn)
    return strategy, strategy.start(grid, first, num_rounds=n_rounds, evaluate_fn=evaluate_fn)


def falling(server_round, arrays):
    return MetricRecord({"error": 1.0 / (1 + server_round)})


@pytest.mark.parametrize("positional", [False, True])
def test_a_run_that_ends_early_returns_what_one_of_that_length_would(positional):
    """Fails if the last round were lost or half done, or an evaluation were missing from the result."""
    strategy, ended = start(lambda r, metrics: metrics["error"] < 0.21, evaluate_fn=falling, positional=positional)
    _, short = start(None, n_rounds=4, evaluate_fn=falling)
    assert strategy.stopped is True
    assert len(strategy.verdicts) == len(strategy.participation) == 4
    for part in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
        assert getattr(ended, part) == getattr(short, part)
    assert list(ended.evaluate_metrics_serverapp) == [0, 1, 2, 3, 4]
    assert np.array_equal(ended.arrays["weight"].numpy(), short.arrays["weight"].numpy())


def test_a_rule_that_never_stops_changes_nothing():
    seen = []
    strategy, result = start(lambda r, metrics: seen.append((r, sorted(metrics))), evaluate_fn=falling)
    _, plain = start(None, evaluate_fn=falling)
    assert strategy.stopped is None
    assert [r for r, _ in seen] == list(range(1, 8))  # after the last round there is nothing left to decide
    assert all("error" in names for _, names in seen)
    assert np.array_equal(result.arrays["weight"].numpy(), plain.arrays["weight"].numpy())
    assert "configure_train" not in vars(strategy.strategy)


def test_rounds_that_were_refused_do_not_look_like_a_plateau():
    """A client that sends nonsense leaves the model as it was, and the metric with it."""
    seen = []

    def nonsense(reply, partition, server_round):
        if partition == 0 and server_round in (3, 4):
            (record,) = reply.content.array_records.values()
            record["weight"] = Array(np.full((1, 3), np.nan))
        return reply

    strategy, _ = start(lambda r, metrics: seen.append(r), n_rounds=7, evaluate_fn=falling, tamper=nonsense)
    assert sorted(strategy.refused) == [3, 4]
    assert seen == [1, 2, 5, 6]


def test_a_rule_starts_again_with_every_start_and_after_an_exclusion():
    rule = Plateau("error", 0.01, goal="min")
    rule.update(1.0)

    def nonsense(reply, partition, server_round):
        if partition == 0 and server_round == 3:
            (record,) = reply.content.array_records.values()
            record["weight"] = Array(np.full((1, 3), np.nan))
        return reply

    strategy, _ = start(rule, n_rounds=7, evaluate_fn=falling, tamper=nonsense, on_alarm="exclude")
    assert list(strategy.excluded) == [3]
    assert rule._values == [pytest.approx(1 / (1 + r)) for r in (4, 5, 6)]


def test_a_plateau_ends_a_run_and_says_why():
    def evaluate(server_round, arrays):
        return MetricRecord({"accuracy": 0.9 - 0.8 * 0.5**server_round})

    strategy, result = start(Plateau("accuracy", 0.02), n_rounds=60, evaluate_fn=evaluate)
    assert str(strategy.stopped).startswith(f"Round {max(result.train_metrics_clientapp)}: as many rounds again would")
    assert max(result.train_metrics_clientapp) in (20, 25)


def test_what_is_no_rule_is_refused():
    with pytest.raises(ValueError, match=r"stop_when must be a function .* got 'accuracy'. Use fedgauss.stopping"):
        Monitored(FedAvg(), Clients(), stop_when="accuracy")


@pytest.mark.study
def test_rounds_are_saved_where_ten_clients_learn_digits():
    """FedAvg on the demonstration's network, 400 rounds planned: what is left out would have gained less than min_gain.

    Nothing is random but the task, which its seed fixes."""
    from fedgauss.demo.digits_task import CLIENTS, DigitsTask

    for seed in range(2):
        task = DigitsTask(seed)
        moves = cache(lambda number, sent, task=task: task.moves(np.frombuffer(sent, dtype=np.float32), number))
        digits = ClientApp()

        @digits.train()
        def train(message, context, moves=moves):
            sent = message.content.array_records["arrays"]["network"].numpy()
            number = int(message.content.config_records["config"]["server-round"])
            change = moves(number, sent.tobytes())[CLIENTS[int(context.node_config["partition-id"])]]
            records = {
                "arrays": ArrayRecord({"network": Array(sent + change)}),
                "metrics": MetricRecord({"num-examples": 1}),
            }
            return Message(RecordDict(records), reply_to=message)

        def evaluate(server_round, arrays, task=task):
            return MetricRecord({"accuracy": task.accuracy(arrays["network"].numpy())})

        ends = {}
        for rule in (Plateau("accuracy", min_gain=0.01), None):
            fedavg = FedAvg(fraction_evaluate=0.0, min_train_nodes=10, min_available_nodes=10)
            strategy = Monitored(fedavg, Clients(), on_alarm="go on", stop_when=rule)
            first = ArrayRecord({"network": Array(task.start)})
            result = strategy.start(InProcessGrid(digits, 10), first, num_rounds=400, evaluate_fn=evaluate)
            curve = [metrics["accuracy"] for metrics in result.evaluate_metrics_serverapp.values()]
            ends[rule] = len(curve) - 1, np.mean(curve[-10:])
            print(f"seed {seed}: {ends[rule][0]} rounds, accuracy {ends[rule][1]:.4f}. {strategy.stopped or ''}")
        (early, reached), (_, final) = ends.values()
        assert early <= 200
        assert final - reached < 0.01
