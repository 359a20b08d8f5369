"""A run's log that grows while it is read: JSON lines, or arrays in one .npz file."""

import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fedgauss.integrations.live.lines import MOST_BYTES, Line, checked_names

_CHUNK = 2**20
_FINGERPRINT = 256  # bytes before the place reached that must still be the same
_MOST_BYTES = 2**30  # unpacked: a small file may hold much
_PATIENCE = 20  # looks at an unchanged, unreadable file before it is called broken, and not half written


class Replaced(Exception):
    """The log is not the one that was followed so far: a new run began."""


def plain_file(path: Path) -> os.stat_result | None:
    """What is known of a file before it is opened, None where there is none; opening a pipe would wait for ever."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"the log must be a plain file; {path} is none. Use --listen for a stream?")
    return found


class LineLog:
    """New lines of a file, complete ones only: a half-written line waits for its rest.

    A last line without an end of line counts once it is valid JSON, which half of an object never is. A line that is
    too long is cut after the limit, so that whoever reads it refuses it, and skipped to its end.

    The log may be rotated: renamed, with a new file in its place, or copied and cut to nothing. What was still written
    to the old file is read first. The new one must go on from there, or another run has begun.

    Parameters
    ----------
    path : Path
        The file.
    read : callable
        From a line to what it says; a ValueError says what is wrong with it.
    goes_on : callable, optional
        Whether what a line says may come next in the run; None where it says nothing of it.
    """

    def __init__(
        self, path: Path, read: Callable[[bytes], Line], goes_on: Callable[[Line], bool | None] = lambda _: True
    ) -> None:
        self._path, self._read, self._goes_on = path, read, goes_on
        self._file: BinaryIO | None = None  # held open, so that a renamed log is read to its end
        self._at, self._fingerprint = 0, b""
        self._rest, self._skipping = b"", False
        self._rotated = False  # and not a line of the new file has been read

    def poll(self) -> Iterator[Line | ValueError]:
        """What is in the lines since the last call, or why a line is refused."""
        for line in self._new_lines():
            try:
                said = self._read(line)
            except ValueError as error:
                yield error
                continue
            if self._rotated and (goes_on := self._goes_on(said)) is not None:
                if not goes_on:
                    raise Replaced(f"{self._path} was replaced or cut short")
                self._rotated = False
            yield said

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    __del__ = close

    def _new_lines(self) -> Iterator[bytes]:
        there = plain_file(self._path)
        if self._file is None:
            if there is None:
                return
            self._file = self._path.open("rb")
        now = os.fstat(self._file.fileno())
        if now.st_size < self._at or not self._is_same(self._file):
            self._begin_again()
        yield from self._rest_of(self._file)
        moved = there is not None and (there.st_ino, there.st_dev) != (now.st_ino, now.st_dev)
        if moved and there is not None and there.st_size:  # an empty one: the writer may still be at the old file
            fresh = self._path.open("rb")
            self._file.close()
            self._file = fresh
            if not self._is_same(fresh):  # else it is a copy of the old file, which may be longer
                self._begin_again()
            yield from self._rest_of(fresh)

    def _is_same(self, file: BinaryIO) -> bool:
        """Whether the bytes before the place reached are those that were there; the file is at that place then."""
        file.seek(max(self._at - _FINGERPRINT, 0))
        return file.read(len(self._fingerprint)) == self._fingerprint

    def _begin_again(self) -> None:
        self._rotated = True
        self._at, self._fingerprint = 0, b""
        self._rest, self._skipping = b"", False

    def _rest_of(self, file: BinaryIO) -> Iterator[bytes]:
        file.seek(self._at)
        while chunk := file.read(_CHUNK):
            if not self._at:
                self._check_text(chunk)
            self._at += len(chunk)
            self._fingerprint = (self._fingerprint + chunk)[-_FINGERPRINT:]
            yield from self._cut(chunk)
        if self._rest.rstrip().endswith(b"}") and _is_json(self._rest):
            line, self._rest = self._rest, b""
            yield line

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


# What a log may hold: kinds of values, their name, and axes: J rounds, K clients, d parameters.
_FIELDS = {
    "round": ("iu", "whole numbers", "J"),
    "parameters": ("fiu", "numbers", "Jd"),
    "step": ("iu", "whole numbers", "J"),
    "participation": ("b", "booleans", "JK"),
    "clients": ("fiu", "numbers", "JKd"),
    "names": ("U", "words", "K"),
}

Array = npt.NDArray[Any]


class ArrayLog:
    """New rounds of a file with `round` (J,), `parameters` (J, d) and, if known, `step` (J,), `participation` (J, K)
    booleans, `clients` (J, K, d) and `names` (K,).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._looks = 0
        self._seen: Array = np.zeros(0, dtype=np.int64)

    def poll(self) -> Iterator[Line | ValueError]:
        """The rounds since the last call, or why the file holds none. A half-written file is waited for."""
        now = plain_file(self._path)
        if now is None:
            return
        stamp = (now.st_ino, now.st_size, now.st_mtime_ns)
        if stamp == self._stamp and (self._looks == 0 or self._looks > _PATIENCE):
            return  # read, or given up
        with self._path.open("rb") as file:
            if stamp != self._stamp:
                self._stamp, self._looks = stamp, 0
            try:
                arrays = _load(file)
                names = _check(arrays)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError) as error:
                self._looks += 1
                if self._looks > _PATIENCE:
                    yield ValueError(f"{self._path} must be a complete .npz file; {error}.")
                return
            except Exception as error:  # a damaged file may break anything in NumPy's reader
                self._looks = _PATIENCE + 1
                yield ValueError(f"{self._path} must be a log as .npz; {error}")
                return
        self._looks = 0
        numbers, seen = arrays["round"], self._seen.size
        if numbers.size < seen or not np.array_equal(numbers[:seen], self._seen):
            raise Replaced(f"{self._path} was replaced by another run's")
        self._seen = numbers
        for j in range(seen, numbers.size):
            yield _row(arrays, names, j)


