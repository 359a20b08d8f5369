"""A watcher's server on loopback, and what tests ask of it."""

import http.client
import json
import socket
import threading

from live_runs import monitor

from fedgauss.integrations.live.guard import Guard
from fedgauss.integrations.live.run import Run
from fedgauss.integrations.live.server import LiveServer

TOKEN = "a-token-of-some-length"
JSON = {"Content-Type": "application/json"}


class Served:
    def __init__(self, token=None, listen=True, limits=None, tls=None, run=None, hear=None):
        self.heard = []
        self.run = run or Run(monitor())
        hear = (hear or self.heard.append) if listen else None
        self.server = LiveServer(self.run, "Watching <b>run</b>.jsonl", Guard("127.0.0.1", token, tls), 0, hear, limits)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def link(self):
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and body of the answer."""
        link = self.link()
        try:
            link.request(method, path, body, headers or {})
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            link.close()

    def post(self, body, **headers):
        status, _, answer = self.ask("POST", "/rounds", body, JSON | headers)
        return status, json.loads(answer)

    def raw(self, data, seconds=5.0):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=seconds) as link:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            pieces = b""
            while piece := link.recv(2**16):
                pieces += piece
            return pieces
