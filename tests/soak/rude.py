"""Visitors who behave badly: slow, endless, or gone in the middle of a sentence."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress

_AT_ONCE = 24  # connections
_PAUSE = 0.2  # seconds between two bytes


class Visit:
    """Connections that are open within this context. A subclass says what is sent over them, and when."""

    def __init__(self, port: int, rng: random.Random, count: int = _AT_ONCE) -> None:
        self._rng = rng
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        for _ in range(count):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)  # who does not read is soon full
            one.settimeout(10.0)
            with suppress(OSError):  # there may be no place left
                one.connect(("127.0.0.1", port))
            self._sockets.append(one)
        self._thread = threading.Thread(target=self._go, daemon=True)

    def __enter__(self) -> Visit:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for one in self._sockets:
            one.close()
        self._thread.join()

    def _go(self) -> None:
        for one in self._sockets:
            self._send(one, self.greeting())
        while not self._over.wait(_PAUSE):
            for one in self._sockets:
                self._send(one, self.more())

    def _send(self, one: socket.socket, what: bytes) -> None:
        with suppress(OSError):  # hung up on, which is the right answer
            if what:
                one.sendall(what)

    def greeting(self) -> bytes:
        """What is sent first."""
        return b""

    def more(self) -> bytes:
        """What is sent every now and then."""
        return b""


def _post(length: int) -> bytes:
    return (
        b"POST /rounds HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % length
    )


class slow_writers(Visit):
    """A byte now and then, of a request that would be long."""

    def greeting(self) -> bytes:
        """The head of it, or less."""
        return self._rng.choice([b"", b"POST /rou", _post(5000), _post(5000) + b'{"round": 1, '])

    def more(self) -> bytes:
        """One byte."""
        return b" "


class slow_readers(Visit):
    """Ask for much, and do not read it."""

    def greeting(self) -> bytes:
        """Many requests at once."""
        return b"GET /state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 50


class endless(Visit):
    """A line, or a body, without an end."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(port, rng, count=2)

    def greeting(self) -> bytes:
        """A request that says how long it will be, or a header that never ends."""
        return self._rng.choice([_post(2**33), b"GET /" + b"x" * 1000, b"GET / HTTP/1.1\r\nHost: "])

    def more(self) -> bytes:
        """A megabyte."""
        return b"x" * 2**20


class half(Visit):
    """The first half of a round that is due; then the sender is gone."""

    def __init__(self, port: int, line: bytes, rng: random.Random) -> None:
        self._line = line
        super().__init__(port, rng, count=4)

    def __enter__(self) -> Visit:
        for one in self._sockets:
            self._send(one, _post(len(self._line)) + self._line[: self._rng.randrange(len(self._line))])
            one.close()
        self._sockets = []
        return super().__enter__()
