"""Monitors made from what clients report, with the real mods: moments, and chains."""

import random
import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config, example_lin
from flower_watch.client_app import app, moments, train
from flwr.app import Array, ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideAdaptiveClipping, FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Chained, Monitored, Reported, report_moments
from fedgauss.integrations.flower.warm_up import _median_matrix, _report, noise_of_chains

CONFIG = example_config(n_rounds=8, attack_after=8)
N, TAU = CONFIG["n-clients"], CONFIG["local-steps"]
CHAINS = CONFIG | {"watch": "chains"}
STEPS = fg.step_sizes.constant(CONFIG["rate"])


def run(watcher, config=CONFIG, tamper=None, client=app, inner=None):
    """The strategy, and the names of the arrays that each client's replies carried beside its own."""
    random.seed(0)
    seen = {}

    def watch(reply, partition, server_round):
        if reply.has_content() and "fedgauss" in reply.content:
            names = set(reply.content["fedgauss"]) - {"partition"}  # which all are asked for once
            if names:
                seen.setdefault(server_round, set()).update(names)
        return reply if tamper is None else tamper(reply, partition, server_round)

    inner = inner or FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
    strategy = Monitored(inner, watcher, on_alarm="go on")
    grid = InProcessGrid(client, N, config, watch)
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


def listed(value):
    """As an answer has it."""
    return value if isinstance(value, str | list) else np.asarray(value, dtype=float).ravel().tolist()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("covariance", -np.eye(3), "covariance"),
        ("covariance", np.full((3, 3), np.nan), "covariance"),
        ("covariance", np.eye(4), "list of 9 numbers; got 16 values"),
        ("hessian", np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "hessian"),
        ("kurtosis", np.array(-1.0), "kurtosis"),
        ("kurtosis", np.array([1.0, 2.0]), "list of 1 numbers; got 2 values"),
        ("kurtosis", 1e300, "kurtosis"),
        ("kurtosis", 300.0, r"kurtosis must lie in [1, 200]"),
        ("n_warmup", np.nan, "n_warmup"),
        ("n_warmup", np.inf, "n_warmup"),
        ("n_warmup", 1.0, "n_warmup"),
        ("n_warmup", 20.5, "n_warmup"),
        ("gradient", ["a", "b", "c"], "gradient"),
        ("gradient", 1e300 * np.ones(3), "gradient"),
        ("hessian", 1000.0 * np.eye(3), "hessian must have eigenvalues below 2 / eta = 40; got 1e+03"),
        ("hessian", "words", "list of 9 numbers; got str"),
    ],
)
def test_a_report_that_cannot_be_one_is_refused(name, value, words):
    sound = {"hessian": np.eye(3), "covariance": np.eye(3), "kurtosis": 1.5, "gradient": np.zeros(3), "n_warmup": 200.0}
    answer = {key: listed(sent) for key, sent in sound.items()}
    assert _report(answer, 3, np.array([0.05]), 400.0).n_warmup == 200
    with pytest.raises(ValueError, match=re.escape(words)):
        _report(answer | {name: listed(value)}, 3, np.array([0.05]), 400.0)


def test_a_hostile_report_is_refused_and_asked_for_again(caplog):
    def tamper(reply, partition, server_round):
        if (partition, server_round) == (4, 6):
            reply.content["fedgauss"]["n_warmup"] = [np.inf]
        return reply

    watcher = Reported(STEPS, TAU, N, after=5, alpha=0.01, horizon=500)
    strategy, seen = run(watcher, tamper=tamper)
    assert sorted(seen) == [6, 7]
    assert sorted(strategy.verdicts) == [8]
    refused = [record.getMessage() for record in caplog.records if "client 4 is refused" in record.getMessage()]
    assert len(refused) == 1
    assert "n_warmup must be finite" in refused[0]


def test_a_client_that_is_missing_is_waited_for():
    watcher = Reported(STEPS, TAU, N, after=4, alpha=0.01, horizon=500)
    strategy, seen = run(watcher, tamper=lambda reply, k, r: None if k == 3 and r in (5, 6) else reply)
    assert sorted(seen) == [5, 6, 7]
    assert sorted(strategy.verdicts) == [8]
    assert len(strategy.participation[5]) == 9


def reports_without(tamper, rounds=10, after=4):
    """A run in which a client's reports are tampered with."""
    watcher = Reported(STEPS, TAU, N, after=after, alpha=0.01, horizon=500)
    return watcher, run(watcher, CONFIG | {"n-rounds": rounds, "attack-after": rounds}, tamper)[0]


