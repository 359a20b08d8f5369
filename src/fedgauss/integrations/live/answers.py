"""What a request is answered: the page, its state, and, when asked to listen, what came of a round."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, NamedTuple

from fedgauss.integrations.live.feed import Outcome
from fedgauss.integrations.live.guard import OPEN, Guard
from fedgauss.integrations.live.history import OutOfOrder
from fedgauss.integrations.live.lines import MOST_BYTES
from fedgauss.integrations.live.metrics import CONTENT_TYPE, metrics
from fedgauss.integrations.live.page import LivePage
from fedgauss.integrations.live.request import Request
from fedgauss.integrations.live.run import Ended, Run
from fedgauss.integrations.live.saving import NotSaved
from fedgauss.integrations.live.state import shown_row, state_of
from fedgauss.integrations.live.thinned import WrittenRows

Hear = Callable[[Outcome], None]


class Answer(NamedTuple):
    """An HTTP response; `more` are headers beyond those of every answer."""

    status: int
    body: bytes
    kind: str = "application/json"
    more: tuple[tuple[str, str], ...] = ()

    def sent(self, policy: str) -> bytes:
        """The bytes to send."""
        headers = (
            ("Server", "fedgauss"),
            ("Content-Type", self.kind),
            ("Content-Length", str(len(self.body))),
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),  # the address may hold the token
            ("Cache-Control", "no-store"),
            *self.more,
        )
        lines = [f"HTTP/1.0 {self.status} {HTTPStatus(self.status).phrase}", *(f"{n}: {v}" for n, v in headers), "", ""]
        return "\r\n".join(lines).encode("latin-1") + self.body


def answer(status: int, said: dict[str, Any], *more: tuple[str, str]) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(said, allow_nan=False).encode(), more=more)


def refusal(status: int, reason: str, *more: tuple[str, str]) -> Answer:
    """An error in JSON."""
    return answer(status, {"error": reason}, *more)


class Answers:
    """`at_once` decides what the head alone can decide; `respond` answers the rest once the body has arrived."""

    def __init__(self, run: Run, title: str, guard: Guard, port: int, hear: Hear | None) -> None:
        self._run, self._guard, self._port, self._hear = run, guard, port, hear
        self.rejected: Counter[str] = Counter(slow=0, full=0)  # connections closed early, by reason
        self._rows = WrittenRows(run.history, shown_row)
        self._page = LivePage(title)

    @property
    def policy(self) -> str:
        """The Content-Security-Policy of every answer."""
        return self._page.policy

    def at_once(self, asked: Request) -> Answer | None:
        """A refusal, or a redirect; None where the request goes on to `respond`."""
        if (refused := self._guard.refusal(asked, self._port)) is not None:
            return refusal(*refused)
        if asked.method == "POST":
            return self._unwelcome(asked)
        if asked.method != "GET":
            return refusal(405, "only GET and POST are answered.", ("Allow", "GET, POST"))
        if asked.path == "/" and self._guard.shows_token(asked):
            return Answer(303, b"", more=(("Location", "/"), ("Set-Cookie", self._guard.set_cookie(self._port))))
        return None

    def _unwelcome(self, asked: Request) -> Answer | None:
        """The refusal of a POST before its body is read, if any."""
        if asked.path != "/rounds" or self._hear is None:
            return refusal(404, "rounds are taken at /rounds, by a watcher that was started with --listen.")
        if asked.headers.get_content_type() != "application/json":
            return refusal(415, "a round must be sent as application/json.")
        if not (length := asked.headers.get("Content-Length", "")).isdecimal():
            return refusal(411, "a round must come with its Content-Length.")
        if len(length) > 15 or int(length) > MOST_BYTES:
            return refusal(413, f"a round must have at most {MOST_BYTES:,} bytes; got {length[:20]}.")
        return None

    def respond(self, asked: Request) -> Answer:
        """The answer to a request that `at_once` let pass."""
        if asked.method == "POST":
            return self._take(asked)
        if asked.path == "/":
            return Answer(200, self._page.html, "text/html; charset=utf-8")
        if asked.path == "/state":
            return Answer(200, self._state(asked).encode())
        if asked.path == "/metrics":
            return Answer(200, metrics(self._run, self.rejected).encode(), CONTENT_TYPE)
        if asked.path == OPEN:
            return self._health(asked)
        return refusal(404, "there is nothing here; use /, /state, /metrics or /health.")

    def _health(self, asked: Request) -> Answer:
        """503 if an attack would go unseen. Without the token only the state is given, since reasons name clients."""
        health = asdict(self._run.health())
        if not self._guard.is_authorised(asked, self._port):
            health = {name: health[name] for name in ("state", "watching", "since")}
        return answer(503 if health["state"] == "not watching" else 200, health)

    def _state(self, asked: Request) -> str:
        """What `state_of` says, as JSON, with rows that were written before."""
        run = self._run
        with run.lock:  # rows must not be renumbered in between
            first, rows = self._rows.since(self._since(asked, "since"))
            told = state_of(run, run.history.count, self._since(asked, "numbers"))
        del told["rows"]
        return f'{json.dumps(told | {"first": first}, allow_nan=False)[:-1]}, "rows": {rows}}}'

    def _since(self, asked: Request, name: str) -> int:
        """The number of the first row that a page lacks: 0 where it knows another run, or none."""
        since = asked.query.get(name, "")
        known = asked.query.get("run") == self._run.id and since.isdecimal() and len(since) < 16
        return int(since) if known else 0

    def _take(self, asked: Request) -> Answer:
        assert self._hear is not None
        try:
            if len(asked.body) < asked.length:
                came = f"{len(asked.body)} of {asked.length}"
                raise ValueError(f"a round must be complete; only {came} bytes arrived.")
            outcome = self._run.take_json(asked.body)
        except ValueError as error:
            self._run.refuse(str(error))
            if isinstance(error, NotSaved):
                self._hear(self._run.outcome)  # it was judged: an alarm does not wait for room on a disk
            return refusal({OutOfOrder: 409, Ended: 503, NotSaved: 503}.get(type(error), 400), str(error))
        self._hear(outcome)
        wrong = outcome.kind == "invalid update"
        return answer(422 if wrong else 200, {"error" if wrong else "words": outcome.words, "kind": outcome.kind})
