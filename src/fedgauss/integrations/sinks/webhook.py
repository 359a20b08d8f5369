"""A POST for each round, or for each alarm only, that a run never waits for."""

from __future__ import annotations

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from fedgauss import _checks
from fedgauss.detect.verdict import Verdict
from fedgauss.integrations.sinks.readings import plain

_ROOM = 100  # rounds that may wait to be sent


class Webhook:
    """Sends each verdict as JSON to `url`, from a thread of its own.

    alarms_only  send rounds that alarm, and no others
    timeout      seconds that one answer may take. A run never waits for it: when 100 rounds are waiting, further ones
                 are dropped

    What went wrong in the thread is raised by the next call, so that `Sinks` can say so. Redirections are errors:
    verdicts go where they were meant to go, or nowhere.
    """

    def __init__(self, url: str, alarms_only: bool = False, timeout: float = 3.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url must begin with http:// or https:// and name a host; got {url!r}.")
        self._url, self._alarms_only = url, alarms_only
        self._timeout = _checks.real("timeout", timeout, above=0.0, fix="It counts seconds.")
        self._opener = urllib.request.build_opener(_NoRedirection)
        self._waiting: queue.Queue[bytes | None] = queue.Queue(_ROOM)
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._send_all, name="fedgauss webhook", daemon=True)
        self._thread.start()

    def __call__(self, round: int, verdict: Verdict) -> None:
        """Leave a round to be sent, and raise what went wrong since the last."""
        if verdict.alarm or not self._alarms_only:
            self._leave(json.dumps(plain(round, verdict), allow_nan=False).encode())
        self._raise_fault()

    def close(self) -> None:
        """Wait for what is still to be sent, for as long as one answer may take."""
        until = time.monotonic() + self._timeout
        try:
            self._waiting.put(None, timeout=self._timeout)
        except queue.Full:
            raise TimeoutError(f"{self._url} did not take {_ROOM} rounds in {self._timeout:g} s") from None
        self._thread.join(max(until - time.monotonic(), 0.0))
        self._raise_fault()

    def _leave(self, body: bytes) -> None:
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            raise TimeoutError(f"{_ROOM} rounds wait for {self._url} already; this one is dropped") from None

    def _raise_fault(self) -> None:
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _send_all(self) -> None:
        while (body := self._waiting.get()) is not None:
            asked = urllib.request.Request(self._url, data=body, headers={"Content-Type": "application/json"})
            try:
                with self._opener.open(asked, timeout=self._timeout):
                    pass
            except Exception as error:  # kept for the next call; the thread goes on
                self._fault = error
                if isinstance(error, urllib.error.HTTPError):
                    error.close()


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None
