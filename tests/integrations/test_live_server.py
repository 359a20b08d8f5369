"""The watcher's web server: what it answers, what it refuses, and that refusals leave the monitor alone."""

import json
import socket
import threading
import time
from email.message import Message

import numpy as np
import pytest
from live_runs import line, rounds, state_bytes
from live_served import JSON, TOKEN, Served

from fedgauss.integrations.live.guard import Guard, is_loopback
from fedgauss.integrations.live.lines import MOST_BYTES
from fedgauss.integrations.live.request import Request
from fedgauss.integrations.live.server import LiveServer


@pytest.fixture
def served():
    with Served() as it:
        yield it


def test_posted_rounds_are_judged_and_the_state_shows_them(served):
    for j, (y, theta) in enumerate(rounds(40, onset=400), start=1):
        status, answer = served.post(line(j, y, theta))
        assert status == 200
    assert answer["kind"] == "alarm"
    assert answer["words"].startswith("ALARM at round 40")
    assert [told.kind for told in served.heard][-1] == "alarm"
    status, headers, body = served.ask("GET", "/state")
    state = json.loads(body, parse_constant=pytest.fail)
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json", "no-store")
    assert len(state["rows"]) == 40
    status, _, body = served.ask("GET", f"/state?run={state['run']}&since=38")
    assert [row[0] for row in json.loads(body)["rows"]] == [39, 40]
    for query in ("run=another&since=38", f"run={state['run']}&since=-1", f"run={state['run']}&since=x", "since=38"):
        assert len(json.loads(served.ask("GET", f"/state?{query}")[2])["rows"]) == 40


def test_the_page_is_whole_and_lets_nothing_else_in(served):
    status, headers, body = served.ask("GET", "/")
    page = body.decode()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "Watching &lt;b&gt;run&lt;/b&gt;.jsonl" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "innerHTML" not in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Server"] == "fedgauss"


GOOD = {"round": 4, "parameters": [2.0, -3.0]}
BAD = {
    "no JSON": (b"{", 400, "one JSON object"),
    "deep": (b"[" * 200_000, 400, "nested this deeply"),
    "deep inside": (json.dumps(GOOD)[:-1].encode() + b', "x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}", 400, "nested"),
    "wrong shape": (b'{"round": 4, "parameters": [1, 2, 3]}', 400, "must have shape (2,)"),
    "unknown client": (b'{"round": 4, "parameters": [2, -3], "participants": ["<script>"]}', 400, "'<script>' is not"),
    "duplicate": (b'{"round": 3, "parameters": [2, -3]}', 409, "in order, each once"),
    "out of order": (b'{"round": 1, "parameters": [2, -3]}', 409, "in order, each once"),
    "not a number": (b'{"round": 4, "parameters": [NaN, -3]}', 422, "invalid update, not used"),
    "infinite": (b'{"round": 4, "parameters": [1e999, -3]}', 422, "invalid update, not used"),
    "implausible": (b'{"round": 4, "parameters": [1e90, -3]}', 422, "invalid update, not used"),
    "oversized": (b" " * (MOST_BYTES + 1), 413, "at most 8,388,608 bytes"),
}


@pytest.mark.parametrize(("body", "status", "message"), BAD.values(), ids=BAD)
def test_a_bad_post_is_refused_with_a_reason_and_changes_nothing(served, body, status, message):
    for j, (y, theta) in enumerate(rounds(3), start=1):
        served.post(line(j, y, theta))
    before = state_bytes(served.run.monitor)
    got, answer = served.post(body)
    assert got == status
    assert message in answer["error"]
    assert len(answer["error"]) < 400
    assert state_bytes(served.run.monitor) == before
    assert served.post(json.dumps(GOOD).encode())[0] == 200


def test_a_body_that_ends_early_is_refused(served):
    before = state_bytes(served.run.monitor)
    head = f"POST /rounds HTTP/1.1\r\nHost: 127.0.0.1:{served.server.port}\r\nContent-Type: application/json\r\n"
    answer = served.raw(head.encode() + b'Content-Length: 500\r\n\r\n{"round": 1, "parameters": [2.0')
    assert answer.startswith(b"HTTP/1.0 400")
    assert b"31 of 500 bytes arrived" in answer
    for length in ("", "Content-Length: -5\r\n", "Content-Length: many\r\n", "Transfer-Encoding: chunked\r\n"):
        assert served.raw(head.encode() + length.encode() + b"\r\n{}").startswith(b"HTTP/1.0 411")
    assert b" 413 " in served.raw(head.encode() + b"Content-Length: 99999999999999999999\r\n\r\n")
    assert state_bytes(served.run.monitor) == before


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
    ],
    ids=str,
)
def test_pages_of_strangers_in_a_browser_here_are_kept_out(served, headers, status):
    """DNS rebinding comes with a foreign Host, a foreign page with its Origin or without JSON's content type."""
    assert served.post(json.dumps({"round": 1, "parameters": [2, -3]}).encode(), **headers)[0] == status
    assert served.run.history.count == 0
    if status == 403:
        assert served.ask("GET", "/state", headers=headers)[0] == 403