@pytest.mark.parametrize("garbage", [True, False])
def test_a_client_that_never_reports_does_not_keep_the_monitor_from_beginning(garbage):
    """Without patience and a stand-in there would be no monitor after any number of rounds."""

    def tamper(reply, partition, server_round):
        if partition == 4 and server_round > 4:
            reply.content["fedgauss"] = ConfigRecord({"hessian": [1.0, 2.0]} if garbage else {})
        return reply

    watcher, strategy = reports_without(tamper)
    assert sorted(strategy.verdicts) == [8, 9, 10]  # asked in rounds 5, 6 and 7
    note = "No report of client 4 could be used: the median of the others' stands in its place."
    assert all(note in verdict.note for verdict in strategy.verdicts.values())
    assert "weights clients otherwise" not in strategy.verdicts[10].note  # its examples are known
    others = np.delete(np.arange(N), 4)
    np.testing.assert_allclose(
        watcher.lin.client_hessians[4], np.median(watcher.lin.client_hessians[others], axis=0), atol=1e-12
    )
    assert not strategy.verdicts[10].alarm


def test_a_monitor_does_not_begin_on_the_reports_of_too_few():
    """Medians of few reports would stand for many clients: three of ten are missing, and three in four must report."""
    watcher, _ = reports_without(
        lambda reply, k, r: (reply.content.pop("fedgauss", None), reply)[1] if k < 3 and r > 4 else reply
    )
    assert watcher.monitor is None


@pytest.mark.parametrize("factor", [100.0, 0.01])
def test_a_covariance_that_would_blind_the_monitor_is_refused(factor, caplog):
    """One of ten reports a hundred times its noise: V would be eleven times too large, and attacks drown in it."""

    def tamper(reply, partition, server_round):
        if partition == 4 and server_round > 4:
            answer = reply.content.get("fedgauss", {})
            if "covariance" in answer:
                answer["covariance"] = [factor * value for value in answer["covariance"]]
        return reply

    watcher, strategy = reports_without(tamper)
    assert "the report of client 4 is refused. The trace of its covariance" in caplog.text
    assert "No report of client 4 could be used" in strategy.verdicts[10].note
    exact = example_lin(CONFIG)
    np.testing.assert_allclose(np.diag(watcher.lin.noise_cov), np.diag(exact.noise_cov), rtol=0.3)


def test_the_median_of_covariances_is_one():
    """Medians of entries of these three have an eigenvalue of -1, which a linearisation would refuse for ever."""
    given = np.stack([np.outer(x, x) for x in ([1.0, -1.0, -1.0], [-1.0, -1.0, 1.0], [1.0, 1.0, 1.0])])
    assert np.linalg.eigvalsh(np.median(given, axis=0))[0] == pytest.approx(-1.0)
    found = _median_matrix(given)
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    np.testing.assert_allclose(found, found.T, atol=1e-12)


def test_an_upload_that_is_far_off_is_refused_in_a_warm_up():
    """Before there is a monitor nothing else keeps a finite upload of 1e6 from the model."""

    def tamper(reply, partition, server_round):
        if (partition, server_round) == (4, 3):
            reply.content["arrays"] = ArrayRecord({"weight": Array(np.full((1, 3), 1e6))})
        return reply

    watcher, strategy = reports_without(tamper, rounds=4)
    assert watcher.monitor is None
    assert list(strategy.refused) == [3]
    assert re.match(r"Client 4 moved \S+ times as far as the median client", strategy.refused[3][0])


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
            reply.content["fedgauss"]["ends"] = [0.0] * 21
        return reply

    strategy, seen = run(Chained(STEPS, TAU, N, after=4, horizon=500), CHAINS, tamper)
    assert sorted(seen) == [5, 6, 7]
    assert sorted(strategy.verdicts) == [8]


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_warmup", 2.0), ("covariance", np.diag([1e20, 0.0, 0.0]))],
    ids=["too few steps", "a noise without a direction"],
)
def test_plausible_reports_that_give_no_monitor_are_dropped_and_asked_for_again(name, value, caplog):
    watcher = Reported(STEPS, TAU, N, after=5, alpha=0.01, horizon=500)
    changes = {name: value} | ({"kurtosis": 1.0} if name == "n_warmup" else {})

    def tamper(reply, partition, server_round):
        if server_round == 6:  # all clients: one alone would be refused
            for key, changed in changes.items():
                reply.content["fedgauss"][key] = listed(changed)
        return reply

    strategy, seen = run(watcher, tamper=tamper)
    assert sorted(seen) == [6, 7]
    assert sorted(strategy.verdicts) == [8]
    assert "no monitor yet, clients are asked again." in caplog.text


