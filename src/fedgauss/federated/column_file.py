"""A file of columns, each written once and found by its digest: bits, small whole numbers or floats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedgauss._types import AnyArray
from fedgauss.federated.chain import write
from fedgauss.federated.disk import Disk
from fedgauss.federated.refusal import Refused

_KINDS = ("<i1", "<i2", "<i4")  # of whole numbers, the smallest that has room
Place = list[Any]  # how it is written, the number of values, where in the file, and how many bytes


class ColumnFile:
    """Columns by digest. What no line of the ledger has the place of may be written over."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk = path, disk
        self._places: dict[str, Place] = {}
        self._held: dict[str, AnyArray] = {}

    def note(self, places: Mapping[str, Place]) -> None:
        """Learn where columns are, from a line of the ledger."""
        self._places.update(places)

    def hold(self, column: AnyArray) -> str:
        """The digest of a column, by which it can be read from now on, and written."""
        digest = _digest(len(column), *_pack(column))
        self._held[digest] = column
        return digest

    def write(self, digests: Iterable[str]) -> dict[str, Place]:
        """The places of columns that have none yet; they are on disk when this returns."""
        start = end = max((at + size for _, _, at, size in self._places.values()), default=0)
        places: dict[str, Place] = {}
        parts = []
        for digest in dict.fromkeys(digests):
            if digest not in self._places:
                column = self._held[digest]
                kind, packed = _pack(column)
                places[digest] = [kind, len(column), end, len(packed)]
                parts.append(packed)
                end += len(packed)
        if parts:
            write(self._disk, self._path, b"".join(parts), start)
        return places

    def forget(self, digests: Iterable[str]) -> None:
        """Let go of columns that were not written."""
        for digest in digests:
            if digest not in self._places:
                self._held.pop(digest, None)

    def read(self, digest: str) -> AnyArray:
        """The column of a digest."""
        if digest not in self._held:
            content = self._disk.read(self._path) or b""
            for known, (kind, count, at, size) in self._places.items():
                packed = content[at : at + size]
                if known not in self._held and _digest(count, kind, packed) == known:
                    self._held[known] = _unpack(kind, count, packed)
        if digest not in self._held:
            raise Refused(
                f"the columns in {self._path} must be as they were written; some are not. Put the file back: this site "
                "does not know what it has answered without them."
            )
        return self._held[digest]


def _digest(count: int, kind: str, packed: bytes) -> str:
    return hashlib.sha256(f"{kind} {count} ".encode() + packed).hexdigest()


def _pack(column: AnyArray) -> tuple[str, bytes]:
    if column.dtype == np.uint64:
        return "<u8", column.astype("<u8").tobytes()
    if ((column == 0.0) | (column == 1.0)).all():
        return "bits", np.packbits(column == 1.0).tobytes()
    largest = float(np.abs(column).max())
    if largest < 2**31 and np.array_equal(column, np.trunc(column)):
        kind = next(kind for kind in _KINDS if largest <= np.iinfo(kind).max)
        return kind, column.astype(kind).tobytes()
    return "<f8", column.astype("<f8").tobytes()


def _unpack(kind: str, count: int, packed: bytes) -> AnyArray:
    if kind == "bits":
        return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(float)
    return np.frombuffer(packed, kind).astype(np.uint64 if kind == "<u8" else float)
