"""`--save`: a watch that can be killed at any moment, and goes on without a round lost or counted twice."""

import io
import json
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedgauss.detect import storage
from fedgauss.integrations.live.history import Kind

_EVERY = 1.0  # seconds, at least, between two saves of a watch that follows a log
_COST = 20.0  # times what a save takes, at least, lie between two
_RAREST = 30.0  # seconds, at most: a process that was stopped in the middle of a save would wait for hours after it
_ROUNDS, _BYTES = 1000, 16 * 2**20  # of rounds, after which the watcher is saved in their place
_UNSAVED = 1000  # rounds that may wait for a disk with room
_TABLES = (
    "CREATE TABLE IF NOT EXISTS kept (id INTEGER PRIMARY KEY CHECK (id = 1), words TEXT, watcher BLOB)",
    "CREATE TABLE IF NOT EXISTS rounds (number INTEGER PRIMARY KEY, line BLOB)",
)


class NotSaved(ValueError):
    """A round could not be brought to disk."""


class Kept(NamedTuple):
    """What an earlier watch left: words that its watcher does not know, the watcher, and the rounds after it."""

    words: dict[str, Any]
    watcher: bytes
    rounds: list[bytes]


class SaveFile:
    """An SQLite file that one watch holds at a time: the watcher, and the rounds since it was saved.

    A POSTed round is in it, and on disk, before it is answered; now and then the watcher after it takes the place of
    all rounds, in one transaction. A log can be read again, so there the watcher is saved once a second at most.

    Parameters
    ----------
    path : Path
        The file; through a link, the one that it leads to. While a watch runs, or was killed, FILE-wal is part of it.
    posted : bool
        Whether rounds are POSTed.
    """

    def __init__(self, path: Path, posted: bool) -> None:
        self.path, self._posted = Path(os.path.realpath(path)), posted
        self._file = _opened(self.path)
        self.trouble = ""  # why the last attempt to save failed
        self._run: Any = None  # has `watcher`, which has `save`, and `kept`, what it does not know
        self._begun = False  # whether what is on disk is of this watch
        self._waiting: list[bytes] = []  # rounds that are not on disk
        self._rounds = self._bytes = 0  # that are, since the watcher
        self._dirty = False
        self._next = 0.0  # when a log's watcher may be saved again

    def read(self) -> Kept | None:
        """What an earlier watch left; None where there was none."""
        try:
            if not self._file.execute("SELECT 1 FROM sqlite_master").fetchone():
                return None
            storage.check_plain(self._file)
            (sound,) = self._file.execute("PRAGMA integrity_check(1)").fetchone()
            ((words, watcher),) = self._file.execute("SELECT words, watcher FROM kept").fetchall()
            rounds = [bytes(line) for (line,) in self._file.execute("SELECT line FROM rounds ORDER BY number")]
            said = json.loads(words)
            if sound != "ok" or not isinstance(said, dict):
                raise ValueError(f"it is damaged: {sound}")
            return Kept(said, bytes(watcher), rounds)
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
            raise _not_ours(self.path, error) from error

    def begin(self, run: Any) -> None:
        """Save a run from here on; on a full disk that is tried again, with every POSTed round and now and then."""
        self._run = run
        self._try()

    def check(self) -> None:
        """Refuse to take rounds when a thousand could not be saved."""
        if len(self._waiting) >= _UNSAVED:
            self._keep()

    def after(self, kind: Kind, text: bytes | None = None) -> None:
        """A line was taken; `text` is what was POSTed."""
        taken = kind not in ("invalid update", "seen before", "already taken")
        self._dirty |= taken
        if not self._posted or text is None:
            self.tick()
            return
        if taken:
            self._waiting.append(text)
        self._keep()

    def tick(self) -> None:
        """Save a log's watcher where it is time to, and what could not be saved at the beginning."""
        if (not self._begun or (self._dirty and not self._posted)) and time.monotonic() >= self._next:
            began = time.monotonic()
            self._try()
            now = time.monotonic()
            self._next = now + min(max(_EVERY, _COST * (now - began)), _RAREST)

    def save(self) -> None:
        """Save the watcher in the place of all rounds."""
        file = io.BytesIO()
        self._run.watcher.save(file)
        words = json.dumps(self._run.kept())
        replace = "INSERT OR REPLACE INTO kept VALUES (1, ?, ?)"
        self._transact(*_TABLES, "DELETE FROM rounds", (replace, (words, file.getvalue())))
        self._rounds = self._bytes = 0
        self._begun, self._dirty, self.trouble = True, False, ""

    def close(self) -> None:
        """Give the file free."""
        self._file.close()

    def why_not(self, error: Exception) -> str:
        """Why a save failed."""
        return f"the watch cannot be saved as {self.path}: {error}."

    def _keep(self) -> None:
        """Have all rounds on disk, or the watcher after them; those that are not are there for the next time."""
        size = sum(map(len, self._waiting))
        try:
            if not self._begun or self._rounds + len(self._waiting) >= _ROUNDS or self._bytes + size >= _BYTES:
                self.save()
            elif self._waiting:
                count = len(self._waiting)
                self._transact(*(("INSERT INTO rounds (line) VALUES (?)", (line,)) for line in self._waiting))
                self._rounds, self._bytes = self._rounds + count, self._bytes + size
        except (OSError, sqlite3.Error) as error:
            self.trouble = f"rounds cannot be saved in {self.path}: {error}."
            raise NotSaved(f"{self.trouble} Send the round again when there is room.") from error
        self.trouble = ""

    def _try(self) -> None:
        """A save that is only in time: the next one may do."""
        try:
            self.save()
        except (OSError, sqlite3.Error) as error:
            self.trouble = self.why_not(error)

    def _transact(self, *acts: str | tuple[str, tuple[Any, ...]]) -> None:
        """All of it or nothing, and on disk; then nothing waits any more."""
        try:
            self._file.execute("PRAGMA journal_mode = WAL")  # one write to disk a round; it stays so
            self._file.execute("BEGIN")
            for act in acts:
                self._file.execute(*([act] if isinstance(act, str) else act))
            self._file.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._file.execute("ROLLBACK")
            raise
        self._waiting = []


def _opened(path: Path) -> sqlite3.Connection:
    """The file, which nobody else can open until it is closed or this process ends, however."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # the files beside it have its mode
    except OSError as error:
        raise ValueError(
            f"--save must be a file that can be made; {path}: {error.strerror}. Use another folder?"
        ) from error
    file = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        for pragma in ("locking_mode = EXCLUSIVE", "synchronous = FULL", "trusted_schema = OFF"):
            file.execute(f"PRAGMA {pragma}")
        try:
            file.execute("BEGIN EXCLUSIVE")
            file.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or path.stat().st_size:
                raise
            with suppress(sqlite3.Error):
                file.execute("ROLLBACK")
            file.execute("SELECT 1 FROM sqlite_master")  # a full disk: to hold it for reading keeps others out, too
    except sqlite3.Error as error:
        file.close()
        if "locked" in str(error):
            raise ValueError(
                f"--save {path} must be the file of one watch; another process has it. End that watch, or use another "
                "file."
            ) from None
        raise _not_ours(path, error) from error
    return file


def _not_ours(path: Path, error: Exception) -> ValueError:
    return ValueError(
        f"--save must be absent, or what an earlier watch wrote; {path} is neither ({str(error)[:200]}). Move it away, "
        "or to begin with a monitor that was saved elsewhere, use --monitor?"
    )
