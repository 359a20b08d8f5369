"""A disk in memory that fails or stops the machine at a chosen write."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np


class Crash(BaseException):
    """The machine stops: no line of the program runs after this, and what was being written may be there in part."""


class MemoryDisk:
    """Files as bytes.

    Attributes
    ----------
    writes : int
        How many there were.
    fail_at, crash_at : int or None
        The write that fails as on a full disk, or that stops the machine.
    """

    def __init__(self, seed: int = 0) -> None:
        self.files: dict[Path, bytes] = {}
        self.locked: set[Path] = set()
        self.writes, self.fail_at, self.crash_at = 0, None, None
        self._rng = np.random.default_rng(seed)

    def read(self, path: Path) -> bytes | None:
        return self.files.get(path)

    def append(self, path: Path, content: bytes, at: int) -> None:
        number, self.writes = self.writes, self.writes + 1
        before = self.files.get(path, b"")[:at].ljust(at, b"\0")
        if number in (self.fail_at, self.crash_at):
            self.files[path] = before + self._part(content)
            raise Crash if number == self.crash_at else OSError(errno.ENOSPC, "No space left on device")
        self.files[path] = before + content

    def lock(self, path: Path) -> Callable[[], None]:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "held")
        self.locked.add(path)
        self.files.setdefault(path, b"")
        return lambda: self.locked.discard(path)

    def restart(self) -> None:
        """The machine starts again; locks are gone."""
        self.locked.clear()

    def _part(self, content: bytes) -> bytes:
        """A first part, or all, of what was to be written, some of it zeros."""
        end = int(self._rng.integers(0, len(content) + 1))
        part = bytearray(content[:end])
        if self._rng.random() < 0.5 and end > 1:
            start, stop = sorted(self._rng.integers(0, end, 2).tolist())
            part[start:stop] = bytes(stop - start)
        return bytes(part)
