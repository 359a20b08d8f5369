"""Rows of finished cells in an SQLite file, one transaction a cell."""

from __future__ import annotations

import json
import numbers
import platform
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from fedgauss import __version__
from fedgauss.sweep.cell import SPEC_VERSION, Cell, Row, cell_json, cell_key

T = TypeVar("T")

FORMAT_VERSION = 1  # of the tables below
_PATIENCE = 1.0  # seconds to wait for a process that is just letting go of the file
_TABLES = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE cells (key TEXT PRIMARY KEY, experiment TEXT NOT NULL, spec TEXT NOT NULL, seed TEXT,"
    " versions TEXT NOT NULL, seconds REAL NOT NULL, finished_at TEXT NOT NULL)",
    "CREATE TABLE rows (cell TEXT NOT NULL REFERENCES cells (key), ordinal INTEGER NOT NULL, payload TEXT NOT NULL,"
    " PRIMARY KEY (cell, ordinal)) WITHOUT ROWID",
)
_START_AGAIN = "Use another --out, or delete the file to start again."
# By SQLite's primary result code: the rule with the value in it, and the fix.
_BUSY = (
    "a store is used by one sweep at a time; {path} is in use.",
    "Wait until that sweep ends, or use another --out.",
)
_DENIED = ("a store must be a file that can be written to; {path}: {reason}.", "Use another --out.")
_DAMAGED = ("a store must be an SQLite file written by fedgauss; {path}: {reason}.", _START_AGAIN)
_FULL = ("a store must have room to grow; {path}: {reason}.", "Finished cells are kept: free some space and run again.")
_REASONS = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_PERM: _DENIED,
    sqlite3.SQLITE_READONLY: _DENIED,
    sqlite3.SQLITE_CANTOPEN: _DENIED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: _FULL,
}
_OTHERWISE = ("a store must be readable and writable; {path}: {reason}.", "Finished cells are kept: run again.")


class StoreError(ValueError):
    """A store cannot be used, or cannot grow. The message says why and what to do; what it holds is intact."""


class Store:
    """The file that a sweep writes to and resumes from. Use it in a `with` statement, or close it.

    It belongs to one process at a time, and lets go of the file even if that process is killed. A file written by
    another version, or by something else, is refused: rows of two versions never mix.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _store_error(_DENIED, self.path, error.strerror or str(error)) from error
        with self._explained():
            self._connection = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *ending: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many cells are in it."""
        with self._explained():
            (count,) = self._connection.execute("SELECT COUNT(*) FROM cells").fetchone()
        return int(count)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def add(self, cell: Cell, rows: Sequence[Row], seconds: float) -> None:
        """Write a finished cell whole, or not at all."""
        key = cell_key(cell)
        plain = [{column: _plain(cell, column, value) for column, value in vars(row).items()} for row in rows]
        payloads = [(key, i, json.dumps(row)) for i, row in enumerate(plain)]
        seed = getattr(cell, "seed", None)
        entry = (
            key,
            str(getattr(cell, "experiment", type(cell).__name__)),
            cell_json(cell),
            None if seed is None else str(seed),
            _versions(),
            float(seconds),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with self._explained(), self._transaction():
            try:
                self._connection.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?)", entry)
            except sqlite3.IntegrityError:
                raise ValueError(f"a cell is written once; {cell} is in {self.path} already.") from None
            self._connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", payloads)

    def finished(self, keys: Iterable[str]) -> set[str]:
        """Those of `keys` whose cells are in the store."""
        with self._explained():
            held = {key for (key,) in self._connection.execute("SELECT key FROM cells")}
        return held.intersection(keys)

    def rows(self, kind: Callable[..., T], keys: Iterable[str] | None = None, experiment: str | None = None) -> list[T]:
        """Rows of the cells with these keys, in the order of `keys`; or all, sorted by experiment and spec.

        Each is `kind(**columns)`, where `kind` is the dataclass that the cells returned, or `dict`. The order in which
        cells finished never shows.
        """
        with self._explained():
            query = "SELECT key FROM cells WHERE ?1 IS NULL OR experiment = ?1 ORDER BY experiment, spec"
            held = dict.fromkeys(key for (key,) in self._connection.execute(query, (experiment,)))
            chosen = held if keys is None else [key for key in dict.fromkeys(keys) if key in held]
            query = "SELECT payload FROM rows WHERE cell = ? ORDER BY ordinal"
            texts = [text for key in chosen for (text,) in self._connection.execute(query, (key,))]
        return [self._row(kind, text) for text in texts]

    def _row(self, kind: Callable[..., T], text: str) -> T:
        try:
            return kind(**json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise _store_error(_DAMAGED, self.path, f"a row cannot be read, {error}") from error

    def _open(self) -> None:
        # The lock comes with the first transaction and stays; until it is ours and the file known, nothing changes.
        self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        with self._transaction():
            names = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}
            if names:
                self._check(names)
            else:
                for table in _TABLES:
                    self._connection.execute(table)
                self._connection.executemany("INSERT INTO meta VALUES (?, ?)", _meta().items())
        # A killed process loses nothing this way, and a transaction costs no wait for the disk.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _check(self, names: set[str]) -> None:
        if not names.issuperset({"meta", "cells", "rows"}):
            raise _store_error(_DAMAGED, self.path, "it holds other tables")
        (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _store_error(_DAMAGED, self.path, "it is damaged")
        held = dict(self._connection.execute("SELECT name, value FROM meta"))
        if held != _meta():
            raise StoreError(
                f"a store holds rows of one version only; {self.path} was written by {_describe(held)}, and this is "
                f"{_describe(_meta())}. {_START_AGAIN}"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # some errors end it by themselves
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite's errors into messages that say what to do."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code is None and not isinstance(error, sqlite3.OperationalError):
                raise  # a mistake in the program, not a trouble with the file
            reason = _DAMAGED if code is None else _REASONS.get(code & 0xFF, _OTHERWISE)  # without: text that is none
            raise _store_error(reason, self.path, str(error)) from error


def _store_error(reason: tuple[str, str], path: Path, detail: str) -> StoreError:
    rule, fix = reason
    return StoreError(f"{rule.format(path=path, reason=detail[:1].lower() + detail[1:])} {fix}")


def _meta() -> dict[str, str]:
    return {"fedgauss": __version__, "format": str(FORMAT_VERSION), "spec": str(SPEC_VERSION)}


def _describe(meta: Mapping[str, str]) -> str:
    version, layout, spec = (meta.get(name, "unknown") for name in ("fedgauss", "format", "spec"))
    return f"fedgauss {version} (store format {layout}, specs {spec})"


@cache
def _versions() -> str:
    others = {name: metadata.version(name) for name in ("jax", "numpy")}
    return json.dumps({"fedgauss": __version__, **others, "python": platform.python_version()}, sort_keys=True)


def _plain(cell: Cell, column: str, value: Any) -> float | int | str | None:
    """`value` as JSON has it; NumPy's numbers become Python's."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise ValueError(
        f"a row must hold numbers, strings and None; column {column!r} of {cell} holds {type(value).__name__}. "
        "Use float() or str()?"
    )
