"""Watchers that are wrong on purpose, to see that a soak finds out: `python -m soak.toy_watcher WRONG FRESH SAVE`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import live_runs
import numpy as np

import fedgauss as fg
from fedgauss.integrations.live.saving import SaveFile


class Toy:
    """The least that a watcher does, and does right unless `wrong` says otherwise.

    late      saves at the end only
    doubling  judges a round that comes again once more
    deaf      takes NaN for a round like any other
    blind     lets a round from far ahead leave all others behind
    leaky     keeps a megabyte of every round
    messy     leaves a process behind
    """

    def __init__(self, wrong: str, fresh: Path, save: Path) -> None:
        self.wrong, self._file = wrong, SaveFile(save, True)
        kept = self._file.read()
        self.watcher = self.monitor = fg.Monitor.load(fresh if kept is None else BytesIO(kept.watcher))
        self._file.begin(self)
        self.last, self._body = self.monitor.round, b""
        self._kept: list[bytes] = []
        self._lock = threading.Lock()
        if wrong == "messy":
            subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def take(self, body: bytes) -> int:
        """The status that answers a round."""
        with self._lock:
            said = json.loads(body)
            number, y = said["round"], np.array(said["parameters"])
            if not np.isfinite(y).all():
                self.last += self.wrong == "deaf"
                return 200 if self.wrong == "deaf" else 422
            if number > self.last + 1 and self.wrong != "blind":
                return 400
            if number <= self.last and self.wrong != "doubling":
                return 200 if number == self.last and self._body in (b"", body) else 409  # its answer was lost
            sent = np.array([said["clients"][name] for name in live_runs.NAMES])
            self.monitor.update(y, clients=sent)
            self.last, self._body = number, body
            self._kept.append(b"x" * (2**20 if self.wrong == "leaky" else 0))
            if self.wrong != "late":
                self.save()
            return 200

    def save(self) -> None:
        """Write what is known."""
        self._file.save()

    def kept(self) -> dict[str, Any]:
        """Nothing beside the monitor."""
        return {}

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        alarm = self.monitor.alarm
        return {"round": self.last, "alarm": None if alarm is None else {"round": alarm.round}}


def serve(toy: Toy) -> None:
    """Until SIGTERM."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._say(toy.take(self.rfile.read(int(self.headers["Content-Length"]))), {})

        def do_GET(self) -> None:
            self._say(200, toy.state())

        def _say(self, status: int, said: dict[str, Any]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"The page is http://127.0.0.1:{server.server_address[1]}/; Ctrl-C ends.", flush=True)
    server.serve_forever(0.05)
    toy.save()


if __name__ == "__main__":
    serve(Toy(sys.argv[1], *map(Path, sys.argv[2:])))
