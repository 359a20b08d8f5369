"""The server-only mode: many parameters, momentum, no reports; and what of them is watched."""

import random

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian, Krum

import fedgauss as fg
from fedgauss.integrations.flower import Monitored, ServerOnly, coordinates, random_projection
from fedgauss.integrations.flower.rounds import TrainingRound, Upload
from fedgauss.integrations.flower.server_only import Averaging
from oracles.detection import mean_statistic

N, D, ATTACK = 5, 600, 40

app = ClientApp()


@app.train()
def train(message, context):
    """Noisy steps with momentum towards zero, in two arrays; from round 41 on client 2 pulls elsewhere, slowly."""
    k, r = context.node_config["partition-id"], message.content["config"]["server-round"]
    rng = np.random.default_rng([context.run_config["seed"], k, r])
    sent = message.content["arrays"]
    y = np.concatenate([sent["a"].numpy().ravel(), sent["b"].numpy()])
    velocity = np.zeros(D)
    for _ in range(5):
        gradient = 0.5 * y + rng.standard_normal(D)
        if k == 2 and context.run_config["attack"] and r > ATTACK:
            gradient += 8.0
        velocity = 0.9 * velocity + gradient
        y = y - 0.002 * velocity
    arrays = ArrayRecord({"a": Array(y[:300].reshape(3, 100)), "b": Array(y[300:])})
    return Message(RecordDict({"arrays": arrays, "m": MetricRecord({"num-examples": 10})}), reply_to=message)


def run(watcher, attack=True, kind=FedAvg, n_rounds=70, seed=0, **options):
    random.seed(0)
    inner = kind(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N, **options)
    strategy = Monitored(inner, watcher, on_alarm="go on")
    start = ArrayRecord({"a": Array(np.zeros((3, 100))), "b": Array(np.zeros(300))})
    strategy.start(InProcessGrid(app, N, {"attack": attack, "seed": seed}), start, num_rounds=n_rounds)
    return strategy


@pytest.mark.parametrize(
    "view", [random_projection(4, seed=1), coordinates([3, 200, 400, 599])], ids=["projection", "coordinates"]
)
def test_an_attack_on_many_parameters_with_momentum_is_seen_and_the_verdict_says_how(view):
    strategy = run(ServerOnly(30, view, sync_every=5, alpha=0.01, horizon=1000))
    alarms = [r for r, verdict in strategy.verdicts.items() if verdict.alarm]
    assert ATTACK < alarms[0] <= 60
    assert abs(strategy.verdicts[alarms[0]].rollback - ATTACK) <= 3
    assert strategy.verdicts[31].note.startswith("Server-only mode: 4 numbers of the mean update")
    assert "Server-only mode" in str(strategy.verdicts[70])


@pytest.mark.parametrize(
    ("kind", "options"), [(FedAvg, {}), (FedMedian, {}), (Krum, {"num_malicious_nodes": 1})], ids=lambda x: str(x)[-30:]
)
def test_honest_runs_are_left_alone_whatever_aggregates(kind, options):
    watcher = ServerOnly(30, random_projection(4), sync_every=5, alpha=0.01, horizon=1000)
    strategy = run(watcher, False, kind, **options)
    assert len(strategy.verdicts) == 40
    assert not any(verdict.alarm for verdict in strategy.verdicts.values())


def test_a_run_that_is_still_on_its_way_is_not_watched():
    """From 300 away along every coordinate the mean update shrinks by a per cent a round, and is seen to."""
    random.seed(0)
    watcher = ServerOnly(20, coordinates([0, 1]), sync_every=5)
    strategy = Monitored(FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N), watcher)
    far = ArrayRecord({"a": Array(np.full((3, 100), 300.0)), "b": Array(np.full(300, 300.0))})
    strategy.start(InProcessGrid(app, N, {"attack": False, "seed": 0}), far, num_rounds=30)
    assert watcher.monitor is None
    assert not strategy.verdicts


