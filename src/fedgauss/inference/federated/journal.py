"""The rounds of an exact fit on disk, so that a fit that was stopped goes on where it was.

Scoring is determined by the totals it was told. With those of earlier rounds a new run asks for the same parameters, to
the bit, and asks sites only for what is missing. The first round is asked for all the same: where sites reply something
else than they did, their rows are others now, and nothing that was kept is used (`Conversation.total`).
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from fedgauss._files import append_private
from fedgauss.inference.federated.lines import Message, decoded, encoded


class Journal:
    """Totals by order and content, in a file of JSON lines that only its owner can read.

    Parameters
    ----------
    path : path
        The file; it is made where there is none.

    Notes
    -----
    A total belongs to a `model` too, which says what was fitted to whose rows: after a change of either, nothing that
    was kept fits any more. Only sums are kept: what is asked at the estimate alone is asked anew.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.model = Path(path), ""
        self._kept = dict(self._read()) if self.path.exists() else {}

    def kept(self, order: str, content: Message) -> Message | None:
        """The total that was kept, or None."""
        return self._kept.get(self._key(order, content)) if self.model else None

    def keep(self, order: str, content: Message, total: Message) -> None:
        """Write a total down before it is used."""
        key = self._key(order, content)
        if not self.model or order != "sums" or key in self._kept:
            return
        with append_private(self.path) as file:
            line = {"key": key, "order": order, "total": total}
            file.write(encoded({**line, "checksum": _checksum(line)}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._kept[key] = total

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self) -> None:
        """All that was kept, since it is of other rows."""
        self._kept = {}
        self.remove()

    def remove(self) -> None:
        """Once a fit is done."""
        self.path.unlink(missing_ok=True)

    def _key(self, order: str, content: Message) -> str:
        return hashlib.sha256(encoded({"model": self.model, "order": order, "asked": content}).encode()).hexdigest()

    def _read(self) -> list[tuple[str, Message]]:
        """All lines as they were written; one that a kill cut off, or a disk changed, is left out."""
        lines = []
        for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = decoded(text)
                checksum = line.pop("checksum")
                if checksum == _checksum(line):
                    lines.append((line["key"], line["total"]))
            except (ValueError, KeyError):
                continue
        return lines


def _checksum(line: Message) -> str:
    return hashlib.sha256(encoded(line).encode()).hexdigest()
