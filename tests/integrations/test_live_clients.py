"""A watch of clients from a log: the run's own verdicts to the bit, refusals that change nothing, and going on."""

import json
import threading
import time
import urllib.request

import numpy as np
import pytest
from client_runs import NAMES, held, line, logged, rounds
from hypothesis import given, settings
from hypothesis import strategies as st

import fedgauss as fg
from fedgauss.integrations.live.command import watch
from fedgauss.integrations.live.history import OutOfOrder
from fedgauss.integrations.live.lines import line_from_json
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.run import Ended, Run
from fedgauss.integrations.live.state import state_of
from fedgauss.integrations.sinks import client_log


def judged(run, text):
    """The verdicts of a watcher that reads these lines."""
    verdicts = []
    for each in text.splitlines():
        before = run.verdict
        run.take_json(each)
        if run.verdict is not before:
            verdicts.append(run.verdict)
    return verdicts


def shown(run, since=0, numbers=0):
    return json.loads(json.dumps(state_of(run, since, numbers), allow_nan=False))


@pytest.mark.parametrize(("dim", "onset"), [(40, 31), (20_000, 18)], ids=["whole", "sketched"])
def test_a_watcher_says_what_the_run_said_to_the_bit(tmp_path, dim, onset):
    """Absences, a late client, an alarm, and two clients left out with rounds undone. Equal verdicts have equal floats.

    It would fail if a line rounded a number, or if who was left out reached the watcher too late.
    """
    wanted = logged(tmp_path / "log", rounds(onset + 6, dim, onset=onset))
    run = Run(fg.ClientMonitor())
    assert judged(run, (tmp_path / "log").read_bytes()) == wanted
    (alarm,) = [verdict for verdict in wanted if verdict.alarm]
    assert set(alarm.suspects) == {NAMES[2], NAMES[7]}
    assert set(run.monitor.left_out) == {NAMES[2], NAMES[7]}
    assert (run.monitor.horizon, run.outcome.kind, run.alarm) == (60, "quiet", None)
    (line_of_alarm,) = shown(run)["alarms"]
    assert sorted(line_of_alarm["clients"]) == sorted(run.roll.numbered[name] for name in alarm.suspects)
    assert "left out; the run went back to round" in shown(run)["parts"]["Named and left out"]["rows"][0][0]


def test_a_watcher_follows_quarantines_returns_and_what_an_operator_accepts(tmp_path):
    """One client behaves after twenty rounds and returns; another is accepted. Equal verdicts have equal floats."""
    monitor, wanted = fg.ClientMonitor(horizon=200, seed=1), []
    log = client_log(tmp_path / "log", monitor)
    for number, moves in enumerate(rounds(90, absent=0.0, onset=10**6), 1):
        if 31 <= number <= 50:
            moves[NAMES[2]] *= -1
        if number == 60:
            monitor.quarantine([NAMES[7]])
        if number == 63:
            monitor.accept(NAMES[7])
        wanted.append(monitor.update(moves))
        log(number, wanted[-1])
        if wanted[-1].alarm:
            assert monitor.quarantine() == (NAMES[2],)
    log.close()
    run = Run(fg.ClientMonitor())
    assert judged(run, (tmp_path / "log").read_bytes()) == wanted
    assert [verdict.returned for verdict in wanted if verdict.returned] == [(NAMES[2],)]
    assert not run.monitor.quarantined
    assert [out.how for out in run.monitor.exclusions] == ["quarantined", "quarantined", "accepted"]
    assert shown(run)["exclusions"][-1]["clients"] == []


def test_whole_moves_are_judged_as_by_a_monitor_that_is_given_them():
    run, alone = Run(fg.ClientMonitor(horizon=60, seed=1)), fg.ClientMonitor(horizon=60, seed=1)
    for j, moves in enumerate(rounds(45), start=1):
        more = {}
        if alone.alarm is not None:
            more = {"left_out": [{"clients": list(alone.alarm.suspects), "back_to": alone.alarm.rollback}]}
            alone.exclude()
        run.take_json(line(j, moves, **more))
        assert run.verdict == alone.update(moves)
    assert len(alone.left_out) == 2


def test_integers_name_clients_as_in_the_run(tmp_path):
    wanted = logged(tmp_path / "log", rounds(35, names=range(10)), act=False)
    run = Run(fg.ClientMonitor())
    assert judged(run, (tmp_path / "log").read_bytes()) == wanted
    assert set(run.alarm.suspects) == {2, 7}
    assert shown(run)["clients"][2][0] == "2"


