"""The verb `watch`: what it prints, how it ends, and how it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgauss as fg
from fedgauss.cli import app
from fedgauss.integrations.live.command import Ending
from fedgauss.integrations.live.command import watch as watch_run
from fedgauss.integrations.live.options import WatchOptions

TAU, STEPS = 20, fg.step_sizes.polynomial(0.3, 0.75)


def watch(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)])


def lin():
    noise, alike = np.stack([4.0 * np.eye(2)] * 4), np.zeros((4, 2))
    return fg.linearization(np.stack([np.eye(2)] * 4), noise, optimum=[2.0, -3.0], gradients=alike)


def means(count, onset, seed=0, shift=2.0):
    """Y after each round of the linearised mean, with V = I."""
    generator, eta, y, path = np.random.default_rng(seed), STEPS.eta(count * TAU), np.array([2.0, -3.0]), []
    for t in range(count * TAU):
        y = y - eta[t] * (y - [2.0, -3.0] - (t >= onset) * shift + generator.standard_normal(2))
        if (t + 1) % TAU == 0:
            path.append(y)
    return path


def lines(path, first=1):
    return "".join(json.dumps({"round": j, "parameters": list(y)}) + "\n" for j, y in enumerate(path, start=first))


class Watching:
    """The command in a thread of this process: starting another takes seconds."""

    def __init__(self, log=None, **options):
        self._lines, self._stop, self.ending = [], threading.Event(), None
        self._thread = threading.Thread(target=self._work, args=(WatchOptions(log, port=0, **options),))

    def _work(self, options):
        self.ending = watch_run(options, self._lines.append, self._stop)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def said(self):
        return "\n".join(self._lines)

    def wait_for(self, pattern, seconds=30.0):
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said)):
            assert time.monotonic() < until, (pattern, self.said)
            time.sleep(0.02)
        return found

    def end(self, stop=True):
        """How it ended."""
        if stop:
            self._stop.set()
        self._thread.join(20)
        return self.ending


def test_help_teaches():
    shown = " ".join(watch("--help").output.split())
    for word in (
        "--listen",
        "--monitor",
        "--warm-up",
        "--token-file",
        "--cert",
        '"parameters": [0.1, -0.3]',
        "/rounds",
        "all_clients",
        "--quiet-after",
        "--webhook",
        "4 stopped while NOT WATCHING",
    ):
        assert word in shown
    assert "fedgauss watch" in CliRunner().invoke(app, ["--help"]).output


def test_a_log_is_followed_alarmed_of_saved_and_gone_on_with(tmp_path):
    """One run, end to end: rounds arrive, a line is broken, it alarms, is saved, and the next watch goes on."""
    log, fresh, saved = tmp_path / "run.jsonl", tmp_path / "monitor.npz", tmp_path / "watch.db"
    fg.Monitor(lin(), STEPS, TAU, start=[2.0, -3.0], horizon=2000).save(fresh)
    path = means(50, onset=600)
    with Watching(log, monitor=fresh, save=saved) as it:
        address = it.wait_for(r"The page is (http://127\.0\.0\.1:\d+/); Ctrl-C ends")[1]
        it.wait_for("Waiting for")
        log.write_text(lines(path[:20]))
        it.wait_for(r"round 1 \(step 20\): no alarm")
        with log.open("a") as file:
            file.write('{"round": 21, "parameters": [1.0, "<script>"]}\n' + lines(path[20:40], 21))
        it.wait_for("refused: parameters must be a list of numbers; '<script>' is none")
        alarm = it.wait_for(r"ALARM at round (\d+) \(step \d+\): the mean gradient moved")
        assert 31 <= int(alarm[1]) <= 34
        state = wait_for_round(address, 40)
        assert (state["kind"], state["refused"]["count"]) == ("alarm", 1)
        assert it.end() is Ending.ALARM
        assert f"saved as {saved}" in it.said
        assert it.said.count("ALARM") == 1
    assert fg.Monitor.load(saved).round == 40
    with log.open("a") as file:
        file.write(lines(path[40:], 41))
    with Watching(log, monitor=saved) as it:
        it.wait_for(r"Going on from|judged in an earlier session")
        it.wait_for(r"ALARM at round 41 \(step 820\)")
        log.write_text(lines(path[:3]))  # a new run's
        it.wait_for("replaced or cut short: another run seems to have begun")
        assert it.end(stop=False) is Ending.NOT_WATCHING


def wait_for_round(address, number):
    """The state once this round is in."""
    for _ in range(200):
        with urllib.request.urlopen(address + "state", timeout=10) as answer:
            state = json.load(answer)
        if state["round"] == number:
            return state
        time.sleep(0.05)
    raise AssertionError(state)


def test_arrays_are_followed(tmp_path):
    path, saved = means(40, onset=400), tmp_path / "m.npz"
    np.savez(tmp_path / "run.npz", round=np.arange(1, 41), parameters=np.array(path))
    fg.Monitor(lin(), STEPS, TAU, start=[2.0, -3.0], horizon=2000).save(saved)
    with Watching(tmp_path / "run.npz", monitor=saved) as it:
        assert 21 <= int(it.wait_for(r"ALARM at round (\d+)")[1]) <= 24


def test_rounds_are_posted_to_a_watcher_that_only_knows_the_curvature(tmp_path):
    with Watching(listen=True, hessian="1", eta0=0.3, warm_up=15, horizon=2000, save=tmp_path / "m.db") as it:
        address = it.wait_for(r"by POST at (http://\S+/rounds)")[1]
        for j, y in enumerate(means(40, onset=560), start=1):
            body = json.dumps({"round": j, "parameters": list(y), "participants": ["a", "<i>b</i>"]}).encode()
            asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=30) as answer:
                told = json.load(answer)
        assert told["kind"] == "alarm"
        it.wait_for(r"round 1 \(step 20\): warming up: round 0 of 15")
        it.wait_for("the warm-up is over, and watching begins")
        it.wait_for(r"ALARM at round \d+")
    assert fg.Monitor.load(tmp_path / "m.db").step == 800


def test_before_the_warm_up_is_over_it_is_what_is_saved(tmp_path):
    with Watching(listen=True, hessian="1", eta0=0.3, save=tmp_path / "m.db") as it:
        it.wait_for("by POST")
    assert f"The warm-up, which was not over, is saved as {tmp_path / 'm.db'}" in it.said
    assert {path.name for path in tmp_path.iterdir()} == {"m.db"}


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="only it hears signals")
def test_ctrl_c_ends_it_and_saves(tmp_path):
    """A real signal to this process, once the server is up; the handler of before is back afterwards."""
    saved, before = tmp_path / "m.npz", signal.getsignal(signal.SIGINT)
    fg.Monitor(lin(), STEPS, TAU).save(saved)

    def press():
        until = time.monotonic() + 30
        while signal.getsignal(signal.SIGINT) is before and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    finger = threading.Thread(target=press)
    finger.start()
    done = watch("--listen", "--monitor", saved, "--save", tmp_path / "later.db", "--port", 0)
    finger.join()
    assert done.exit_code == 0, done.output
    assert done.output.rstrip().endswith("Stopped.")
    assert (tmp_path / "later.db").exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.study
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "terminate"])
def test_a_process_of_its_own_ends_cleanly_and_saves(tmp_path, number):
    saved, said = tmp_path / "m.npz", tmp_path / "said.txt"
    fg.Monitor(lin(), STEPS, TAU).save(saved)
    arguments = ["watch", "--listen", "--monitor", str(saved), "--save", str(tmp_path / "later.db"), "--port", "0"]
    code = "import warnings; warnings.simplefilter('ignore'); from fedgauss.cli import app; app()"
    with said.open("w") as out:
        process = subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60
        while "by POST at" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(number)
        assert process.wait(20) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    shown = " ".join(said.read_text().split())
    assert "Traceback" not in shown
    assert shown.endswith("Stopped.")
    assert (tmp_path / "later.db").exists()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ((), "one source of rounds"),
        (("run.jsonl", "--listen"), "one source of rounds"),
        (("run.jsonl", "--hessian", "1"), "a warm-up needs --hessian and --eta0"),
        (("run.jsonl", "--monitor", "absent.npz"), "Monitor.save or ClientMonitor.save wrote; absent.npz is not there"),
        (("run.jsonl", "--monitor", "broken.npz"), "must be a file that Monitor.save or ClientMonitor.save wrote"),
        (("run.jsonl", "--monitor", "m.npz", "--eta0", "1"), "brings its own"),
        (("nowhere/run.jsonl", "--hessian", "1", "--eta0", "1"), "folder of run.jsonl must exist"),
        (("--listen", "--monitor", "m.npz", "--save", "nowhere/x.npz"), "folder of x.npz must exist"),
        (("--listen", "--hessian", "-1", "--eta0", "1"), "--hessian must be a .npy file with A, or a positive number"),
        (("--listen", "--hessian", "absent.npy", "--eta0", "1"), "--hessian must be a .npy file"),
        (("--listen", "--hessian", "broken.npy", "--eta0", "1"), "broken.npy cannot be read"),
        (("--listen", "--hessian", "1", "--eta0", "-1"), "eta0 must be greater than 0"),
        (("--listen", "--hessian", "1", "--eta0", "1", "--alpha", "5"), "alpha must lie"),
        (("--listen", "--hessian", "1", "--eta0", "1", "--host", "0.0.0.0"), "a token is needed"),
        (("--listen", "--hessian", "1", "--eta0", "1", "--token", "short"), "token must have at least 16"),
        (("--listen", "--token-file", "absent"), "--token-file must be a file that can be read; absent is none"),
        (("--listen", "--token-file", "broken.npy"), "--token-file must not be accessible to others; broken.npy has"),
        (("--listen", "--webhook", "example.org"), "--webhook must begin with http:// or https://"),
        (("--listen", "--cert", "broken.npy"), "--cert and --key belong together; --key is missing"),
        (("--listen", "--cert", "absent", "--key", "m.npz"), "--cert must be a file in PEM that can be read"),
    ],
    ids=str,
)
def test_what_cannot_be_watched_is_said_in_one_line(tmp_path, monkeypatch, asked, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "broken.npy").write_bytes(b"no array")
    fg.Monitor(lin(), STEPS, TAU).save(tmp_path / "m.npz")
    done = watch(*asked, "--port", 0)
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_a_port_that_is_none_is_said_in_one_sentence():
    done = watch("--listen", "--port", 99999)
    assert done.exit_code == 2
    assert "port must be 0-65535. Use another --port?" in done.output


def test_a_monitor_file_without_its_parts_is_refused(tmp_path):
    header = np.frombuffer(json.dumps({"format": "fedgauss monitor 4"}).encode(), dtype=np.uint8)
    np.savez(tmp_path / "m.npz", header=header)
    done = watch("--listen", "--monitor", tmp_path / "m.npz")
    assert done.exit_code == 2
    assert "the channels of a monitor must be a list of names, each once; got None" in done.output