def test_updates_are_the_innovations_themselves():
    """With `Averaging` a monitor's statistic is that of the rows it is fed, whatever came before them."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((30, 2))
    lin = fg.linearization(np.eye(2)[None], 20 * np.eye(2)[None])
    monitor = fg.Monitor(lin, Averaging(20), 20, horizon=2000, start=[5.0, -7.0])
    for row in rows:
        verdict = monitor.update(row)
    used = rows[1:] / np.sqrt(20)  # the first is left out
    assert verdict.channel == "mean"
    assert verdict.statistic == pytest.approx(mean_statistic(used, np.full(29, 20.0), first=1)[-1], rel=1e-9)


def test_a_projection_keeps_lengths_on_average_and_depends_on_its_seed_alone():
    """Over 400 seeds |Rx|^2 / |x|^2 has mean 1 and standard error .035; five of them are allowed."""
    x = np.random.default_rng(0).standard_normal(300)
    sizes = [np.sum(random_projection(4, seed)(x) ** 2) / np.sum(x**2) for seed in range(400)]
    assert np.mean(sizes) == pytest.approx(1.0, abs=0.18)
    assert np.array_equal(random_projection(4, 7)(x), random_projection(4, 7)(x))
    assert not np.array_equal(random_projection(4, 7)(x), random_projection(4, 8)(x))


def test_views_are_checked():
    with pytest.raises(ValueError, match=r"which must be places 0, 1"):
        coordinates([-1, 2])
    with pytest.raises(ValueError, match="which must name each parameter once"):
        coordinates([2, 2])
    with pytest.raises(ValueError, match=r"which must lie in 0..2, the model's parameters; got 5"):
        coordinates([5])(np.zeros(3))
    with pytest.raises(ValueError, match="dim must"):
        random_projection(400)
    with pytest.raises(ValueError, match=r"warm_up must be at least 7; got 3"):
        ServerOnly(3)


def test_a_warm_up_that_is_too_short_says_at_once_how_long_it_must_be_and_trains_on(caplog):
    strategy = run(ServerOnly(10, random_projection(10)), n_rounds=12)
    assert strategy.participation[12] == tuple(range(N))
    assert strategy.monitor is None
    said = [record.getMessage() for record in caplog.records if "fedgauss" in record.getMessage()]
    assert said == [
        "fedgauss: nothing is watched. warm_up must be at least 25 rounds for 10 dimensions; got 10. "
        "Watch fewer, or wait longer."
    ]


def rounds(rows, watcher, first=1):
    """Verdicts on a run whose arrays move by minus these rows."""
    y = np.cumsum(np.concatenate([np.zeros((1, rows.shape[1])), -rows]), axis=0)
    return [watcher.judge(TrainingRound(first + j, {"w": y[j]}, ()), {"w": y[j + 1]}) for j in range(len(rows))]


def test_a_parameter_that_never_moves_is_logged_and_does_not_end_the_run(caplog):
    rows = np.random.default_rng(0).standard_normal((12, 2)) * [1.0, 0.0]
    assert rounds(rows, ServerOnly(10)) == [None] * 12
    assert "no monitor can be made of the last 10 rounds. noise covariance" in caplog.text


def test_one_implausible_upload_is_refused_and_a_new_start_from_elsewhere_is_no_attack():
    """The mean update of the second run is 50 standard deviations from that of the first."""
    rows = np.random.default_rng(0).standard_normal((40, 2))
    watcher = ServerOnly(12, sync_every=20, alpha=0.01, horizon=2000)
    assert not rounds(rows, watcher)[-1].alarm
    uploads = tuple(Upload(k, {"w": np.array([value, 0.0])}, 1.0, {}) for k, value in ((1, 0.1), (4, 1e30)))
    found = watcher.faults(TrainingRound(41, {"w": np.zeros(2)}, uploads))
    assert list(found) == [4]
    assert found[4].startswith("Client 4: The value of y is not plausible")
    assert not watcher.faults(TrainingRound(41, {"w": np.zeros(2)}, uploads[:1]))
    later = rounds(rows + 50.0, watcher)
    assert not any(verdict.alarm for verdict in later)
    assert later[-1].round == 80