GOOD = {"clients": [*"abcd"], "products": [[2], [1, 2], [1, 1, 2], [1, 1, 1, 2]], "along_own": [None] * 4}
PRODUCTS = GOOD | {"round": 4, "evenness": [1, 1, 1, 1]}
MOVES = {name: [1.0] * 40 for name in NAMES[:5]}
DEEP = b'{"round": 4, "moves": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"round": 4}, "must have 'parameters', 'moves' or 'products'"),
        ({"moves": MOVES}, "must have 'round'"),
        ({"round": 3, "moves": MOVES}, "in order, each once; got 3"),
        ({"round": 10**9, "moves": MOVES}, "at most 10,000 apart"),
        ({"round": 4, "parameters": [1.0]}, r"has parameters\. To watch those"),
        ({"round": 4, "moves": {}}, "an object of lists"),
        ({"round": 4, "moves": [[1.0]]}, "an object of lists"),
        ({"round": 4, "moves": MOVES | {"x": [1.0]}}, r"must have 40 parameters.* 'x' has 1"),
        ({"round": 4, "moves": MOVES | {"x": [1e300] * 40}}, "'x' must be finite and at most 1e"),
        ({"round": 4, "moves": MOVES | {"x": [10**400] * 40}}, "below 1e308"),
        ({"round": 4, "moves": MOVES | {"x": [[1.0]] * 40}}, "must be a list of numbers"),
        ({"round": 4, "moves": MOVES | {"x\n": [1.0] * 40}}, "printable characters"),
        ({"round": 4, "moves": {str(k): [1.0] for k in range(1001)}}, "at most 1,000 clients"),
        ({"round": 4, "moves": MOVES, "accuracy": np.nan}, "accuracy must be a finite number"),
        ({"round": 4, "moves": MOVES, "loss": [1]}, "loss must be a finite number"),
        ({"round": 4, "moves": MOVES, "left_out": ["x"]}, "a list of objects with clients"),
        ({"round": 4, "moves": MOVES, "left_out": [{"clients": ["nobody"]}]}, "'nobody' was not"),
        ({"round": 4, "moves": MOVES, "left_out": [{"clients": [NAMES[0]]}] * 2}, "out already"),
        ({"round": 4, "moves": MOVES, "left_out": [{"clients": [NAMES[0]], "back_to": 4}]}, "a round before 4"),
        ({"round": 4, "moves": MOVES, "left_out": [{"clients": [NAMES[0]], "how": "x"}]}, "how must be one of"),
        ({"round": 4, "moves": MOVES, "left_out": [{"clients": [NAMES[0]], "how": "accepted"}]}, "accept needs"),
        # Leaving somebody out must not count either where the round does not.
        ({"round": 4, "moves": {"x": [1.0]}, "left_out": [{"clients": [NAMES[0]]}]}, "must have 40 parameters"),
        (PRODUCTS | {"clients": [*"abca"]}, "each client once"),
        (PRODUCTS | {"clients": [1, 2, 3, "1"]}, "each client once"),
        (PRODUCTS | {"clients": [*"abc"]}, "products must have 3 rows"),
        (PRODUCTS | {"products": [[2], [1, 2], [1, 1, 2], [1, 1, 2]]}, "must have 4 numbers here; got 3"),
        (PRODUCTS | {"products": [[2], [1, 2], [1, 1, 2], [9, 1, 1, 2]]}, "must be inner products"),
        (PRODUCTS | {"products": [[2], [1, 2], [1, 1, 2], [1, 1, 1, -2]]}, "must be inner products"),
        (PRODUCTS | {"products": [[2], [1, 2], [1, 1, 2], [np.nan, 1, 1, 2]]}, "must be inner products"),
        (PRODUCTS | {"products": [[2], [1, 2], [1, 1, 2], [1, 1, 1, 1e300]]}, "must be inner products"),
        (PRODUCTS | {"along_own": [None, 1, 1]}, "must have 4 numbers"),
        (PRODUCTS | {"along_own": [9, 1, 1, 1]}, "longer than the move"),
        (PRODUCTS | {"along_own": [np.nan, 1, 1, 1]}, "longer than the move"),
        (PRODUCTS | {"evenness": [np.inf, 1, 1, 1]}, "evenness must be finite"),
        ({"round": 5, "accuracy": 0.5}, "must come after their round"),
        ({"round": 3, "refused": "x" * 1001}, "at most 1000 characters"),
        ({"monitor": {"alpha": 0.01}}, "must stay those that the watch began with"),
        ({"monitor": {"alpha": "x"}}, "alpha must be"),
        ({"monitor": {"seed": 1}}, "an object with alpha, horizon, rate"),
        (b'{"round": 4, "moves": {"a": [1], "a": [2]}}', "occur once"),
        (b'{"round": 4, "moves": {', "one JSON object"),
        (DEEP, "nested this deeply|an object of lists"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:60],
)
def test_a_line_that_cannot_be_right_is_refused_and_changes_nothing(said, match):
    run = Run(fg.ClientMonitor(seed=1))
    for j, moves in enumerate(rounds(3, absent=0), start=1):
        run.take_json(line(j, moves))
    before = held(run.monitor), shown(run)
    with pytest.raises(ValueError, match=match):
        run.take_json(said if isinstance(said, bytes) else json.dumps(said).encode())
    assert (held(run.monitor), shown(run)) == before
    run.take_json(json.dumps(PRODUCTS).encode())
    assert run.round == 4


