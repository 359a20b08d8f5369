"""A watch is never blind in silence: jumps are refused, and what is not being watched is said."""

import json

import numpy as np
import pytest
from live_runs import OPTIMUM, STEPS, TAU, line, monitor, rounds, state_bytes

import fedgauss as fg
from fedgauss.integrations.live.history import OutOfOrder
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.live.warm_up import WarmUp

MEANS = [y for y, _ in rounds(400)]


def watched(count, run=None, first=1):
    run = Run(monitor()) if run is None else run
    for j in range(first, first + count):
        run.take_json(line(j, MEANS[j - 1]))
    return run


def refused(run, text, match, error=ValueError):
    with pytest.raises(error, match=match) as said:
        run.take_json(text)
    run.refuse(str(said.value))  # as whoever follows the log does


@pytest.mark.parametrize("jump", [{"number": 9_999_999, "step": 80}, {"number": 4, "step": 900_000}, {"number": 40}])
def test_one_line_that_jumps_is_refused_and_blinds_nobody(jump):
    """Row 3 of what broke: the round was taken, and 277 honest ones after it refused as out of order."""
    run, alone = watched(3), watched(3)
    number = jump.pop("number")
    before = state_bytes(run.monitor)
    refused(run, line(number, OPTIMUM, **jump), "must not jump; got (round|step) .* usual")
    assert state_bytes(run.monitor) == before
    for j in range(4, 281):
        assert run.take_json(line(j, MEANS[j - 1])) == alone.take_json(line(j, MEANS[j - 1]))
    assert (run.health().state, run.health().refused, run.health().taken) == ("watching", 1, 280)


def test_a_line_between_every_two_that_jumps_changes_nothing_either():
    run, alone = watched(3), watched(3)
    for j in range(4, 60):
        refused(run, line(10_000 + j, OPTIMUM), "must not jump")
        assert run.take_json(line(j, MEANS[j - 1])) == alone.take_json(line(j, MEANS[j - 1]))
        assert run.health().watching


def test_a_run_that_has_really_skipped_rounds_is_believed_from_the_third_on():
    run = watched(5)
    for j in (200, 201):
        refused(run, line(j, MEANS[j - 1]), r"really skipped rounds.* the 3rd in a row")
    assert run.take_json(line(202, MEANS[201])).kind == "quiet"
    assert (run.monitor.step, run.round, run.health().state) == (202 * TAU, 202, "watching")
    assert run.take_json(line(203, MEANS[202])).kind == "quiet"


def test_the_same_jump_sent_again_does_not_make_it_believed():
    run = watched(5)
    for _ in range(9):
        refused(run, line(200, OPTIMUM), "must not jump")
    refused(run, line(9_000, OPTIMUM), "must not jump")
    assert run.take_json(line(6, MEANS[5])).kind == "quiet"


def test_what_is_usual_is_what_the_run_does():
    """A run that logs every 50th round is believed once, and a gap of ten of its own is no jump then."""
    run = Run(monitor())
    for j in (50, 100):
        refused(run, line(j, OPTIMUM), "must not jump; got round")
    for j in (150, 200, 250, 300, 350, 400, 450, 500, 550, 600, 1050):
        assert run.take_json(line(j, OPTIMUM)).kind == "quiet"
    refused(run, line(1_700, OPTIMUM), "where 50 apart is usual")


def test_clients_jump_neither():
    run = Run(fg.ClientMonitor(seed=1))
    moves = {name: [1.0, float(k)] for k, name in enumerate("abcd")}
    run.take_json(json.dumps({"round": 1, "moves": moves}).encode())
    for number, match in ((9_000, "must not jump"), (99_999, "at most 10,000 apart")):
        refused(run, json.dumps({"round": number, "moves": moves}).encode(), match)
    run.take_json(json.dumps({"round": 2, "moves": moves}).encode())
    assert (run.round, run.health().refused) == (2, 2)


def test_three_refusals_in_a_row_are_not_watching_until_a_round_is_taken():
    run = watched(5)
    for j in (5, 4):
        refused(run, line(j, OPTIMUM), "in order", OutOfOrder)
        assert run.health().watching
    refused(run, b"nonsense", "one JSON object")
    health = run.health()
    assert (health.state, health.watching, health.round) == ("not watching", False, 5)
    assert health.reason.startswith("the last 3 rounds were refused. The last: a round must be one JSON object")
    assert state_of(run)["health"]["state"] == "not watching"
    assert run.health().since == health.since
    watched(1, run, first=6)
    assert (run.health().state, run.health().reason) == ("watching", "")