def _load(file: BinaryIO) -> dict[str, Array]:
    with zipfile.ZipFile(file) as packed:
        size = sum(part.file_size for part in packed.infolist())
    if size > _MOST_BYTES:
        raise ValueError(f"it must unpack to at most {_MOST_BYTES:,} bytes; it says {size:,}.")
    file.seek(0)
    with np.load(file, allow_pickle=False) as held:
        return {name: held[name] for name in _FIELDS if name in held.files}


def _check(arrays: dict[str, Array]) -> tuple[str, ...] | None:
    """The clients' names, after the types and shapes of all arrays were found right."""
    if "round" not in arrays or "parameters" not in arrays:
        raise ValueError(f"the log must hold round and parameters; it holds {', '.join(arrays) or 'neither'}.")
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        kinds, values, axes = _FIELDS[name]
        if array.dtype.kind not in kinds or array.ndim != len(axes):
            count = "1 axis" if len(axes) == 1 else f"{len(axes)} axes"
            raise ValueError(f"{name} in the log must be {values} with {count}; got {array.dtype} with {array.ndim}.")
        for axis, size in zip(axes, array.shape, strict=True):
            sizes.setdefault(axis, max(size, 1) if axis == "d" else size)
        if array.shape != (shape := tuple(sizes[axis] for axis in axes)):
            raise ValueError(f"{name} in the log must have shape {shape}; got {array.shape}.")
    if "participation" not in arrays and "clients" not in arrays:
        return None
    return checked_names("names", arrays["names"].tolist() if "names" in arrays else [*range(sizes["K"])])


def _row(arrays: dict[str, Array], names: tuple[str, ...] | None, j: int) -> Line | ValueError:
    number, step = int(arrays["round"][j]), int(arrays["step"][j]) if "step" in arrays else None
    if number < 1 or (step is not None and step < 1):
        return ValueError(f"rounds and steps must count from 1; got round {number}.")
    parameters = arrays["parameters"][j].astype(np.float64)
    if names is None:
        return Line(number, parameters, step)
    here = arrays["participation"][j] if "participation" in arrays else np.ones(len(names), dtype=np.bool_)
    present = tuple(name for name, there in zip(names, here, strict=True) if there)
    sent = None
    if "clients" in arrays:
        rows = arrays["clients"][j].astype(np.float64)
        sent = {name: row for name, row, there in zip(names, rows, here, strict=True) if there}
    if not present:
        return ValueError(f"round {number} must have at least one participant; it has none.")
    return Line(number, parameters, step, present, sent, names)
