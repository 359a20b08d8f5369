"""`fedgauss watch` as a process: how it is asked, and where it tells of alarms."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from soak import invariants
from soak.invariants import Violation, demand
from soak.processes import Child
from soak.receiver import Receiver, whole_lines

ANSWER = 30.0  # seconds that an answer may take; the machine may be busy


class Told:
    """Where a watcher's notices go: a receiver of webhooks, and a file. Every alarm must arrive at both."""

    def __init__(self, file: Path) -> None:
        self.receiver, self._file = Receiver(), file
        self._before: dict[str, int] = {}

    def options(self) -> list[str]:
        """Of the command."""
        return ["--webhook", self.receiver.url, "--notices", str(self._file)]

    def _heard(self, event: str) -> dict[str, int]:
        in_file = whole_lines(self._file) if self._file.exists() else []
        places = {"the webhook's receiver": self.receiver.heard, "the file of notices": in_file}
        return {place: sum(said["event"] == event for said in told) for place, told in places.items()}

    def begin(self) -> None:
        """Another run: what arrived before does not count."""
        self._before = self._heard("alarm")

    def check_alarm(self) -> None:
        """An alarm of this run has arrived."""
        self._arrived("alarm", self._before)

    @contextmanager
    def arrives(self, event: str) -> Iterator[None]:
        """Something happens that must be heard of."""
        before = self._heard(event)
        yield
        self._arrived(event, before)

    def _arrived(self, event: str, before: dict[str, int]) -> None:
        for place, count in before.items():
            invariants.eventually(
                lambda place=place, count=count: self._heard(event)[place] > count,
                f"{place} never heard of this {event}",
            )


class Address:
    """Where a watcher listens."""

    def __init__(self, child: Child) -> None:
        text = child.wait_for("Ctrl-C ends")
        found = re.search(r"The page is http://127\.0\.0\.1:(\d+)/", text)
        if found is None:
            raise Violation(f"the watcher does not say where its page is: {text}")
        self.port = int(found[1])

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
        """Status and answer; an OSError or http.client.HTTPException where there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
            answer = connection.getresponse()
            content = answer.read()
            return answer.status, json.loads(content) if content[:1] in b"{[" and content else {}
        finally:
            connection.close()

    def check_health(self) -> None:
        """The watcher itself says that it watches."""
        status, said = self.ask("GET", "/health")
        demand(status == 200, f"/health answers {status}: {said}")

    def state(self) -> dict[str, Any]:
        """What the page shows, without the rows."""
        return self.ask("GET", "/state?since=999999999999999")[1]


def patiently(address: Address, body: bytes, seconds: float = ANSWER) -> tuple[int, dict[str, Any]]:
    """POST a round until it is answered: who is hung up on for want of room, or told to come back, tries again."""
    end = time.monotonic() + seconds
    while True:
        try:
            status, said = address.ask("POST", "/rounds", body)
            if status not in (429, 503) or time.monotonic() > end:
                return status, said
        except (OSError, http.client.HTTPException):
            if time.monotonic() > end:
                raise
        time.sleep(0.05)