def test_everybody_may_be_left_out_and_few_clients_come_to_no_harm():
    run = Run(fg.ClientMonitor(seed=1))
    seen = list(rounds(20, onset=99, absent=0))
    for j, moves in enumerate(seen[:18], start=1):
        run.take_json(line(j, moves))
    run.take_json(line(19, seen[18], left_out=[{"clients": list(NAMES)}]))
    assert "4 clients must take part" in run.outcome.words
    run.take_json(line(20, {"new": np.ones(40)}))
    assert (run.outcome.kind, run.round) == ("warming up", 20)


NUMBER = st.one_of(st.integers(-3, 3), st.floats(), st.none(), st.just(10**400), st.text(max_size=2))
WHO = st.one_of(st.sampled_from(NAMES), st.integers(0, 5), st.text(max_size=2))
ROW = st.one_of(st.just([1.0] * 40), st.lists(NUMBER, max_size=4))
NESTED = st.recursive(NUMBER, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
SAID = st.fixed_dictionaries(
    {"round": st.one_of(st.integers(1, 9), NUMBER)},
    optional={
        "moves": st.one_of(st.dictionaries(st.sampled_from(NAMES), ROW), NESTED),
        "clients": st.lists(WHO, max_size=5),
        "products": st.one_of(st.just(GOOD["products"]), NESTED),
        "along_own": st.one_of(st.just([None] * 4), NESTED),
        "evenness": st.one_of(st.just([1.0] * 4), NESTED),
        "left_out": st.one_of(st.lists(st.fixed_dictionaries({"clients": st.lists(WHO, max_size=3)})), NESTED),
        "accuracy": NUMBER,
        "refused": NUMBER,
    },
)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(SAID, min_size=1, max_size=4))
def test_whatever_is_sent_is_taken_or_refused_and_a_refusal_changes_nothing(sent):
    run = Run(fg.ClientMonitor(seed=1))
    for j, moves in enumerate(rounds(2, absent=0), start=1):
        run.take_json(line(j, moves))
    for said in sent:
        before = held(run.monitor), run.history.count, run.numbers.count
        try:
            run.take_json(json.dumps(said).encode())
        except ValueError:
            assert (held(run.monitor), run.history.count, run.numbers.count) == before
        shown(run)


def test_a_move_that_is_not_finite_is_an_alarm_and_changes_nothing():
    run = Run(fg.ClientMonitor(seed=1))
    seen = list(rounds(4, absent=0))
    for j, moves in enumerate(seen[:3], start=1):
        run.take_json(line(j, moves))
    before = held(run.monitor)
    outcome = run.take_json(line(4, {**seen[3], NAMES[2]: np.full(40, np.nan)}))
    assert outcome.kind == "invalid update"
    assert outcome.words.startswith("ALARM after round 4: invalid update, not used; the last good round is 3.")
    assert NAMES[2] in outcome.words
    assert (held(run.monitor), run.round, run.health().state) == (before, 3, "alarm")
    run.take_json(line(4, seen[3]))
    assert (run.round, run.health().state) == (4, "warming up")


def test_an_accuracy_behind_an_invalid_update_is_noted():
    """What was wrong is the round before: who sends the accuracy is not told that it was refused."""
    run, (first, second) = Run(fg.ClientMonitor(seed=1)), rounds(2)
    run.take_json(line(1, first))
    assert run.take_json(line(2, second | {NAMES[2]: np.full(len(second[NAMES[2]]), np.inf)})).kind == "invalid update"
    assert run.take_json(b'{"round": 1, "accuracy": 0.5}')[:2] == ("noted", "noted: accuracy of round 1.")
    assert run.outcome.kind == "invalid update"
    assert shown(run)["numbers"]["rows"] == [[1, "accuracy", 0.5]]


