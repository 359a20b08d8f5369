"""`--save`: nothing that was answered is lost, nothing is judged twice, and a second watch is told."""

import io
import json
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing
from email.message import Message

import numpy as np
import pytest
from client_runs import line as client_line
from client_runs import rounds as client_rounds
from live_runs import NAMES, TAU, line, monitor, rounds, state_bytes

import fedgauss as fg
from fedgauss.integrations.live.answers import Answers
from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.history import OutOfOrder
from fedgauss.integrations.live.lines import line_from_json
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.request import Request
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.saving import NotSaved, SaveFile
from fedgauss.integrations.live.starting_point import starting_point

LINES = [line(j, y, theta) for j, (y, theta) in enumerate(rounds(60), start=1)]


@pytest.fixture
def begun(tmp_path):
    """Begins a watch that saves, as the command does, again and again; the one before is ended without a word."""
    opened = []

    def begin(posted=True, **options):
        while opened:
            opened.pop().close()
        save_file = SaveFile(tmp_path / "watch.db", posted)
        opened.append(save_file)
        run = Run(starting_point(WatchOptions(save=save_file.path, listen=posted, **options), save_file.read()))
        run.take_up(save_file)
        return run

    monitor().save(tmp_path / "monitor.npz")
    yield begin
    while opened:
        opened.pop().close()


def saved(run):
    """The monitor on disk."""
    return fg.Monitor.load(io.BytesIO(run.save_file.read().watcher))


def undisturbed(count):
    run = Run(monitor())
    for text in LINES[:count]:
        run.take_json(text)
    return run


def test_every_round_that_was_answered_is_there_after_a_kill_at_any_moment(begun, tmp_path):
    """Row 11: the monitor was saved at the end only. Here each watch ends after some rounds without being told."""
    given = {"monitor": tmp_path / "monitor.npz"}
    for first, last in ((0, 1), (1, 3), (3, 17), (17, 40), (40, 40)):
        run = begun(**given)
        for text in LINES[first:last]:
            assert run.take_json(text).kind == "quiet"
    run = begun(**given)
    assert state_bytes(run.monitor) == state_bytes(undisturbed(40).monitor)
    assert (run.round, run.feed.names) == (40, NAMES)
    assert run.take_json(LINES[40]).kind == "quiet"


def test_the_monitor_takes_the_place_of_its_rounds(begun, tmp_path, monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.saving._ROUNDS", 10)
    given = {"monitor": tmp_path / "monitor.npz"}
    run = begun(**given)
    for text in LINES[:25]:
        run.take_json(text)
    assert (saved(run).round, run.save_file.read().rounds) == (20, LINES[20:25])
    for text in LINES[25:30]:
        run.take_json(text)
    assert (saved(run).round, run.save_file.read().rounds) == (30, [])
    run = begun(**given)
    assert state_bytes(run.monitor) == state_bytes(undisturbed(30).monitor)
    assert run.take_json(LINES[30]).kind == "quiet"


def test_a_round_sent_again_is_already_taken_or_refused_also_after_a_restart(begun, tmp_path):
    given = {"monitor": tmp_path / "monitor.npz"}
    run = begun(**given)
    for text in LINES[:5]:
        run.take_json(text)
    for restarts in range(3):
        run = begun(**given) if restarts else run
        before = state_bytes(run.monitor)
        assert run.take_json(LINES[4]).kind == "already taken"
        assert run.take_json(b"  " + LINES[2] + b"\n").kind == "already taken"
        with pytest.raises(OutOfOrder, match="got 3 again, with other content"):
            run.take_json(line(3, [2.0, -3.0]))
        assert state_bytes(run.monitor) == before
    assert run.take_json(LINES[5]).kind == "quiet"


def test_a_warm_up_that_was_interrupted_goes_on(begun):
    given = {"hessian": "1", "eta0": 0.3, "warm_up": 12, "horizon": 2000}
    kinds = []
    for first, last in ((0, 5), (5, 9), (9, 14), (14, 30)):
        run = begun(**given)
        kinds += [run.take_json(text).kind for text in LINES[first:last]]
    assert kinds == ["warming up"] * 12 + ["quiet"] * 18
    assert begun(**given).monitor.step == 30 * TAU
    with pytest.raises(ValueError, match=r"its alpha is 0\.05, and not 0\.01"):
        begun(**given, alpha=0.01)


def test_clients_and_their_settings_go_on(begun):
    seen = list(client_rounds(45))
    alone = Run(fg.ClientMonitor(horizon=60, seed=1))
    run = begun()
    run.take_json(b'{"monitor": {"alpha": 0.05, "horizon": 60, "rate": 0.05}}')
    for j, moves in enumerate(seen, start=1):
        if j in (8, 9, 33):
            run = begun()
        outcome = run.take_json(client_line(j, moves))
        run.take_json(json.dumps({"round": j, "accuracy": 0.5}).encode())
        assert outcome == alone.take_json(client_line(j, moves))
    assert (run.monitor.horizon, run.alarm) == (60, alone.alarm)
    assert run.alarm is not None


def test_pretty_json_is_one_round(begun, tmp_path):
    run = begun(monitor=tmp_path / "monitor.npz")
    run.take_json(json.dumps(json.loads(LINES[0]), indent=1).encode().replace(b"\n", b"\r\n"))
    run.take_json(LINES[1])
    assert begun(monitor=tmp_path / "monitor.npz").round == 2


class Disk:
    """Full while `full` is set: no file of this process grows, as its operating system has it."""

    def __init__(self):
        self._before = resource.getrlimit(resource.RLIMIT_FSIZE)

    @property
    def full(self):
        return resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0

    @full.setter
    def full(self, full):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0 if full else self._before[0], self._before[1]))


