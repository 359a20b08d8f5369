"""The watcher as a process of its own under load: many visitors, slow ones among them, steady rounds, broken rounds."""

import contextlib
import http.client
import json
import re
import ssl
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from live_certificates import certificate
from live_dribblers import Dribblers
from live_runs import line, monitor, rounds
from live_served import JSON, TOKEN

BEARER = {"Authorization": f"Bearer {TOKEN}"}
CODE = "import warnings; warnings.simplefilter('ignore'); from fedgauss.cli import app; app()"


class Process:
    """`fedgauss watch --listen` with a token, and what it has printed."""

    def __init__(self, folder, encrypted=False):
        saved, token, self._said = folder / "m.npz", folder / "token", folder / "said.txt"
        monitor().save(saved)
        token.touch(0o600)
        token.write_text(TOKEN)
        options = ["watch", "--listen", "--monitor", saved, "--token-file", token, "--port", "0"]
        self._trusting = None
        if encrypted:
            cert, key = certificate(folder)
            options += ["--cert", cert, "--key", key]
            self._trusting = ssl.create_default_context(cafile=cert)
        with self._said.open("w") as out:
            self._process = subprocess.Popen([sys.executable, "-c", CODE, *map(str, options)], stdout=out, stderr=out)
        end = time.monotonic() + 60
        while not (found := re.search(r"by POST at https?://127.0.0.1:(\d+)/", self.said)):
            assert self._process.poll() is None, self.said
            assert time.monotonic() < end
            time.sleep(0.05)
        self.port = int(found[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(30)

    @property
    def said(self):
        return self._said.read_text()

    @property
    def megabytes(self):
        with open(f"/proc/{self._process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) / 1024

    def ask(self, method, path, body=None, headers=BEARER):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        if self._trusting is not None:
            link = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=self._trusting)
        with contextlib.closing(link):
            link.request(method, path, body, headers)
            answer = link.getresponse()
            return answer.status, answer.read()

    def post(self, body):
        return self.ask("POST", "/rounds", body, JSON | BEARER)


def at_a_rate(per_second, count, do):
    """Call `do(j)` for j = 1, ..., count, at this rate, and return the seconds that each took."""
    took, began = [], time.monotonic()
    for j in range(1, count + 1):
        time.sleep(max(0.0, began + j / per_second - time.monotonic()))
        asked = time.monotonic()
        do(j)
        took.append(time.monotonic() - asked)
    return np.array(took)


@pytest.mark.study
@pytest.mark.parametrize(
    ("encrypted", "whole"), [(False, False), (False, True), (True, False)], ids=["plain", "whole", "TLS"]
)
def test_two_hundred_connections_at_once_of_which_64_are_slow(tmp_path, encrypted, whole):
    """136 pages ask every second what is new while 64 send a byte every two seconds, and rounds come at 100 a second.

    With `whole` they ask for all rounds each time, as if they had just been opened.

    The issue's figures: 99 % of authorised requests answered within 2 s, and no round lost. The server of before
    answered none of 20 requests in 40 s. Under TLS the visitors' own handshakes cost as much as the server's, 2 ms,
    and seconds would say more about this machine than about the server.
    """
    lines = [line(j, y) for j, (y, _) in enumerate(rounds(500 if encrypted else 2000), start=1)]
    statuses, times, stop = [], [], threading.Event()
    with Process(tmp_path, encrypted) as it, Dribblers(it.port, 64, pause=2.0):

        def visit():
            seen = {"run": None, "next": 0}
            while not stop.wait(1.0):
                began = time.monotonic()
                status, body = it.ask("GET", "/state" if whole else f"/state?run={seen['run']}&since={seen['next']}")
                times.append(time.monotonic() - began)
                statuses.append(status)
                seen = seen if whole else json.loads(body)

        threads = [threading.Thread(target=visit) for _ in range(136)]
        for thread in threads:
            thread.start()
        posted = []
        seconds = at_a_rate(100, len(lines), lambda j: posted.append(it.post(lines[j - 1])[0]))
        stop.set()
        for thread in threads:
            thread.join()
        state = json.loads(it.ask("GET", "/state")[1])
    late, slowest = np.quantile(times, 0.99), max(times)
    print(f"\n{len(times)} pages: median {np.median(times):.3f} s, 99 % {late:.3f} s, slowest {slowest:.3f} s")
    print(f"{len(posted)} rounds: median {np.median(seconds):.3f} s, 99 % {np.quantile(seconds, 0.99):.3f} s")
    assert set(statuses) == {200}
    assert encrypted or late <= 2.0
    assert set(posted) == {200}
    assert state["next"] == len(lines)


@pytest.mark.study
def test_a_hundred_rounds_a_second_for_a_minute_are_all_taken(tmp_path):
    lines = [line(j, y) for j, (y, _) in enumerate(rounds(6000), start=1)]
    posted = []
    with Process(tmp_path) as it:
        before, began = it.megabytes, time.monotonic()
        seconds = at_a_rate(100, len(lines), lambda j: posted.append(it.post(lines[j - 1])[0]))
        lasted, grown = time.monotonic() - began, it.megabytes - before
        state = json.loads(it.ask("GET", "/state")[1])
    middle, late = np.quantile(seconds, (0.5, 0.99))
    print(f"\n{len(lines)} rounds in {lasted:.1f} s: median {middle:.4f} s, 99 % {late:.4f} s, {grown:.0f} MB more")
    assert set(posted) == {200}
    assert state["next"] == len(lines)
