"""What an alarm says of what changed."""

import json
from importlib import resources

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.clients.reasons import HONEST, KINDS, Reason, chances_of

K, D = 10, 400


def alarm_of(act, weights=None, seed=0):
    """The first verdict with an alarm; client 3 acts from round 31 on."""
    rng = np.random.default_rng(seed)
    own, common = rng.normal(size=(K, D)), rng.normal(size=D)
    monitor = fg.ClientMonitor(horizon=80, seed=1)
    for number in range(1, 60):
        u = common + own + 0.5 * rng.normal(size=(K, D))
        claimed = None if weights is None else dict.fromkeys(range(K), 100.0)
        if number > 30:
            u[3] = act(u[3])
            if claimed:
                claimed[3] *= weights
        verdict = monitor.update(u, weights=claimed)
        if verdict.alarm:
            return monitor, verdict
    raise AssertionError("no alarm")


@pytest.fixture(scope="module")
def table():
    return json.loads(resources.files("fedgauss.detect.clients").joinpath("reasons.json").read_text())


def test_what_was_learnt_says_from_what_and_gives_chances(table):
    assert set(table["kinds"]) == set(KINDS)
    assert set(HONEST) < set(KINDS)
    assert table["provenance"]["script"].startswith("benchmarks/watch_reasons.py")
    assert 0.5 <= table["benign_from"] < 1.0
    rng = np.random.default_rng(0)
    chances = chances_of(3.0 * rng.normal(size=(50, len(table["centre"]))), table)
    assert chances.shape == (50, len(KINDS))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)


def test_a_silent_client_a_longer_one_and_one_that_claims_more_are_called_so():
    reason = alarm_of(lambda u: 1e-6 * u)[1].reasons[3]
    assert "its moves are" in str(reason)
    assert not reason.benign
    reason = alarm_of(lambda u: 3.0 * u)[1].reasons[3]
    assert reason.changed[0].startswith("its moves are 3")
    reason = alarm_of(lambda u: u, weights=100.0)[1].reasons[3]
    assert reason.kind == "weight"
    assert str(reason) == "it claims 1e+02 times the weight beside the others'"


def test_a_sign_flip_is_no_honest_change_and_the_words_are_in_the_verdict():
    verdict = alarm_of(np.negative)[1]
    reason = verdict.reasons[3]
    assert reason.kind not in HONEST
    assert not reason.benign
    assert any("direction fell" in words for words in reason.changed)
    assert f"Client 3: {reason}." in str(verdict)


def test_reasons_are_saved_with_the_alarm(tmp_path):
    monitor, verdict = alarm_of(np.negative)
    monitor.save(tmp_path / "monitor")
    again = fg.ClientMonitor.load(tmp_path / "monitor")
    assert again.alarm == verdict
    assert again.alarm.reasons == verdict.reasons


def test_doubt_is_said():
    assert str(Reason("new data", 0.8, False, ("its length rose",), 3)).endswith(
        "looks like new data, or other ways of measuring it (0.80), but a harmful change may look alike"
    )
    assert "may look alike" not in str(Reason("new data", 0.99, True))
    assert str(Reason()) == "nothing by itself moved far"
