"""Alarms and changes of watching reach a file and a webhook, at least once; what is printed may be JSON."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from live_runs import line, monitor, rounds

from fedgauss.integrations.live.command import Ending, watch
from fedgauss.integrations.live.notices import ByPost, Notices
from fedgauss.integrations.live.options import WatchOptions


class Door(HTTPServer):
    """A webhook that fails a few times first."""

    def __init__(self, failures):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failures, self.heard = failures, []
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.failures -= 1
        if self.server.failures < 0:
            self.server.heard.append(body)
        self.send_response(204 if self.server.failures < 0 else 500)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.notices._FIRST", 0.02)


@pytest.fixture
def door(request):
    server = Door(request.param)
    yield server
    server.shutdown()
    server.server_close()


def wait_for(found, seconds=20.0):
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(0.02)
    assert found()


@pytest.mark.parametrize("door", [3], indirect=True)
def test_what_a_watch_tells_arrives_in_order_although_the_door_was_shut(door, quick, tmp_path):
    """The log alarms, then says nonsense, then goes on; --log-format json has the same on the terminal."""
    log, told, said, stop, ends = tmp_path / "run.jsonl", tmp_path / "told.jsonl", [], threading.Event(), []
    monitor(horizon=2000).save(tmp_path / "m.npz")
    lines = [line(j, y) for j, (y, _) in enumerate(rounds(50, onset=600), start=1)]
    log.write_bytes(b"\n".join(lines[:45]) + b"\n")
    options = WatchOptions(log, monitor=tmp_path / "m.npz", port=0, webhook=door.url, notices=told, log_format="json")
    thread = threading.Thread(target=lambda: ends.append(watch(options, said.append, stop)))
    thread.start()

    def events(where):
        return [one["event"] for one in where]

    wait_for(lambda: "alarm" in events(door.heard))
    with log.open("ab") as file:
        file.write(b"nonsense\n" * 3)
    wait_for(lambda: "not watching" in events(door.heard))
    with log.open("ab") as file:
        file.write(lines[45] + b"\n")
    wait_for(lambda: "Watching again." in door.heard[-1]["words"])
    stop.set()
    thread.join(20)
    assert ends == [Ending.ALARM]
    assert events(door.heard) == ["started", "alarm", "not watching", "watching", "stopped"]
    assert [json.loads(one) for one in told.read_text().splitlines()] == door.heard
    assert (told.stat().st_mode & 0o777) == 0o600
    alarm, blind = door.heard[1:3]
    assert alarm["words"].startswith("ALARM at round 3")
    assert (blind["round"], blind["watching"]) == (45, False)
    assert "NOT WATCHING since 20" in blind["words"]
    assert "the last 3 rounds were refused" in blind["words"]
    printed = [json.loads(one) for one in said]
    assert {"time", "level", "event", "round", "words"} == set(printed[0])
    assert [one["event"] for one in printed if one["level"] == "error"] == ["alarm", "not watching"]


@pytest.mark.parametrize("door", [10**9], indirect=True)
def test_what_has_not_arrived_at_the_end_is_said(door, quick, monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.notices._AT_THE_END", 0.2)
    notices = Notices(None, door.url)
    notices("alarm", "ALARM", 7, True)
    (words,) = notices.close()
    assert words == f"notices that have not arrived at 127.0.0.1:{door.server_port}: 1; it answered 500."


def test_alarms_are_kept_when_there_is_no_room(monkeypatch):
    monkeypatch.setattr("fedgauss.integrations.live.notices._ROOM", 3)
    shut = threading.Event()
    monkeypatch.setattr("fedgauss.integrations.live.notices.post", lambda *_: shut.wait(20) and None)
    place = ByPost("http://127.0.0.1:9/")
    for j in range(5):
        place.add(j < 2, str(j).encode())
    with place._news:
        assert [body for _, body in place._waiting] == [b"0", b"1", b"4"]
    shut.set()
    assert place.close(time.monotonic() + 20) == 2  # that were dropped
