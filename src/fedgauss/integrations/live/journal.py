"""Rounds since a monitor was last saved, one a line, each on disk before its sender is answered."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedgauss._files import write_whole

_FORMAT = "fedgauss watch 1"
_MOST_BYTES = 2**30  # of a journal: it is begun again long before


class Kept(NamedTuple):
    """What a journal holds: words that go with the monitor's file, and the rounds after it."""

    words: dict[str, Any]
    rounds: list[bytes]


class Journal:
    """A file of JSON lines beside a monitor's: first what the monitor does not know, then every round since.

    A line that is cut off was not answered yet, and does not count.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1
        self._size = 0  # bytes that are on disk for sure
        self._waiting: list[bytes] = []  # lines that are not
        self.rounds = 0  # in the file

    def read(self) -> Kept | None:
        """What is in the file; None where there is none."""
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                raise ValueError("it is too large")
            first, *rounds = self._path.read_bytes().split(b"\n")[:-1]
            words = json.loads(first)
            if not isinstance(words, dict) or words.get("format") != _FORMAT:
                raise ValueError("its first line is another")
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{self._path} must be a journal that fedgauss watch wrote beside --save; {error}. Move it away to go "
                "on without it."
            ) from error
        return Kept(words, rounds)

    def begin(self, words: dict[str, Any], rounds: Sequence[bytes] = ()) -> None:
        """Begin again, with these rounds; until that is done the old one is there."""
        content = b"\n".join([json.dumps({"format": _FORMAT, **words}).encode(), *rounds, b""])
        write_whole(self._path, content)
        self.close()
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        self._size, self.rounds, self._waiting = len(content), len(rounds), []

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def waiting(self) -> Sequence[bytes]:
        """Rounds that could not be written so far."""
        return [line.rstrip(b"\n") for line in self._waiting]

    def add(self, text: bytes) -> None:
        """One more round. JSON has no line ends but between its parts, where a space is as good."""
        self._waiting.append(text.replace(b"\n", b" ").replace(b"\r", b" ") + b"\n")

    def commit(self) -> None:
        """Have all rounds on disk; an OSError leaves those that are not for the next time."""
        if not self._waiting:
            return
        lines = b"".join(self._waiting)
        try:
            written = 0
            while written < len(lines):
                written += os.write(self._handle, lines[written:])
            os.fsync(self._handle)
        except OSError:
            os.ftruncate(self._handle, self._size)  # half a line would spoil the next
            raise
        self._size += len(lines)
        self.rounds += len(self._waiting)
        self._waiting = []

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
