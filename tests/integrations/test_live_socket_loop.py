"""Slow, silent and greedy visitors: they are hung up on, and nobody else waits for them."""

import contextlib
import errno
import json
import socket
import threading
import time

import pytest
from live_dribblers import Dribblers, until
from live_runs import line, monitor, rounds
from live_served import Served

from fedgauss.integrations.live import server
from fedgauss.integrations.live.connection import Limits, source_of
from fedgauss.integrations.live.history import HistoryRow
from fedgauss.integrations.live.run import Run

POST = b"POST /rounds HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def head(it, length):
    return POST % (it.server.port, length)


def connect(it):
    return socket.create_connection(("127.0.0.1", it.server.port), timeout=20)


def test_slow_visitors_do_not_take_the_places_of_others():
    """Eight hold every place and send a byte now and then; twelve others at once are all answered, again and again."""
    statuses = []
    with Served(limits=Limits(connections=8)) as it, Dribblers(it.server.port, 8, pause=0.1):

        def visit():
            for _ in range(3):
                statuses.append(it.ask("GET", "/state")[0])

        threads = [threading.Thread(target=visit) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for j, (y, _) in enumerate(rounds(20), start=1):
            assert it.post(line(j, y))[0] == 200
    assert statuses == [200] * 36
    assert it.server.rejected["full"] > 0
    assert it.run.history.count == 20


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_request_has_a_deadline_as_a_whole(part):
    """A byte now and then is never silence, but it is not a request either."""
    with Served(limits=Limits(head_seconds=0.3, body_seconds=0.3)) as it, connect(it) as link:
        if part == "body":
            link.sendall(head(it, 500))
        with contextlib.suppress(ConnectionError):  # hung up on
            for _ in range(1000):
                link.sendall(b"x")
                time.sleep(0.02)
            pytest.fail("it was never hung up on")
        until(lambda: it.server.rejected["slow"] == 1)
        assert it.run.history.count == 0
        with connect(it) as silent:
            assert silent.recv(2**16).startswith(b"HTTP/1.0 408 ")


def test_who_does_not_read_the_answer_is_rejected_on():
    run = Run(monitor())
    for j in range(1, 40_000):
        run.history.add(HistoryRow(j, 20 * j, 0.5, "quiet"))
    with Served(run=run, limits=Limits(answer_seconds=0.3)) as it, socket.socket() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.connect(("127.0.0.1", it.server.port))
        link.sendall(b"GET /state HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % it.server.port)
        until(lambda: it.server.rejected["slow"] == 1)
        assert len(json.loads(it.ask("GET", "/state")[2])["rows"]) > 10_000


def test_what_visitors_make_the_server_hold_is_bounded():
    """Bodies that never end: those who came first go first, and a whole round still gets in."""
    with Served(limits=Limits(held_bytes=2**20)) as it, contextlib.ExitStack() as greedy:
        for k in range(8):
            link = greedy.enter_context(connect(it))
            link.sendall(head(it, 4 * 2**20) + b"x" * 300_000)
            until(lambda k=k: it.server.rejected["full"] >= k - 2)
        assert it.post(line(1, next(rounds(1))[0]))[0] == 200
        assert sum(one.held for one in it.server.connections) <= 2**20


def test_one_address_cannot_take_all_places(monkeypatch):
    """As if all were from one address beyond this machine: its oldest connection gives way, others are left alone."""
    monkeypatch.setattr(server, "source_of", lambda _: "192.0.2.1")
    with Served(limits=Limits(connections=8, by_address=2)) as it, contextlib.ExitStack() as opened:
        first, second = (opened.enter_context(connect(it)) for _ in range(2))
        time.sleep(0.3)
        assert it.ask("GET", "/state")[0] == 200
        assert first.recv(2**16).startswith(b"HTTP/1.0 503 ")
        second.sendall(b"GET /state HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % it.server.port)
        assert second.recv(2**16).startswith(b"HTTP/1.0 200 ")


def test_addresses_are_told_apart_by_what_a_visitor_cannot_choose():
    for address, home in (
        ("127.0.0.1", "loopback"),
        ("::1", "loopback"),
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ):
        assert source_of(address) == home


class Unlucky(socket.socket):
    failures = 3

    def accept(self):
        if self.failures > 0:
            Unlucky.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_too_many_open_files_pass(monkeypatch):
    monkeypatch.setattr(server.socket, "socket", Unlucky)
    with Served() as it:
        monkeypatch.undo()
        assert it.ask("GET", "/state")[0] == 200
        assert Unlucky.failures == 0


def test_who_has_asked_is_answered_before_the_server_stops():
    began, go, statuses = threading.Event(), threading.Event(), []

    def hear(told):
        began.set()
        go.wait(10)

    with Served(hear=hear) as it:
        asking = threading.Thread(target=lambda: statuses.append(it.post(line(1, next(rounds(1))[0]))[0]))
        asking.start()
        began.wait(10)
        stopping = threading.Thread(target=it.server.shutdown)
        stopping.start()
        go.set()
        for thread in (asking, stopping):
            thread.join()
    assert statuses == [200]


def test_a_failure_to_answer_is_said_and_stops_nothing(capfd):
    with Served() as it:
        it.run.history.since = None
        status, _, body = it.ask("GET", "/state")
        assert (status, json.loads(body)) == (500, {"error": "the watcher failed to answer; its terminal says why."})
        assert it.ask("GET", "/")[0] == 200
    assert "TypeError" in capfd.readouterr().err
