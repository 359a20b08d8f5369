"""What a ledger needs of a disk: a part that tests replace by one that fails at any write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fedgauss._files import sync_folder

try:
    import fcntl
except ImportError:  # not on Windows, where two processes on one table do not see each other
    fcntl = None  # type: ignore[assignment]


class Disk(Protocol):
    """Files of their owner. What a call has written is on disk when it returns; where it fails, `OSError`."""

    def read(self, path: Path) -> bytes | None:
        """All of a file, or None where there is none."""

    def append(self, path: Path, content: bytes, at: int) -> None:
        """Write from position `at` on, where the file then ends. If this fails, anything may stand from `at` on."""

    def lock(self, path: Path) -> Callable[[], None]:
        """Hold a file, which is made if need be, until the function that this returns is called.

        `BlockingIOError` where another process, or another part of this one, holds it.
        """


class RealDisk:
    """The disk of this machine."""

    def read(self, path: Path) -> bytes | None:
        """All of a file, or None where there is none."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def append(self, path: Path, content: bytes, at: int) -> None:
        """Write from position `at` on, where the file then ends."""
        new = not path.exists()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.ftruncate(handle, at)
            os.lseek(handle, at, os.SEEK_SET)
            while content:
                content = content[os.write(handle, content) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        if new:
            sync_folder(path.parent)

    def lock(self, path: Path) -> Callable[[], None]:
        """Hold a file until the function that this returns is called, or the process ends."""
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return lambda: os.close(handle)