def test_chains_that_give_no_monitor_make_clients_send_hessians_again():
    def tamper(reply, partition, server_round):
        if server_round == 4:
            reply.content["fedgauss"]["ends"] = [0.0] * 1200  # of all clients: no noise at all
        return reply

    strategy, seen = run(Chained(STEPS, TAU, N, after=2, horizon=500), CHAINS, tamper)
    assert seen == {3: {"hessian"}, 4: {"ends"}, 5: {"hessian"}, 6: {"ends"}}
    assert sorted(strategy.verdicts) == [7, 8]


def test_a_hessian_that_would_make_chains_diverge_is_refused_by_name(caplog):
    def tamper(reply, partition, server_round):
        if (partition, server_round) == (4, 3):
            reply.content["fedgauss"]["hessian"] = listed(1000.0 * np.eye(3))
        return reply

    _, seen = run(Chained(STEPS, TAU, N, after=2, horizon=500), CHAINS, tamper)
    assert seen == {3: {"hessian"}, 4: {"hessian"}, 5: {"ends"}}
    assert "The answer of client 4 is refused: hessian must have eigenvalues below" in caplog.text


def app_with(*mods):
    found = ClientApp(mods=list(mods))
    found.train()(train)
    return found


def in_single_precision(arrays, context):
    """As PyTorch gives them: asymmetric in the last digits."""
    gradients, hessian = moments(arrays, context)
    hessian = hessian.astype(np.float32)
    hessian[0, 1] += 1e-7
    return gradients.astype(np.float32), hessian


def test_hessians_in_single_precision_are_symmetric_enough():
    watcher = Reported(STEPS, TAU, N, after=2, horizon=500)
    run(watcher, client=app_with(report_moments(in_single_precision)))
    np.testing.assert_allclose(watcher.lin.hessian, example_lin(CONFIG).hessian, atol=1e-6)
    np.testing.assert_array_equal(watcher.lin.client_hessians, np.swapaxes(watcher.lin.client_hessians, 1, 2))


def test_moments_that_fail_do_not_stop_training_and_the_server_is_told_why_once(caplog):
    def failing(arrays, context):
        raise RuntimeError("out of\x1b memory " + "x" * 5000)

    strategy, seen = run(Reported(STEPS, TAU, N, after=5), client=app_with(report_moments(failing)))
    assert seen == {6: {"reason"}, 7: {"reason"}, 8: {"reason"}}
    assert strategy.participation[8] == tuple(range(N))
    assert not strategy.refused
    said = [record.getMessage() for record in caplog.records if "could not answer" in record.getMessage()]
    assert len(said) == N
    assert said[3].startswith("fedgauss: client 3 could not answer. RuntimeError: out of  memory xxx")
    assert max(map(len, said)) < 300


@pytest.mark.parametrize("ours_first", [True, False])
def test_flowers_own_mods_for_differential_privacy_work_beside_ours(ours_first):
    """They count the records of a message. With clipping at 5 nothing is clipped, and the noise is small."""
    mods = [report_moments(moments), adaptiveclipping_mod]
    client = app_with(*(mods if ours_first else mods[::-1]))
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
    private = DifferentialPrivacyClientSideAdaptiveClipping(inner, 1e-4, N, initial_clipping_norm=5.0)
    watcher = Reported(STEPS, TAU, N, after=2, alpha=0.01, horizon=500)
    strategy, _ = run(watcher, client=client, inner=private)
    assert sorted(strategy.verdicts) == [4, 5, 6, 7, 8]
    assert strategy.participation[8] == tuple(range(N))


def test_strategies_that_send_more_records_of_arrays_train_on_and_the_server_says_what_is_missing(caplog):
    class Two(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message in messages:
                message.content["control"] = ArrayRecord({"c": Array(np.zeros(3))})
            return messages

    inner = Two(fraction_evaluate=0.0, min_train_nodes=N, min_available_nodes=N)
    strategy, _ = run(Reported(STEPS, TAU, N, after=2), inner=inner)
    assert strategy.participation[8] == tuple(range(N))
    assert "a message must have one ArrayRecord to compute moments at; it has 2" in caplog.text


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
    assert found.dof == 19_999.0
