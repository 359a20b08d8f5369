"""The example application, on the in-process grid: a small version of what the study does with twenty seeds."""

import sys

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_grid import InProcessGrid, example_config
from flower_watch.client_app import app
from flower_watch.server_app import run


def outcome(**changes):
    config = example_config(**changes)
    return run(InProcessGrid(app, config["n-clients"], config), config)


def test_poisoned_clients_are_alarmed_on_by_the_predicted_round():
    found = outcome(seed=0)
    assert 30 < found["alarm_round"] <= found["predicted_round"] <= 40
    assert 251 <= found["onset"] <= 321
    assert found["participation"][12] == tuple(range(10))
    assert found["words"][1] == f"95 % of runs attacked after round 30 alarm by round {found['predicted_round']}."


def test_an_honest_run_ends_without_an_alarm():
    found = outcome(seed=0, attack_after=60)
    assert found["alarm_round"] is None
    assert found["words"] == ["No alarm."]
    assert sorted(found["verdicts"]) == list(range(12, 61))


def test_the_example_runs_unwatched_and_with_chains():
    assert outcome(watch="nothing", n_rounds=3)["verdicts"] == {}
    found = outcome(watch="chains", n_rounds=16, attack_after=16)
    assert sorted(found["verdicts"]) == [13, 14, 15, 16]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of PyTorch, about parts of its own
def test_the_pytorch_variant_is_the_numpy_one():
    pytest.importorskip("torch")
    names = {"n_rounds": 14, "attack_after": 14}
    ours, theirs = outcome(**names), outcome(framework="torch", **names)
    for r, verdict in ours["verdicts"].items():
        np.testing.assert_allclose(theirs["verdicts"][r], verdict, rtol=1e-6)


def test_without_flower_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("flwr", "fedgauss.integrations.flower"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(ImportError, match=r"pip install 'fedgauss\[flower\]'"):
        import fedgauss.integrations.flower  # noqa: F401
