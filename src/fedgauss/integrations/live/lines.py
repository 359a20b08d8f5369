"""A log of JSON lines that grows while it is read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from fedgauss.integrations.live.rounds import MOST_BYTES, LoggedRound, round_from_json

_CHUNK = 2**20
_FINGERPRINT = 256  # bytes before the place reached that must still be the same


class Replaced(Exception):
    """The log is not the one that was followed so far: a new run began."""


def plain_file(path: Path) -> os.stat_result | None:
    """What is known of a file before it is opened, None where there is none yet; opening a pipe would wait for ever."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"the log must be a plain file; {path} is none. Use --listen for a stream?")
    return found


class LineLog:
    """New lines of a file, whole ones only: a half-written line waits for its rest.

    A last line without an end of line counts once it is valid JSON, which half of an object never is. A line that is
    too long is cut after the limit, so that whoever reads it refuses it, and skipped to its end.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at, self._inode, self._fingerprint = 0, 0, b""
        self._rest, self._skipping = b"", False

    def poll(self) -> Iterator[LoggedRound | ValueError]:
        """The rounds since the last call, or why a line is none."""
        for line in self._new_lines():
            try:
                yield round_from_json(line)
            except ValueError as error:
                yield error

    def _new_lines(self) -> Iterator[bytes]:
        if plain_file(self._path) is None:
            if self._at:
                raise Replaced(f"{self._path} was there and is gone")
            return
        with self._path.open("rb") as file:
            self._check_same(file)
            while chunk := file.read(_CHUNK):
                if not self._at:
                    self._check_text(chunk)
                self._at += len(chunk)
                self._fingerprint = (self._fingerprint + chunk)[-_FINGERPRINT:]
                yield from self._cut(chunk)
        if self._rest.rstrip().endswith(b"}") and _is_json(self._rest):
            whole, self._rest = self._rest, b""
            yield whole

    def _check_same(self, file: BinaryIO) -> None:
        now = os.fstat(file.fileno())
        if self._at:
            file.seek(max(self._at - _FINGERPRINT, 0))
            same = now.st_ino == self._inode and now.st_size >= self._at
            if not same or file.read(len(self._fingerprint)) != self._fingerprint:
                raise Replaced(f"{self._path} was replaced or cut short")
        self._inode = now.st_ino

    def _check_text(self, chunk: bytes) -> None:
        """Said once, in place of a refusal for every line."""
        if chunk.startswith((b"\x1f\x8b", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")):
            raise ValueError(f"the log must be JSON lines; {self._path} is compressed. Unpack it first?")
        if chunk.startswith((b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")):
            raise ValueError(f"the log must be in UTF-8; {self._path} is in UTF-16. Write it with another encoding?")

    def _cut(self, chunk: bytes) -> Iterator[bytes]:
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line.strip():
                yield line[: MOST_BYTES + 1]
        if not self._skipping and len(rest) > MOST_BYTES:
            yield rest[: MOST_BYTES + 1]
            self._skipping = True
        self._rest = b"" if self._skipping else rest


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