def test_our_own_names_are_answered(served):
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        named = {"Host": f"{host}:{served.server.port}"}
        assert served.ask("GET", "/", headers=named)[0] == 200
        assert served.ask("GET", "/state", headers=named | {"Origin": f"http://{named['Host']}"})[0] == 200


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(served, method):
    status, headers, _ = served.ask(method, "/state")
    assert (status, headers["Allow"]) == (405, "GET, POST")


@pytest.mark.parametrize("path", ["/rounds", "/favicon.ico", "/../etc/passwd", "/page.js", "/state/"])
def test_nothing_else_is_there(served, path):
    assert served.ask("GET", path)[0] == 404


def test_broken_requests_do_not_stop_the_server(served):
    for data in (
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\xff\xfe\x00" * 100 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\n\r\n",
    ):
        served.raw(data)
    served.raw(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n")
    assert served.ask("GET", "/state")[0] == 200


def test_a_follower_of_a_log_takes_no_posts():
    with Served(listen=False) as it:
        status, answer = it.post(json.dumps(GOOD).encode())
        assert status == 404
        assert "--listen" in answer["error"]


def test_a_token_is_asked_of_every_request():
    with Served(TOKEN) as it:
        for path in ("/", "/state", "/rounds", "/nothing"):
            for method in ("GET", "POST"):
                for headers in ({}, {"Authorization": "Bearer wrong-wrong-wrong"}, {"Authorization": f"Basic {TOKEN}"}):
                    assert it.ask(method, path, b"{}" if method == "POST" else None, JSON | headers)[0] == 401
        assert it.ask("GET", "/state", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        assert it.post(line(1, np.array([2.0, -3.0])), Authorization=f"Bearer {TOKEN}")[0] == 200


def test_beyond_loopback_a_token_is_needed():
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org"):
        assert not is_loopback(host)
        with pytest.raises(ValueError, match="a token is needed to listen beyond this machine"):
            Guard(host, None)
        Guard(host, TOKEN)
    for host in ("127.0.0.1", "127.8.8.8", "localhost", "::1"):
        assert is_loopback(host)
    with pytest.raises(ValueError, match="at least 16"):
        Guard("127.0.0.1", "short")


def test_a_taken_port_is_said_plainly(served):
    with pytest.raises(ValueError, match=r"cannot be used; .* Use another --port"):
        LiveServer(served.run, "another", Guard("127.0.0.1", None), served.server.port)
    with pytest.raises(ValueError, match="cannot be used"):
        LiveServer(served.run, "another", Guard("127.0.0.1", None), 70_000)


def test_many_senders_at_once_leave_each_round_taken_once(served):
    """Eight threads send the same rounds: each is judged exactly once, and the monitor is that of a quiet sender."""
    lines = [line(j, y) for j, (y, _) in enumerate(rounds(12), start=1)]
    counts, barrier = [], threading.Barrier(8)

    def send():
        barrier.wait()
        counts.append(sum(served.post(body)[1].get("kind") == "quiet" for body in lines))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [row[0] for row in json.loads(served.ask("GET", "/state")[2])["rows"]]
    assert taken == sorted(set(taken))
    assert sum(counts) == len(taken) <= 12
    assert taken[-1] == 12


def test_names_are_compared_as_browsers_send_them():
    """In small letters, and without the port where it is 80."""
    for host, named, port in (("MyBox", "mybox:8765", 8765), ("127.0.0.1", "127.0.0.1", 80), ("::1", "[::1]", 80)):
        headers = Message()
        headers["Host"], headers["Origin"] = named, f"http://{named}"
        headers["Authorization"] = f"Bearer {TOKEN}"
        asked = Request("GET", "/", {}, headers)
        assert Guard(host, TOKEN).refusal(asked, port) is None
        headers.replace_header("Host", "evil.example")
        assert Guard(host, TOKEN).refusal(asked, port)[0] == 403


def test_a_round_that_comes_too_late_is_not_acknowledged(served):
    before = state_bytes(served.run.monitor)
    served.run.end()
    status, answer = served.post(line(1, np.array([2.0, -3.0])))
    assert status == 503
    assert "about to stop" in answer["error"]
    assert state_bytes(served.run.monitor) == before


def test_a_silent_visitor_does_not_hold_up_the_others(served):
    with socket.create_connection(("127.0.0.1", served.server.port)):
        began = time.monotonic()
        assert served.ask("GET", "/state")[0] == 200
        assert time.monotonic() - began < 2.0
