"""The rounds of an exact fit on disk, so that a fit that was stopped goes on where it was.

Scoring is determined by the totals it was told. With those of earlier rounds a new run asks for the same parameters, to
the bit, and asks sites only for what is missing.
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
    A total belongs to a `model` too, which says what was fitted to which rows: after a change of either, nothing that
    was kept fits any more.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.model = Path(path), ""
        self._kept = dict(self._read()) if self.path.exists() else {}

    def kept(self, order: str, content: Message) -> Message | None:
        """The total that was kept, or None."""
        return self._kept.get(self._key(order, content)) if self.model else None

    def keep(self, order: str, content: Message, total: Message) -> None:
        """Write a total down before it is used."""
        if not self.model:
            return
        key = self._key(order, content)
        with append_private(self.path) as file:
            file.write(encoded({"key": key, "order": order, "total": total}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._kept[key] = total

    def __len__(self) -> int:
        return len(self._kept)

    def remove(self) -> None:
        """Once a fit is done."""
        self.path.unlink(missing_ok=True)

    def _key(self, order: str, content: Message) -> str:
        return hashlib.sha256(encoded({"model": self.model, "order": order, "asked": content}).encode()).hexdigest()

    def _read(self) -> list[tuple[str, Message]]:
        """All whole lines; the last may have been cut off by a kill."""
        lines = []
        for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = decoded(text)
                lines.append((str(line["key"]), dict(line["total"])))
            except (ValueError, KeyError, TypeError):
                continue
        return lines