@pytest.fixture
def disk():
    found = Disk()
    yield found
    found.full = False


def test_a_full_disk_is_answered_and_nothing_is_lost_once_there_is_room(begun, tmp_path, disk):
    run = begun(monitor=tmp_path / "monitor.npz")
    run.take_json(LINES[0])
    disk.full = True
    for text in (LINES[1], LINES[1], LINES[2]):
        with pytest.raises(NotSaved, match=r"disk .*\. Send the round again when there is room"):
            run.take_json(text)
    assert "cannot be saved" in run.health().reason
    disk.full = False
    assert run.take_json(LINES[1]).kind == "already taken"
    assert run.take_json(LINES[2]).kind == "already taken"
    assert run.health().reason == ""
    assert state_bytes(begun(monitor=tmp_path / "monitor.npz").monitor) == state_bytes(undisturbed(3).monitor)


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_watch_begins_on_a_full_disk_says_so_and_loses_nothing(begun, tmp_path, disk, warm_up):
    """It ended with a traceback, after a restart too, when the rounds of the watch before are in its journal."""
    given = {"monitor": tmp_path / "monitor.npz"}
    if warm_up:
        given = {"hessian": "1", "eta0": 0.3, "warm_up": 12, "horizon": 2000}
    run = begun(**given)
    for text in LINES[:3]:
        run.take_json(text)
    disk.full = True
    run = begun(**given)
    assert "cannot be saved as" in run.health().reason
    for text in (LINES[3], LINES[3], LINES[4]):
        with pytest.raises(NotSaved, match=r"disk .*\. Send the round again when there is room"):
            run.take_json(text)
    run = begun(**given)  # none of these was answered
    assert run.taken == 3
    with pytest.raises(NotSaved):
        run.take_json(LINES[3])
    disk.full = False
    usual = "warming up" if warm_up else "quiet"
    assert [run.take_json(text).kind for text in LINES[3:5]] == ["already taken", usual]
    assert run.health().reason == ""
    run = begun(**given)
    alone = Run(starting_point(WatchOptions(listen=True, **given)))
    for text in LINES[:5]:
        alone.take_json(text)
    for text in LINES[5:20]:
        assert run.take_json(text).kind == alone.take_json(text).kind
    assert state_bytes(run.monitor) == state_bytes(alone.monitor)


def test_a_log_is_followed_on_a_full_disk_and_saved_when_there_is_room(begun, tmp_path, monkeypatch, disk):
    clock, disk.full = [0.0], True
    monkeypatch.setattr("fedgauss.integrations.live.saving.time.monotonic", lambda: clock[0])
    run = begun(monitor=tmp_path / "monitor.npz", posted=False)
    assert "cannot be saved as" in run.health().reason
    with pytest.raises(ValueError, match="must be the file of one watch; another process"):
        SaveFile(tmp_path / "watch.db", False)
    run.take(line_from_json(LINES[0]))
    disk.full = False
    clock[0] += 60.0
    run.tick()
    assert run.health().reason == ""
    assert saved(run).round == 1


