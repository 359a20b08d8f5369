"""A receiver of webhooks that is up, down, slow or in a bad mood."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

Mood = Literal["well", "500", "slow", "hangs up", "redirects"]


class Receiver:
    """Keeps what it has confirmed; what it answers badly it forgets, as a receiver that crashed would."""

    def __init__(self, slowness: float = 3.0) -> None:
        self.mood: Mood = "well"
        self.heard: list[dict[str, Any]] = []
        self._slowness, self._port = slowness, 0
        self.up()

    @property
    def url(self) -> str:
        """Where to send to."""
        return f"http://127.0.0.1:{self._port}/alarms"

    def up(self) -> None:
        """Listen, at the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.receiver = self
        self._port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def down(self) -> None:
        """Stop listening; whoever is being answered hears nothing more."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        """According to the mood."""
        mood = self.mood
        if mood == "slow":
            time.sleep(self._slowness)
        if mood in ("hangs up", "slow"):
            handler.close_connection = True
            return
        if mood == "well":
            self.heard.append(json.loads(body))
        handler.send_response({"well": 204, "500": 500, "redirects": 302}[mood])
        if mood == "redirects":
            handler.send_header("Location", f"http://127.0.0.1:{self._port}/elsewhere")
        handler.send_header("Content-Length", "0")
        handler.end_headers()


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Lines of JSON that can be read; one that a full disk cut off is not."""
    found = []
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return found


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):
            self.server.receiver.answer(self, body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