def test_a_run_that_falls_silent_is_not_watched():
    run = watched(5)
    run.pulse.quiet_after = 60.0
    now = run.pulse.heard_at
    assert run.health(now + 59).watching
    quiet = run.health(now + 61)
    assert (quiet.state, quiet.since) == ("not watching", now)
    assert "no round has come after round 5 for 61 seconds, and up to 60 seconds is usual here" in quiet.reason
    watched(1, run, first=6)
    assert run.health().watching


def test_how_long_silence_is_usual_follows_from_the_run(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("fedgauss.integrations.live.health.time.monotonic", lambda: clock[0])
    run = Run(monitor())
    run.pulse.catching_up = True  # rounds of last week
    watched(50, run)
    run.pulse.catching_up = False
    clock[0] += 3599
    assert run.health().state == "watching"
    clock[0] += 2
    assert "for 60 minutes" in run.health().reason
    for j in range(51, 61):
        watched(1, run, first=j)
        clock[0] += 100.0
    assert run.pulse.longest_silence == pytest.approx(36_010)  # the hour of silence was one of the intervals
    for j in range(61, 90):
        watched(1, run, first=j)
        clock[0] += 100.0
    assert run.pulse.longest_silence == pytest.approx(1_000)
    clock[0] += 901
    assert run.health().state == "not watching"


def test_a_warm_up_that_never_ends_is_not_watching():
    run = Run(WarmUp(np.array(1.0), STEPS, TAU, 25, 0.05, None))
    for j in range(1, 8, 2):  # every second round is logged, and nobody said so
        assert run.health().state == ("waiting" if j == 1 else "warming up")
        run.take_json(line(j, MEANS[j - 1]))
    assert run.health().state == "not watching"
    assert "the warm-up has begun anew 3 times" in run.health().reason
    assert "--sync-every 40" in run.health().reason


def test_fewer_than_four_clients_are_not_watching():
    run = Run(fg.ClientMonitor(seed=1))
    rng = np.random.default_rng(0)
    for j in range(1, 32):
        assert run.health().state == ("waiting" if j == 1 else "warming up")
        run.take_json(json.dumps({"round": j, "moves": {n: rng.normal(size=3).tolist() for n in "abc"}}).encode())
    assert run.health().state == "not watching"
    assert "nobody has been judged in the last 31 rounds" in run.health().reason
    assert "At least 4 clients must take part" in state_of(run)["health"]["reason"]


def test_a_horizon_of_clients_that_is_over_is_not_watching():
    with pytest.warns(UserWarning, match="horizon must be at least 12"):
        run = Run(fg.ClientMonitor(horizon=3, seed=1))
    rng = np.random.default_rng(0)
    for j in range(1, 5):
        run.take_json(json.dumps({"round": j, "moves": {n: rng.normal(size=3).tolist() for n in "abcd"}}).encode())
    assert "the horizon of 3 rounds is over" in run.health().reason


def test_a_monitor_whose_numbers_are_not_finite_alarms():
    """Row 6: a NaN in a prefix sum made the statistic NaN, which is above no threshold."""
    run = watched(30)
    run.monitor.watch.channels[0].total[:] = np.nan
    states = []
    for j in range(31, 34):
        outcome = run.take_json(line(j, MEANS[j - 1]))
        assert (outcome.kind, outcome.words[:20]) == ("invalid update", f"ALARM after round {j}")
        states.append(run.health().state)
    assert states == ["alarm", "alarm", "not watching"]
    assert "The statistic of the channel mean would not be a finite number" in run.health().reason
    json.dumps(state_of(run), allow_nan=False)


def test_updates_that_are_not_finite_alarm_and_three_in_a_row_are_not_watching():
    run = watched(5)
    states = []
    for j in range(6, 9):
        assert run.take_json(line(j, [np.nan, 1.0])).kind == "invalid update"
        states.append(run.health().state)
    assert states == ["alarm", "alarm", "not watching"]


def test_what_a_run_refused_itself_is_an_alarm_too():
    run = Run(fg.ClientMonitor(seed=1))
    run.take_json(b'{"round": 1, "moves": {"a": [1.0], "b": [1.0], "c": [1.0], "d": [2.0]}}')
    outcome = run.take_json(b'{"round": 2, "refused": "Client 3 sent NaN."}')
    assert outcome.kind == "invalid update"
    assert outcome.words.endswith("The run refused it: Client 3 sent NaN.")
