"""`Monitor.suspects`: the clients behind an alarm, from bounded memory, as attribution would name them."""

import numpy as np
import pytest

import fedgauss as fg
from fedgauss.detect.attribution import attribute
from fedgauss.detect.client_rounds import client_innovations
from fedgauss.detect.watch import rounds_to_drop

TAU, ONSET, STEPS = 20, 400, fg.step_sizes.polynomial(0.3, 0.75)
RING = fg.networks.ring(6)
HONEST = fg.problems.linear(np.arange(12.0).reshape(6, 2) / 6, np.ones(6))
LIN = fg.linearize(HONEST)


def uploads(seed=1, n_steps=700):
    problem = fg.problems.mean_shift(HONEST, [1, 4], 2.0, ONSET + 1)
    seen = [fg.observers.uploads(TAU), fg.observers.Path(TAU)]
    runs = fg.simulate(problem, RING, STEPS, n_steps, sync_every=TAU, start="optimum", seed=seed, observe=seen)
    return runs.path[0].astype(float), runs.began[0].astype(float), runs.sent[0].astype(float)


def watched(means, began, sent, monitor=None, **options):
    """The monitor after all rounds, and the round and verdict of its first alarm."""
    monitor = monitor or fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum, **options)
    alarms = []
    for y, b, s in zip(means, began, sent, strict=True):
        verdict = monitor.update(y, clients=s, began=b)
        if verdict.alarm:
            alarms.append(verdict)
    return monitor, alarms[0] if alarms else None


def test_suspects_are_those_of_attribution_from_all_rounds():
    means, began, sent = uploads()
    monitor, alarm = watched(means, began, sent)
    found = monitor.suspects()
    assert found.malicious == (1, 4)
    rounds = client_innovations(began, sent, LIN, STEPS, TAU)
    drop = rounds_to_drop(TAU)
    wanted = attribute(rounds, alarm.rollback, alarm.round, LIN, burn_in=drop)
    assert [row.client for row in found.table] == [row.client for row in wanted.table]
    np.testing.assert_allclose([row[1:4] for row in found.table], [row[1:4] for row in wanted.table], rtol=1e-6)
    assert (found.baseline_rounds, found.rounds_after) == (wanted.baseline_rounds, wanted.rounds_after)


def test_a_server_that_sends_the_mean_to_everybody_need_not_say_where_clients_began():
    problem = fg.problems.mean_shift(HONEST, [1, 4], 2.0, ONSET + 1)
    seen = [fg.observers.uploads(TAU), fg.observers.Path(TAU)]
    everybody = fg.networks.complete(6)
    runs = fg.simulate(problem, everybody, STEPS, 700, sync_every=TAU, start="optimum", seed=2, observe=seen)
    monitor = fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum)
    for y, s in zip(runs.path[0], runs.sent[0], strict=True):
        monitor.update(y, clients=s)
    assert monitor.suspects().malicious == (1, 4)


@pytest.mark.parametrize("saved", [5, 21, 24, 33])
def test_a_restored_monitor_names_the_same_suspects(tmp_path, saved):
    means, began, sent = uploads()
    monitor, _ = watched(means[:saved], began[:saved], sent[:saved])
    monitor.save(tmp_path / "monitor.npz")
    restored = fg.Monitor.load(tmp_path / "monitor.npz")
    rest = means[saved:], began[saved:], sent[saved:]
    one, two = (watched(*rest, monitor=m)[0].suspects() for m in (monitor, restored))
    assert one == two


def test_rounds_without_uploads_count_for_nobody():
    means, began, sent = uploads()
    monitor = fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum)
    for j, (y, b, s) in enumerate(zip(means, began, sent, strict=True)):
        if j < 4 or j % 5 == 0:  # the first uploads come late, and some are missing
            monitor.update(y)
        elif j % 7 == 0:
            monitor.update(y, clients=s, began=b, participants=[0, 1, 2, 4, 5])
        else:
            monitor.update(y, clients=s, began=b)
    assert monitor.suspects().malicious == (1, 4)


def test_a_reset_forgets_the_alarm_and_the_clients():
    monitor, _ = watched(*uploads())
    monitor.reset()
    with pytest.raises(ValueError, match="suspects needs an alarm, and rounds after it; there was no alarm"):
        monitor.suspects()


def test_suspects_says_what_is_missing():
    means, began, sent = uploads()
    silent = fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum)
    verdicts = [silent.update(y) for y in means]
    assert any(v.alarm for v in verdicts)
    with pytest.raises(ValueError, match=r"Use update\(y, clients=...\)"):
        silent.suspects()
    with pytest.raises(ValueError, match="rate must lie strictly between 0 and 1; got 2"):
        silent.suspects(rate=2.0)
    alarm = next(i for i, v in enumerate(verdicts) if v.alarm) + 1
    at_once, _ = watched(means[:alarm], began[:alarm], sent[:alarm])
    with pytest.raises(ValueError, match="rounds with clients after the alarm; there is none yet"):
        at_once.suspects()
    late = fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum)
    for j, y in enumerate(means):
        late.update(y, **({} if j < alarm - 1 else {"clients": sent[j], "began": began[j]}))
    with pytest.raises(ValueError, match="rounds with clients before the onset"):
        late.suspects()


def test_hostile_uploads_are_refused_and_leave_no_trace():
    means, began, sent = uploads()
    clean, _ = watched(means, began, sent)
    monitor = fg.Monitor(LIN, STEPS, sync_every=TAU, start=LIN.optimum)
    for y, b, s in zip(means, began, sent, strict=True):
        for bad in (np.nan, np.inf, 1e300):
            wrong = s.copy()
            wrong[3] = bad
            verdict = monitor.update(y, clients=wrong, began=b)
            assert verdict.channel == "invalid update"
            assert "client 3" in str(verdict)
        monitor.update(y, clients=s, began=b)
    assert monitor.suspects() == clean.suspects()


def test_an_alarm_is_not_taken_back_as_a_journey():
    monitor, alarm = watched(*uploads())
    means, began, sent = uploads(n_steps=1400)
    later = [monitor.update(y, clients=s, began=b) for y, b, s in zip(means[35:], began[35:], sent[35:], strict=True)]
    assert alarm is not None
    assert not any(v.travelling for v in later)


def test_a_monitor_first_fed_in_the_middle_of_a_run_counts_its_horizon_from_there():
    monitor = fg.Monitor(LIN, STEPS, sync_every=TAU, horizon=100)
    assert monitor.update(LIN.optimum, step=5000).note == ""
    verdicts = [monitor.update(LIN.optimum) for _ in range(5)]
    assert [bool(v.note) for v in verdicts] == [False] * 4 + [True]