def test_an_alarm_whose_round_cannot_be_saved_is_told_all_the_same(begun, tmp_path, disk):
    """Sent again, the round is only `already taken`: nobody would have heard of the alarm before the next round."""
    run, heard = begun(monitor=tmp_path / "monitor.npz"), []
    answers = Answers(run, "a run", Guard("127.0.0.1", None), 80, heard.append)
    attacked = rounds(60, onset=20 * TAU)

    while run.alarm is None:
        before, text = len(heard), line(len(heard) + 1, *next(attacked))
        disk.full = True
        assert answers._take(Request("POST", "/rounds", {}, Message(), text)).status == 503
        disk.full = False
        assert len(heard) == before + 1
        run.take_json(text)
    assert heard[-1].kind == "alarm"


def test_a_log_is_saved_as_it_is_followed(begun, tmp_path, monkeypatch):
    """Once a second at most; the rest of the log is read again."""
    given, saves = {"monitor": tmp_path / "monitor.npz", "posted": False}, []
    clock, save = [0.0], fg.Monitor.save
    monkeypatch.setattr("fedgauss.integrations.live.saving.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(fg.Monitor, "save", lambda watched, path: (saves.append(watched.round), save(watched, path)))
    run = begun(**given)
    for text in LINES[:30]:
        run.take(line_from_json(text))
        clock[0] += 0.09
    assert saves == [0, 1, 13, 25]
    clock[0] += 1
    run.tick()
    assert saves[-1] == 30
    again = begun(**given)
    assert [again.take(line_from_json(text)).kind for text in LINES[:32]] == ["seen before"] * 30 + ["quiet"] * 2


def test_a_watch_that_was_stopped_during_a_save_saves_again_soon(begun, tmp_path, monkeypatch):
    """As when a virtual machine is paused: it would take the hour for what a save costs, and wait for twenty."""
    clock, save = [0.0], fg.Monitor.save
    monkeypatch.setattr("fedgauss.integrations.live.saving.time.monotonic", lambda: clock[0])
    run = begun(monitor=tmp_path / "monitor.npz", posted=False)

    def stopped(watched, path):
        save(watched, path)
        clock[0] += 3600.0

    with monkeypatch.context() as patched:
        patched.setattr(fg.Monitor, "save", stopped)
        run.take(line_from_json(LINES[0]))
    run.take(line_from_json(LINES[1]))
    assert saved(run).round == 1
    clock[0] += 30.0
    run.tick()
    assert saved(run).round == 2


def test_the_file_is_its_owners_and_a_running_watch_has_it(begun, tmp_path):
    run = begun(monitor=tmp_path / "monitor.npz")
    run.take_json(LINES[0])
    there = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("watch.db*")}
    assert there == {"watch.db": 0o600, "watch.db-wal": 0o600}
    with pytest.raises(ValueError, match="database is locked"):
        fg.Monitor.load(tmp_path / "watch.db")


@pytest.mark.parametrize(
    "more",
    [
        "CREATE TRIGGER t AFTER INSERT ON rounds BEGIN DELETE FROM rounds; END",
        "CREATE VIEW endless AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n",
    ],
)
def test_a_file_that_does_something_by_itself_is_refused(begun, tmp_path, more):
    """A trigger would lose rounds, and to read such a view would never end."""
    begun(monitor=tmp_path / "monitor.npz").save_file.close()
    with closing(sqlite3.connect(tmp_path / "watch.db")) as file:
        file.executescript(more)
    with pytest.raises(ValueError, match="tables of rows, and nothing else"):
        begun(monitor=tmp_path / "monitor.npz")


def test_a_second_watch_on_one_file_is_told(begun, tmp_path):
    begun(monitor=tmp_path / "monitor.npz")
    with pytest.raises(ValueError, match="must be the file of one watch; another process has it"):
        SaveFile(tmp_path / "watch.db", True)


