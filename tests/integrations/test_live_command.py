"""How the watcher begins and ends: what is refused at once, a log that cannot be read for a while, and signals."""

import os
import resource
import signal
import ssl
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from live_certificates import certificate
from live_runs import line, monitor, rounds

import fedgauss as fg
from fedgauss.integrations.live.command import Ending, _signals, watch
from fedgauss.integrations.live.options import WatchOptions
from fedgauss.integrations.live.page import LivePage


@pytest.fixture
def saved(tmp_path):
    monitor().save(tmp_path / "monitor.npz")
    return tmp_path / "monitor.npz"


def test_a_folder_to_save_to_is_refused_before_watching_and_not_after(saved, tmp_path):
    with pytest.raises(ValueError, match=r"--save must be a file to write; .* is a folder"):
        watch(WatchOptions(listen=True, monitor=saved, save=tmp_path, port=0), print)


def test_a_disk_that_is_full_from_beginning_to_end_is_told_and_the_rounds_are_judged(saved, tmp_path):
    log, said, stop = tmp_path / "run.jsonl", [], threading.Event()
    log.write_bytes(b"".join(line(j, y) + b"\n" for j, (y, _) in enumerate(rounds(3), start=1)))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    asked, endings = WatchOptions(log, monitor=saved, save=tmp_path / "later.db", port=0), []
    thread = threading.Thread(target=lambda: endings.append(watch(asked, said.append, stop)))
    thread.start()
    until = time.monotonic() + 20
    while not any("round 1 " in words for words in said) and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.02)
    stop.set()
    thread.join(20)
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    trouble = f"the watch cannot be saved as {tmp_path / 'later.db'}: disk I/O error."
    assert said.count(trouble) == 1
    assert said.count(f"Not saved: {trouble} What was saved before is there.") == 1
    assert endings == [Ending.WATCHED]
    assert (tmp_path / "later.db").stat().st_size == 0


def test_a_folder_in_which_no_file_can_be_made_is_refused_with_words(saved, tmp_path):
    (tmp_path / "link.npz").symlink_to(tmp_path / "gone" / "watch.npz")
    with pytest.raises(ValueError, match=r"--save must be a file that can be made; .*: No such file"):
        watch(WatchOptions(listen=True, monitor=saved, save=tmp_path / "link.npz", port=0), print)


@pytest.mark.parametrize("name", ["run.jsonl", "run.npz"])
def test_a_pipe_as_log_ends_the_watch_with_a_reason(saved, tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=r"must be a plain file; .* Use --listen"):
        watch(WatchOptions(tmp_path / name, monitor=saved, port=0), lambda _: None)


def test_a_log_that_cannot_be_opened_is_tried_again(saved, tmp_path, monkeypatch):
    """Too many open files, twice: said once, then the rounds are read, and the monitor is saved at the end."""
    log, said, stop = tmp_path / "run.jsonl", [], threading.Event()
    log.write_bytes(b"".join(line(j, y) + b"\n" for j, (y, _) in enumerate(rounds(3), start=1)))
    failures, opened = [OSError(24, "Too many open files")] * 2, Path.open

    def unlucky(path, *arguments, **options):
        if path == log and failures:
            raise failures.pop()
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", unlucky)
    asked = WatchOptions(log, monitor=saved, save=tmp_path / "later.db", port=0)
    thread = threading.Thread(target=watch, args=(asked, said.append, stop))
    thread.start()
    until = time.monotonic() + 20
    while not any("round 1 " in words for words in said) and time.monotonic() < until:
        time.sleep(0.02)
    stop.set()
    thread.join(20)
    assert [words for words in said if "cannot be read now, and is tried again; Too many open files" in words] == [
        f"refused: {log} cannot be read now, and is tried again; Too many open files."
    ]
    assert fg.Monitor.load(tmp_path / "later.db").round == 3


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="Ctrl-C reaches the main thread only"
)
def test_a_closed_terminal_ends_the_watch_politely_but_not_under_nohup():
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, ends in ((signal.SIG_DFL, True), (signal.SIG_IGN, False)):
            signal.signal(signal.SIGHUP, handler)
            ended = threading.Event()
            with _signals(ended):
                os.kill(os.getpid(), signal.SIGHUP)
                assert ended.wait(1.0 if ends else 0.05) == ends
            assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_command_serves_encrypted_and_says_how_to_enter(saved, tmp_path, monkeypatch):
    """And which of the secrets others could see."""
    cert, key = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=cert)
    secret = "a-token-of-some-length"
    monkeypatch.setenv("FEDGAUSS_TOKEN", secret)
    for more, warning in (({}, ""), ({"token": secret}, "Others on this machine can see --token")):
        said, stop = [], threading.Event()
        asked = WatchOptions(listen=True, monitor=saved, port=0, cert=cert, key=key, **more)
        thread = threading.Thread(target=watch, args=(asked, said.append, stop))
        thread.start()
        try:
            until = time.monotonic() + 20
            while len(said) < 2 + bool(warning) and time.monotonic() < until:
                time.sleep(0.02)
            address = said[0].removeprefix("The page is ").partition("?token=...; Ctrl-C ends.")[0]
            assert address.startswith("https://127.0.0.1:")
            assert any(warning in words for words in said)
            asked = urllib.request.Request(f"{address}state", headers={"Authorization": f"Bearer {secret}"})
            with urllib.request.urlopen(asked, context=trusting, timeout=20) as answer:
                assert answer.status == 200
        finally:
            stop.set()
            thread.join(20)
        assert not any(secret in words for words in said)


def test_a_log_whose_name_is_not_utf_8_has_a_page():
    assert b"<title>run?.jsonl</title>" in LivePage("run\udcff.jsonl").html
