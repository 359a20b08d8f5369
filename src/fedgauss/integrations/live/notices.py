"""Alarms, and whether a run is being watched, told to a file or by POST, again and again until they arrive."""

import json
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgauss._files import append_private
from fedgauss.integrations.sinks.webhook import host_of, post

_ROOM = 1000  # notices that may wait; they are few, since only changes are told
_FIRST, _LONGEST = 1.0, 60.0  # seconds before the next attempt, doubled each time
_TIMEOUT = 5.0  # seconds for an answer
_AT_THE_END = 10.0  # seconds that the end of a watch waits for notices


class Delivery(ABC):
    """Brings notices to one place, in order, each at least once: what fails is tried again, less and less often."""

    name: str

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._waiting: deque[tuple[bool, bytes]] = deque()
        self._closed = False
        self.lost = 0  # that there was no room for
        self.trouble = ""  # why the last attempt failed
        threading.Thread(target=self._work, name="fedgauss notices", daemon=True).start()

    @abstractmethod
    def deliver(self, body: bytes) -> str | None:
        """Bring one; returns what went wrong."""

    def add(self, alarm: bool, body: bytes) -> None:
        """One more. Where there is no room the oldest that is no alarm makes place."""
        with self._news:
            if len(self._waiting) >= _ROOM:
                self.lost += 1
                drop = next((one for one in self._waiting if not one[0]), None)
                if drop is None:
                    return
                self._waiting.remove(drop)
            self._waiting.append((alarm, body))
            self._news.notify_all()

    def close(self, until: float) -> int:
        """Wait until everything has arrived, or until a time of the steady clock; returns how many have not."""
        with self._news:
            self._closed = True
            self._news.notify_all()
            self._news.wait_for(lambda: not self._waiting, max(until - time.monotonic(), 0.0))
            return len(self._waiting) + self.lost

    def _work(self) -> None:
        pause = _FIRST
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
                one = self._waiting[0]
            why = self.deliver(one[1])
            with self._news:
                self.trouble = why or ""
                if why is None:
                    if self._waiting and self._waiting[0] is one:
                        self._waiting.popleft()
                    pause = _FIRST
                    self._news.notify_all()
                    continue
                self._news.wait(_FIRST if self._closed else pause)
                pause = min(2 * pause, _LONGEST)


class ByFile(Delivery):
    """Lines at the end of a file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path, self.name = path, str(path)
        with append_private(path):
            super().__init__()

    def deliver(self, body: bytes) -> str | None:
        """Opened anew each time, since the file may be rotated."""
        try:
            with append_private(self._path) as file:
                file.write(body.decode() + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.strerror or str(error)
        return None


class ByPost(Delivery):
    """POSTs of JSON."""

    def __init__(self, url: str) -> None:
        self._url, self.name = url, host_of(url)
        super().__init__()

    def deliver(self, body: bytes) -> str | None:
        """Anything but an answer in the 200s is tried again."""
        return post(self._url, body, _TIMEOUT)


class Notices:
    """Everything that is told, to all places."""

    def __init__(self, file: Path | None, url: str | None) -> None:
        self._places: list[Delivery] = [] if file is None else [ByFile(file)]
        self._places += [] if url is None else [ByPost(url)]

    def __call__(
        self, event: str, words: str, round: int | None, watching: bool, parts: Mapping[str, Any] | None = None
    ) -> None:
        """Tell of an event: `alarm`, `invalid update`, `not watching`, `watching`, `started` or `stopped`."""
        said: dict[str, Any] = {"time": stamp(), "event": event, "round": round, "watching": watching, "words": words}
        body = json.dumps(said | ({"parts": parts} if parts else {})).encode()
        for place in self._places:
            place.add(event in ("alarm", "invalid update"), body)

    def close(self) -> list[str]:
        """Wait a little for what is on its way; says what has not arrived."""
        until = time.monotonic() + _AT_THE_END
        return [
            f"notices that have not arrived at {place.name}: {left}; {place.trouble or 'there was no room for more'}."
            for place in self._places
            if (left := place.close(until))
        ]


def stamp(at: float | None = None) -> str:
    """A time, in UTC; now by default."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
