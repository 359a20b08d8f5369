"""`on_alarm="quarantine"`: out of the mean, still trained and judged, and back when a client behaves as before."""

import numpy as np
import pytest

pytest.importorskip("flwr")

from flower_coming import FIRST, OTHERS_W, PULLED, N, after, centre, everybody, protected, run
from flwr.serverapp.strategy import FedAvg


def bad_for(first, last, target=6.0):
    return {2: lambda r: (target, 1.0, 10) if first <= r <= last else None}


def test_a_client_is_out_of_the_mean_while_it_is_bad_and_back_afterwards(caplog):
    """It would fail if it were not asked any more, if it acted, or if nobody came back."""
    strategy = protected(on_alarm="quarantine")
    grid, path = run(strategy, 40, bad=bad_for(21, 28), seed=4)
    back = {r: verdict.returned for r, verdict in strategy.verdicts.items() if verdict.returned}
    ((r, who),) = back.items()
    assert 28 + 8 <= r <= 40  # eight ordinary rounds at least
    assert (who, strategy.quarantined, strategy.left_out, strategy.excluded) == ((2,), (), (), {})
    assert all(FIRST + 2 in asked for asked in grid.asked.values())
    others = [k for k in range(N) if k != 2]
    assert np.abs(path[22:r] - centre(others, seed=4)).max() < 0.03
    assert strategy.participation[25] == tuple(range(N))
    assert "round 21: in quarantine, trained and judged but in no mean: client 2 (node 1002)" in caplog.text
    assert f"round {r}: back from quarantine: client 2 (node 1002)" in caplog.text
    without, _ = run(FedAvg(), 1, lambda r: {node: k for node, k in everybody(r).items() if k != 2})
    assert len(without.asked[1]) == N - 1


def test_a_client_that_stays_bad_stays_out():
    strategy = protected(on_alarm="quarantine")
    _, path = run(strategy, 45, bad=PULLED)
    assert strategy.quarantined == (2,)
    assert np.abs(path[22:] - OTHERS_W).max() < 0.03


def test_an_operator_s_word_ends_a_quarantine():
    """Honest change, as of new data, looks like an attack; what a client does from then on is its new normal."""
    strategy = protected(on_alarm="quarantine")
    run(strategy, 25, bad=bad_for(21, 99, target=3.0))
    assert strategy.quarantined == (2,)
    strategy.accept(2)
    assert strategy.quarantined == ()
    _, path = run(strategy, 20, bad=bad_for(0, 99, target=3.0), first=strategy.kept.last().arrays)
    assert strategy.quarantined == ()
    assert abs(path[-1] - centre(range(N)) - 0.2) < 0.03


def test_an_upload_of_no_use_is_dropped_and_the_client_is_asked_again():
    strategy = protected(on_alarm="quarantine")
    grid, _ = run(strategy, 6, bad={2: lambda r: (np.nan, 1.0, 10) if r == 3 else None})
    assert strategy.participation[3] == (0, 1, 3, 4, 5, 6, 7, 8, 9)
    assert strategy.participation[4] == tuple(range(N))
    assert FIRST + 2 in grid.asked[4]
    assert not strategy.refused


def test_a_quarantine_outlives_a_restart_of_the_server(tmp_path):
    path = tmp_path / "run.state"
    strategy = protected(on_alarm="quarantine", state=path)
    run(strategy, 25, bad=PULLED)
    again = protected(on_alarm="quarantine", state=path)
    assert again.quarantined == (2,)
    _, w = run(again, 10, bad={2: after(0, target=6.0)}, first=strategy.kept.last().arrays)
    assert np.abs(w - OTHERS_W).max() < 0.03
