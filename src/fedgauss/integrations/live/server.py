"""A small web server: who may ask, the page, its state, and, when asked to listen, a door for rounds."""

import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from fedgauss.integrations.live.client_run import ClientRun
from fedgauss.integrations.live.client_state import client_state
from fedgauss.integrations.live.followed import Ended, Outcome
from fedgauss.integrations.live.history import OutOfOrder
from fedgauss.integrations.live.rounds import MOST_BYTES
from fedgauss.integrations.live.run import LiveRun
from fedgauss.integrations.live.state import state_of
from fedgauss.report.page import palette_css

_SHORTEST = 16  # characters of a token
_WAIT = 10.0  # seconds that a connection may stay silent
_VISITORS = 64  # connections at once: each holds an open file, and the log needs one too
_DRAINED = 64 * 2**20  # bytes of a refused body that are read and thrown away, so that the sender hears the answer

Hear = Callable[[Outcome], None]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Guard:
    """Refuses what a stranger, or a stranger's page in a browser on this machine, may send.

    Beyond loopback a token is needed. On loopback the Host header must name this machine: a foreign page can make a
    browser send requests here under a name of its own (DNS rebinding), but not under ours. A browser says in Origin
    whose page it acts for; others than our own are refused.
    """

    host: str
    token: str | None

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ValueError(
                f"a token is needed to listen beyond this machine, at {self.host}. Use --token with at least "
                f"{_SHORTEST} characters, or --host 127.0.0.1?"
            )
        if self.token is not None and (len(self.token) < _SHORTEST or not self.token.isascii()):
            raise ValueError(f"token must have at least {_SHORTEST} plain characters; got {len(self.token)}.")

    def refusal(self, query: Mapping[str, str], headers: Message, port: int) -> tuple[int, str] | None:
        """Status and reason where a request is not to be answered, else None."""
        named = headers.get("Host", "").lower()
        if not self._is_ours(named, port):
            return 403, "the Host header must name this machine."
        origin = headers.get("Origin")
        if origin is not None and origin.lower() != f"http://{named}":
            return 403, "requests from pages of other origins are refused."
        if self.token is not None and not hmac.compare_digest(_token(query, headers), self.token.encode()):
            return 401, "a token is needed: Authorization: Bearer TOKEN, or ?token=TOKEN."
        return None

    def _is_ours(self, named: str, port: int) -> bool:
        if self.host in ("0.0.0.0", "::"):
            return True  # any name may be ours; the token keeps strangers out
        hosts = {self.host.lower(), "127.0.0.1", "localhost", "::1"}
        names = {f"[{host}]" if ":" in host else host for host in hosts}
        return named in {f"{name}:{port}" for name in names} or (port == 80 and named in names)


def _token(query: Mapping[str, str], headers: Message) -> bytes:
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    held = given.strip() if scheme.lower() == "bearer" else query.get("token", "")
    return held.encode("utf-8", "replace")