def test_rows_are_numbered_and_a_long_run_is_thinned(monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.history._CELLS", 500)
    run = Run(fg.ClientMonitor(seed=1))
    for j, moves in enumerate(rounds(14, onset=99, absent=0), start=1):
        run.take_json(line(j, moves, accuracy=j / 100))
    assert [row[0] for row in shown(run)["rows"]] == [1, 3, 5, 7, 9, 11, 13]  # each one stands for two
    assert shown(run)["each"] == 2
    state = shown(run, 6, 13)
    assert [row[0] for row in state["rows"]] == [13]
    assert state["numbers"]["rows"] == [[14, "accuracy", 0.14]]
    number, _, _, kind, who, tenths = state["rows"][0]
    assert (number, kind, who) == (13, "quiet", [*range(9), 9])
    last = [round(10 * run.verdict.surprises[name]) for name in NAMES[:9]]
    assert all(tenth >= here for tenth, here in zip(tenths[:9], last, strict=True))
    assert [*map(max, tenths[:9], last)] == tenths[:9]
    assert tenths[9] is None  # joined in round 6
    run.end()
    with pytest.raises(Ended):
        run.take_json(line(15, moves))


def test_missed_rounds_keep_the_logs_numbers():
    run = Run(fg.ClientMonitor(horizon=60, seed=1))
    for j, moves in enumerate(rounds(40), start=1):
        if j not in (3, 17, 18):
            run.take_json(line(j, moves))
    assert 31 <= run.alarm.round <= 33
    assert 29 <= run.alarm.onset <= 31
    assert run.monitor.round == 40


def test_what_a_run_refused_itself_and_an_accuracy_that_is_none_are_told(tmp_path):
    monitor = fg.ClientMonitor(seed=1)
    log = client_log(tmp_path / "log", monitor)
    with pytest.raises(ValueError, match="has judged none yet"):
        log(1, fg.ClientMonitor().update({}))
    log(1, monitor.update(next(rounds(1))))
    log.add(accuracy=float("nan"))
    log.add(accuracy=float("inf"), loss=2.0)
    bad = fg.detect.clients.ClientVerdict(
        True, np.inf, 0.0, "invalid update", 1, 1, None, 1, 0.05, note="Client 3 sent <b>."
    )
    log(2, bad)
    log.close()
    run = Run(fg.ClientMonitor())
    judged(run, (tmp_path / "log").read_bytes())
    assert shown(run)["numbers"]["rows"] == [[1, "loss", 2.0]]
    assert shown(run)["refused"] == {"count": 1, "last": ["round 2, by the run itself: Client 3 sent <b>."]}
    with pytest.raises(ValueError, match="must be a ClientMonitor; got str"):
        client_log(tmp_path / "log", "monitor")


def follow(asked, wanted):
    """What the command says until something that it says is wanted."""
    said, stop = [], threading.Event()
    thread = threading.Thread(target=watch, args=(asked, said.append, stop))
    thread.start()
    until = time.monotonic() + 30
    while not any(wanted in words for words in said) and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.02)
    stop.set()
    thread.join(20)
    return said


def test_the_command_follows_a_log_saves_and_goes_on(tmp_path):
    log, kept = tmp_path / "run.jsonl", tmp_path / "watch.db"
    wanted = logged(log, rounds(45), act=False)
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:60]) + b'{"round": 30, "moves": {"a": ["<b>"]}}\n')  # to round 30, and nonsense
    said = follow(WatchOptions(log, port=0, save=kept), "refused: ")
    assert f"The monitor is saved as {kept}; the same command goes on from it." in said[-2]
    assert fg.ClientMonitor.load(kept).round == 30
    log.write_bytes(b"".join(lines))
    said = follow(WatchOptions(log, port=0, save=kept), "ALARM")
    assert said[1] == f"Going on from {kept}, after round 30."
    assert "judged in an earlier session" in said[2]
    first = next(verdict for verdict in wanted if verdict.alarm)
    assert str(first) in said
    again = Run(fg.ClientMonitor.load(kept))
    assert again.outcome.words == (
        f"waiting for the first round. It alarmed at round {first.round}: roll back to round {first.rollback}."
    )
    with pytest.raises(ValueError, match=r"round 1 has a client 'e' that it has not\. Use this run"):
        again.take_json(line(1, {name: np.ones(40) for name in "efgh"}))
    with pytest.raises(ValueError, match=r"must be JSON lines; run\.npz"):
        watch(WatchOptions(tmp_path / "run.npz", port=0), print)


def test_rounds_may_be_posted():
    said, stop = [], threading.Event()
    thread = threading.Thread(target=watch, args=(WatchOptions(listen=True, port=0), said.append, stop))
    thread.start()
    try:
        while len(said) < 2:
            time.sleep(0.02)
        address = said[0].split()[3].rstrip(";")
        body = line(1, next(rounds(1)))
        sent = urllib.request.Request(f"{address}rounds", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(sent) as answer:
            assert json.loads(answer.read())["kind"] == "warming up"
        with urllib.request.urlopen(f"{address}state") as answer:
            assert json.loads(answer.read())["round"] == 1
        with urllib.request.urlopen(address) as answer:
            assert b"by round" in answer.read()
    finally:
        stop.set()
        thread.join(20)


def test_a_line_twice_is_out_of_order():
    run = Run(fg.ClientMonitor(seed=1))
    text = line(1, next(rounds(1)))
    run.take(line_from_json(text))
    with pytest.raises(OutOfOrder):
        run.take(line_from_json(text))
