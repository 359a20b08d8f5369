"""Files that are whole or absent, on disk when a call returns, and their owner's alone."""

import errno
import os
import resource
import stat
import threading

import numpy as np
import pytest

import fedgauss as fg
from fedgauss._files import append_private, whole_file, write_whole
from fedgauss.integrations.sinks import client_log, json_lines


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def monitor():
    lin = fg.linearization(hessians=[np.eye(2)] * 4, covariances=[np.eye(2)] * 4)
    return fg.Monitor(lin, fg.step_sizes.constant(0.05), sync_every=10, start=np.zeros(2), horizon=500)


def test_what_is_private_is_its_owners_alone_and_a_page_is_not(tmp_path, monitor):
    old = os.umask(0)
    try:
        write_whole(tmp_path / "page.html", b"page", public=True)
        write_whole(tmp_path / "fit.json", b"fit")
        with append_private(tmp_path / "log"):
            pass
        monitor.save(tmp_path / "monitor.npz")
        clients = fg.ClientMonitor(seed=1)
        clients.save(tmp_path / "clients.npz")
        json_lines(tmp_path / "verdicts.jsonl").close()
        client_log(tmp_path / "run.jsonl", clients).close()
    finally:
        os.umask(old)
    modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert modes.pop("page.html") == 0o644
    assert len(modes) == 6
    assert set(modes.values()) == {0o600}, modes


def test_a_private_file_in_the_place_of_one_that_others_could_read_is_private(tmp_path):
    path = tmp_path / "monitor.npz"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_whole(path, b"new")
    assert mode(path) == 0o600


def test_content_is_on_disk_before_its_name_and_the_name_before_the_call_returns(tmp_path, monkeypatch):
    calls, sync, put = [], os.fsync, os.replace

    def synced(handle):
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else os.fstat(handle).st_size)
        sync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("name"), put(*names)))
    write_whole(tmp_path / "file", b"1234567")
    assert calls == [7, "name", "folder"]


def test_two_saves_at_once_both_succeed(tmp_path, monitor, monkeypatch):
    """The second begins and ends while the first is being written: with one temporary name the first would fail."""
    path, save, depth = tmp_path / "monitor.npz", np.savez, []

    def within(file, **arrays):
        save(file, **arrays)
        if not depth:
            depth.append(1)
            monitor.save(path)
            assert fg.Monitor.load(path).round == monitor.round

    monkeypatch.setattr(np, "savez", within)
    monitor.save(path)
    assert fg.Monitor.load(path).round == monitor.round
    assert [p.name for p in tmp_path.iterdir()] == ["monitor.npz"]


def test_readers_beside_four_writers_see_whole_files_only(tmp_path):
    path, failures = tmp_path / "file", []
    contents = [bytes([k]) * 50_000 for k in range(4)]

    def write(content):
        try:
            for _ in range(15):
                write_whole(path, content)
        except OSError as error:
            failures.append(error)

    write_whole(path, contents[0])
    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    assert not failures
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def full_disk():
    """No file can grow beyond 4 kB, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monitor, full_disk):
    path = tmp_path / "monitor.npz"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large") as caught:
        monitor.save(path)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["monitor.npz"]


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    def half():
        yield b"half"
        raise RuntimeError

    path = tmp_path / "file"
    write_whole(path, b"old")
    with pytest.raises(RuntimeError), whole_file(path) as file:
        file.writelines(half())
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_long_names_can_be_written(tmp_path):
    path = tmp_path / ("n" * 250)
    write_whole(path, b"x")
    assert path.read_bytes() == b"x"
