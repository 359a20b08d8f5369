"""Monitors made from what clients report, with the real mods: moments, and chains."""

import random

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config, example_lin
from flower_watch.client_app import app
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Chained, Monitored, Reported
from fedgauss.integrations.flower.chains import noise_of_chains

CONFIG = example_config(n_rounds=8, attack_after=8)
N, TAU = CONFIG["n-clients"], CONFIG["local-steps"]
CHAINS = CONFIG | {"watch": "chains"}
STEPS = fg.step_sizes.constant(CONFIG["rate"])


def run(watcher, config=CONFIG, tamper=None):
    """The strategy, and the names of the arrays that each client's replies carried beside its own."""
    random.seed(0)
    seen = {}

    def watch(reply, partition, server_round):
        if reply.has_content() and "fedgauss" in reply.content:
            names = set(reply.content["fedgauss"]) - {"partition"}  # which all are asked for once
            if names:
                seen.setdefault(server_round, set()).update(names)
        return reply if tamper is None else tamper(reply, partition, server_round)

    strategy = Monitored(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N), watcher, on_alarm="go on"
    )
    grid = InProcessGrid(app, N, config, watch)
    strategy.start(grid, ArrayRecord({"weight": Array(np.zeros((1, 3)))}), num_rounds=config["n-rounds"])
    return strategy, seen


def test_reports_start_a_monitor_in_the_round_that_asks_for_them():
    watcher = Reported(STEPS, TAU, N, after=5, alpha=0.01, horizon=500)
    strategy, seen = run(watcher)
    assert seen == {6: {"hessian", "covariance", "kurtosis", "gradient", "n_warmup"}}
    assert sorted(strategy.verdicts) == [7, 8]
    assert (strategy.verdicts[7].round, strategy.verdicts[7].step) == (7, 70)
    exact = example_lin(CONFIG)
    np.testing.assert_allclose(watcher.lin.weights, exact.weights)
    np.testing.assert_allclose(watcher.lin.hessian, exact.hessian, rtol=1e-12)
    # 200 mini-batches of each of ten clients: an error of 4 % on a variance, five of which are allowed.
    np.testing.assert_allclose(np.diag(watcher.lin.noise_cov), np.diag(exact.noise_cov), rtol=0.2)
    assert watcher.lin.n_warmup == 200


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("covariance", -np.eye(3), "covariance"),
        ("covariance", np.full((3, 3), np.nan), "covariance"),
        ("covariance", np.eye(4), "shape"),
        ("hessian", np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "hessian"),
        ("kurtosis", np.array(-1.0), "kurtosis"),
        ("kurtosis", np.array([1.0, 2.0]), ""),
        ("n_warmup", np.array(np.nan), ""),
        ("n_warmup", np.array(1.0), "n_warmup"),
        ("gradient", np.array(["a", "b", "c"]), "gradient"),
    ],
)
def test_a_hostile_report_is_refused_and_asked_for_again(name, value, words, caplog):
    def tamper(reply, partition, server_round):
        if (partition, server_round) == (4, 6):
            reply.content["fedgauss"][name] = Array(value)
        return reply

    watcher = Reported(STEPS, TAU, N, after=5, alpha=0.01, horizon=500)
    strategy, seen = run(watcher, tamper=tamper)
    assert sorted(seen) == [6, 7]
    assert sorted(strategy.verdicts) == [8]
    refused = [record.getMessage() for record in caplog.records if "client 4 is refused" in record.getMessage()]
    assert len(refused) == 1
    assert words in refused[0]


def test_a_client_that_is_missing_is_waited_for():
    watcher = Reported(STEPS, TAU, N, after=4, alpha=0.01, horizon=500)
    strategy, seen = run(watcher, tamper=lambda reply, k, r: None if k == 3 and r in (5, 6) else reply)
    assert sorted(seen) == [5, 6, 7]
    assert sorted(strategy.verdicts) == [8]
    assert len(strategy.participation[5]) == 9


def test_chains_start_a_monitor_and_no_covariance_leaves_a_client():
    watcher = Chained(STEPS, TAU, N, after=4, alpha=0.01, horizon=500, n_chains=400)
    strategy, seen = run(watcher, CHAINS)
    assert seen == {5: {"hessian"}, 6: {"ends"}}
    assert sorted(strategy.verdicts) == [7, 8]
    assert "clients' chains" in strategy.verdicts[8].note
    assert "not the mean" not in strategy.verdicts[8].note
    exact = example_lin(CONFIG)
    np.testing.assert_allclose(watcher.lin.hessian, exact.hessian, rtol=1e-12)
    # 400 chains of covariances from 200 mini-batches: an error of 8 % on a variance, five of which are allowed. Chains
    # draw from the operating system, so this one has no seed: it fails wrongly with a chance below 1e-5.
    np.testing.assert_allclose(np.diag(watcher.lin.noise_cov), np.diag(exact.noise_cov), rtol=0.4)


def test_clients_that_report_do_not_answer_a_server_that_wants_chains():
    strategy, seen = run(Chained(STEPS, TAU, N, after=4))
    assert not seen
    assert strategy.monitor is None


def test_chains_that_cannot_be_used_are_asked_for_again():
    def tamper(reply, partition, server_round):
        if (partition, server_round) == (4, 6):
            reply.content["fedgauss"]["ends"] = Array(np.zeros((7, 3)))
        return reply

    strategy, seen = run(Chained(STEPS, TAU, N, after=4, horizon=500), CHAINS, tamper)
    assert sorted(seen) == [5, 6, 7]
    assert sorted(strategy.verdicts) == [8]


def test_the_noise_of_chains_is_that_of_the_theorem():
    """20,000 chains: 1 % on a variance, and as much for a weight that is only near; six per cent are allowed."""
    lin = example_lin(CONFIG)
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(lin.noise_cov)
    ends = np.zeros((20_000, 3))
    for eta in STEPS.eta(TAU):
        ends += eta * (rng.standard_normal(ends.shape) @ root.T - ends @ lin.hessian)
    found = noise_of_chains(lin.hessian, ends, STEPS, 0, TAU)
    np.testing.assert_allclose(np.diag(found.noise_cov), np.diag(lin.noise_cov), rtol=0.06)
    assert found.freedom == 19_999.0
