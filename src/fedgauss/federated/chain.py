"""A file of lines that is only ever added to, each line bound to all before it.

A line is JSON and, after a space, the SHA-256 of the digest of the line before and this JSON: an edit anywhere is
seen, and whoever has noted the last digest and the number of lines sees a file that was cut short or written anew.

A line is on disk before its line break is written. So one without a line break was never acknowledged and is dropped,
and one that was acknowledged never is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from fedgauss.federated.disk import Disk
from fedgauss.federated.refusal import Refused

Entry = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


class Chain:
    """The lines of a file.

    Attributes
    ----------
    heads : list of str
        The digest after each line.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path, self._disk, self._content = path, disk, bytearray()
        self.heads: list[str] = []

    def load(self) -> list[Entry]:
        """Read what was added since the last time, by this process or another."""
        content = self._disk.read(self._path) or b""
        if content == self._content:
            return []
        content = content[: content.rfind(b"\n") + 1]
        same = content[: len(self._content)] == self._content  # of these lines nothing has to be worked out again
        texts: list[bytes] = []
        heads = self.heads.copy() if same else []
        before = heads[-1].encode() if heads else b""
        for line in content[len(self._content) if same else 0 :].split(b"\n")[:-1]:
            text, _, end = line.rpartition(b" ")
            if end != (head := _digest(before, text)).encode():
                raise Refused(
                    f"a ledger must be as it was written; line {len(heads) + 1} of {self._path} is not. Put back the "
                    "file from before it was edited: what the line said may be what must be refused."
                )
            texts.append(text)
            heads.append(head)
            before = end
        if not same:
            raise Refused(
                f"a ledger must not lose lines; {self._path} has {len(heads)} and had {len(self.heads)}, or others. "
                "Put the file back."
            )
        entries: list[Entry] = json.loads(b"[" + b",".join(texts) + b"]")  # each by itself would take twice as long
        self.heads, self._content = heads, bytearray(content)
        return entries

    def append(self, entry: Entry) -> Entry:
        """Add a line, which is returned as it would be read; it is on disk by then."""
        text = _encode(entry)
        head = _digest(self.heads[-1].encode() if self.heads else b"", text.encode())
        body = f"{text} {head}".encode()
        write(self._disk, self._path, body, len(self._content))
        write(self._disk, self._path, b"\n", len(self._content) + len(body))
        self._content += body + b"\n"
        self.heads.append(head)
        read: Entry = json.loads(text)
        return read


def write(disk: Disk, path: Path, content: bytes, at: int) -> None:
    """Write to a disk; where it cannot, nothing may be answered."""
    try:
        disk.append(path, content, at)
    except OSError as error:
        raise Refused(
            f"what a site answers is written down first; {path} could not be ({error.strerror or error}). Make room on "
            "the disk, or let this user write there."
        ) from error


def _digest(before: bytes, text: bytes) -> str:
    return hashlib.sha256(before + text).hexdigest()