@pytest.mark.parametrize("first", ["link.npz", "watch.db"])
def test_a_link_to_a_file_is_that_file(tmp_path, first):
    """A watch through a link had a lock of its own, and put a file in the link's place."""
    target, link = tmp_path / "there" / "watch.db", tmp_path / "link.npz"
    target.parent.mkdir()
    link.symlink_to(target)
    names = [link, target] if first == "link.npz" else [target, link]
    save_file = SaveFile(names[0], True)
    with pytest.raises(ValueError, match="must be the file of one watch; another process"):
        SaveFile(names[1], True)
    run = Run(monitor())
    run.take_up(save_file)
    run.take_json(LINES[0])
    save_file.save()
    save_file.close()
    assert link.is_symlink()
    assert fg.Monitor.load(target).round == 1
    assert {path.name for path in tmp_path.iterdir()} == {"there", "link.npz"}


def test_another_kind_of_monitor_or_a_broken_journal_is_not_gone_on_with(begun, tmp_path):
    given = {"monitor": tmp_path / "monitor.npz"}
    begun(**given)
    with pytest.raises(ValueError, match="it holds a Monitor"):
        begun()
    other = fg.Monitor(fg.linearization([np.eye(2)], [np.eye(2)]), fg.step_sizes.constant(0.1), TAU)
    other.save(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="it has other Hessians"):
        begun(monitor=tmp_path / "other.npz")
    whole = (tmp_path / "watch.db").read_bytes()
    for broken in (b"PK\n", (tmp_path / "monitor.npz").read_bytes(), whole[:5000], whole[:4096] + bytes(len(whole))):
        (tmp_path / "watch.db").write_bytes(broken)
        with pytest.raises(ValueError, match="Move it away"):
            begun(**given)


class Process:
    """`fedgauss watch --listen --save` in a process of its own, to be killed."""

    def __init__(self, folder):
        self._said = folder / "said.txt"
        code = "import warnings; warnings.simplefilter('ignore'); from fedgauss.cli import app; app()"
        files = ["--monitor", str(folder / "monitor.npz"), "--save", str(folder / "watch.db")]
        with self._said.open("w") as out:
            arguments = [sys.executable, "-c", code, "watch", "--listen", "--port", "0", *files]
            self._process = subprocess.Popen(arguments, stdout=out, stderr=out)

    def address(self):
        until = time.monotonic() + 60
        while "by POST at" not in (said := self._said.read_text()):
            assert self._process.poll() is None, said
            assert time.monotonic() < until, said
            time.sleep(0.02)
        return said.split("by POST at ")[1].split("rounds")[0] + "rounds"

    def kill(self):
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def send(address, text):
    asked = urllib.request.Request(address, text, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)["kind"]


def killed(folder, moments, seed):
    """Send rounds as fast as they are taken, kill the watcher at random moments, and check what it knows."""
    chance, means = random.Random(seed), [y for y, _ in rounds(20_000)]
    monitor().save(folder / "monitor.npz")
    answered = 0
    for _ in range(moments):
        process = Process(folder)
        try:
            address = process.address()
            killer = threading.Timer(chance.uniform(0.0, 0.7), process.kill)
            killer.start()
            try:
                while answered < len(means):
                    kind = send(address, line(answered + 1, means[answered]))
                    assert kind in ("quiet", "already taken", "travelling", "alarm")
                    answered += 1
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            killer.join()
        finally:
            process.kill()
    save_file = SaveFile(folder / "watch.db", True)
    try:
        given = WatchOptions(save=save_file.path, monitor=folder / "monitor.npz", listen=True)
        run = Run(starting_point(given, save_file.read()))
        run.take_up(save_file)
    finally:
        save_file.close()
    alone = monitor()
    for y in means[: run.monitor.round]:
        alone.update(y)
    print(f"\n{moments} kills, {answered} rounds answered, {run.monitor.round} restored")
    assert answered <= run.monitor.round <= answered + 1  # of the one that was not answered nobody knows
    assert state_bytes(run.monitor) == state_bytes(alone)
    return answered


def test_two_kills_under_load_lose_no_round(tmp_path):
    killed(tmp_path, 2, seed=1)


@pytest.mark.study
def test_fifty_kills_under_load_lose_no_round(tmp_path):
    assert killed(tmp_path, 50, seed=2) > 500
