"""A run that goes on after its server was restarted."""

import re

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_coming import FIRST, OTHERS_W, PULLED, N, after, protected, run
from flwr.serverapp.strategy import FedAvg

import fedgauss as fg
from fedgauss.integrations.flower import Clients, Monitored, ServerOnly


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
    assert np.abs(w - OTHERS_W).max() < 0.03
    assert fg.ClientMonitor.load(path).round == 50  # it is a monitor's file, too


def test_names_that_did_not_outlive_a_restart_are_said_and_accuse_nobody(tmp_path, caplog):
    """Other numbers of the same nodes were compared with others' pasts, and three honest clients were excluded."""
    path = tmp_path / "run.state"
    run(protected(state=path), 30, bad=PULLED)
    again = protected(state=path)
    _, w = run(again, 30, lambda r: {5000 + k: 9 - k for k in range(N)})
    assert not again.excluded
    assert "nobody who answered was there before the restart" in caplog.text
    assert abs(w[-1] - OTHERS_W) < 0.03
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
