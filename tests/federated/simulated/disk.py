"""A disk in memory that fails when it is told to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random


class Crash(BaseException):
    """The power fails: nothing of the process is left but its disk."""


class FaultyDisk:
    """A `fedgauss.federated.disk.Disk` whose next write can tear, and which can be full or read-only.

    Attributes
    ----------
    files : dict of Path to bytearray
    crash_in : int or None
        Writes until the power fails within one; some of that write survives.
    error : int or None
        What every write fails with, such as `errno.ENOSPC`.
    unsure : (Path, bytearray) or None
        What a file was before its last write, where a crash takes that back. A disk that keeps its word has none.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.files: dict[Path, bytearray] = {}
        self.crash_in: int | None = None
        self.error: int | None = None
        self.unsure: tuple[Path, bytearray] | None = None
        self._locked: set[Path] = set()

    def read(self, path: Path) -> bytes | None:
        """All of a file."""
        content = self.files.get(path)
        return None if content is None else bytes(content)

    def append(self, path: Path, content: bytes, at: int) -> None:
        """Write from a position on, where the file then ends."""
        crash = False
        if self.crash_in is not None:
            self.crash_in -= 1
            crash = self.crash_in <= 0
        some = self._random.randrange(len(content) + 1) if crash or self.error == errno.ENOSPC else len(content)
        if self.error is None or self.error == errno.ENOSPC:
            file = self.files.setdefault(path, bytearray())
            file.extend(bytes(max(0, at - len(file))))
            del file[at:]
            file += content[:some]
        if crash:
            self.crash_in = None
            raise Crash
        if self.error is not None:
            raise OSError(self.error, "the disk does not take it")

    def lock(self, path: Path) -> Callable[[], None]:
        """Hold a file."""
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, "another process holds it")
        self._locked.add(path)
        self.files.setdefault(path, bytearray())
        return lambda: self._locked.discard(path)

    def restart(self) -> None:
        """The machine is up again: no process holds a file, and there is room."""
        if self.unsure is not None:
            self.files[self.unsure[0]] = self.unsure[1]
        self._locked.clear()
        self.unsure = self.crash_in = self.error = None