class LiveServer(ThreadingHTTPServer):
    """Serves a run's page; `hear` is told of every POSTed round that was judged, None where rounds are not taken."""

    daemon_threads = True

    def __init__(self, run: LiveRun | ClientRun, title: str, guard: Guard, port: int, hear: Hear | None = None) -> None:
        self.run, self.guard, self.hear = run, guard, hear
        self._places = threading.Semaphore(_VISITORS)
        self.page = LivePage(title, "clients" if isinstance(run, ClientRun) else "page")
        self.address_family = socket.AF_INET6 if ":" in guard.host else socket.AF_INET
        try:
            super().__init__((guard.host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ValueError(f"port {port} at {guard.host} cannot be used; {error}. Use another --port?") from error

    def server_bind(self) -> None:
        """Bind, without asking a name server what this machine is called."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is a place left; else hang up."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What the thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    @property
    def port(self) -> int:
        """The port, where 0 was asked for the one that was found."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Where the page is."""
        host = f"[{self.guard.host}]" if ":" in self.guard.host else self.guard.host
        return f"http://{host}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of visitors who hang up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = _WAIT
    query: dict[str, str]  # what stands after the question mark, by name

    def parse_request(self) -> bool:
        """Whether there is a request that may be answered; it is refused here if not."""
        if not super().parse_request():
            return False
        self.path, _, query = self.path.partition("?")
        query = query.replace("+", "%2B")  # no form is sent here: a plus, as in a token, is no space
        self.query = {name: values[0] for name, values in parse_qs(query).items()}
        refusal = self.server.guard.refusal(self.query, self.headers, self.server.port)
        if refusal is not None:
            self._refuse(*refusal)
        return refusal is None

    def do_GET(self) -> None:
        if self.path == "/":
            self._send(200, self.server.page.html, "text/html; charset=utf-8")
        elif self.path == "/state":
            self._answer(200, self._state())
        else:
            self._answer(404, {"error": "there is nothing here; use / or /state."})

    def _state(self) -> dict[str, Any]:
        run = self.server.run
        if isinstance(run, ClientRun):
            return client_state(run, self._since("since"), self._since("numbers"))
        return state_of(run, self._since("since"))

    def _since(self, name: str) -> int:
        """The number of the first row that a page lacks: 0 where it knows another run, or none."""
        since = self.query.get(name, "")
        known = self.query.get("run") == self.server.run.id and since.isdecimal() and len(since) < 16
        return int(since) if known else 0

    def do_POST(self) -> None:
        if self.path != "/rounds" or self.server.hear is None:
            self._refuse(404, "rounds are taken at /rounds, by a watcher that was started with --listen.")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(415, "a round must be sent as application/json.")
        elif not (length := self.headers.get("Content-Length", "")).isdecimal():
            self._refuse(411, "a round must come with its Content-Length.")
        elif len(length) > 15 or int(length) > MOST_BYTES:
            self._refuse(413, f"a round must have at most {MOST_BYTES:,} bytes; got {length[:20]}.")
        else:
            self._take(self.rfile.read(int(length)), int(length), self.server.hear)

    def _take(self, body: bytes, length: int, hear: Hear) -> None:
        try:
            if len(body) < length:
                raise ValueError(f"a round must be complete; only {len(body)} of {length} bytes arrived.")
            told = self.server.run.take_json(body)
        except ValueError as error:
            self.server.run.refuse(str(error))
            self._answer({OutOfOrder: 409, Ended: 503}.get(type(error), 400), {"error": str(error)})
            return
        hear(told)
        wrong = told.kind == "invalid update"
        self._answer(422 if wrong else 200, {"error" if wrong else "words": told.words, "kind": told.kind})

    def _refuse(self, status: int, reason: str) -> None:
        """Answer, and read what is still being sent: else the sender would hear of a broken connection only."""
        self._answer(status, {"error": reason})
        self.wfile.flush()
        length = self.headers.get("Content-Length", "")
        left = min(int(length), _DRAINED) if length.isdecimal() and len(length) < 16 else 0
        while left > 0 and (piece := self.rfile.read(min(left, 2**16))):
            left -= len(piece)

    def _answer(self, status: int, said: dict[str, Any]) -> None:
        self._send(status, json.dumps(said, allow_nan=False).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        if status == 405:
            self.send_header("Allow", "GET, POST")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.server.page.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")  # the address may hold the token
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses by itself: broken requests, and methods that nobody here knows (501)."""
        self.close_connection = True
        self._answer(405 if code == 501 else code, {"error": message or "this cannot be answered."})

    def version_string(self) -> str:
        return "fedgauss"

    def log_message(self, format: str, *args: Any) -> None:
        pass


class LivePage:
    """The page of one run, `html`, and the Content-Security-Policy that belongs to it, `policy`.

    Script and style are known by their hashes, so nothing that a log smuggles in could run; nothing is loaded from
    anywhere but the watcher itself.
    """

    def __init__(self, title: str, kind: str = "page") -> None:
        here = files("fedgauss.integrations.live")
        scripts = ("pen.js", "chart.js" if kind == "page" else "heat.js", "link.js", f"{kind}.js")
        style = palette_css() + here.joinpath("page.css").read_text(encoding="utf-8")
        script = "".join(here.joinpath(name).read_text(encoding="utf-8") for name in scripts)
        body = here.joinpath(f"{kind}.html").read_text(encoding="utf-8")
        name = escape(title)
        self.html = (
            '<!DOCTYPE html>\n<html lang="en-GB">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{name}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n'
            f"<body>\n{body.replace('TITLE', name)}<script>{script}</script>\n</body>\n</html>\n"
        ).encode(errors="replace")  # a file's name need not be UTF-8
        self.policy = (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
