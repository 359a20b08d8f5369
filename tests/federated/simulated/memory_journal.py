"""The journal of a mailbox, on a disk in memory."""

from __future__ import annotations

from pathlib import Path
from random import Random

from fedgauss.federated.journal import Journal
from fedgauss.federated.wire import Message, decode, encode


class MemoryJournal(Journal):
    """A journal on a disk in memory, whose last line may be torn when the mailbox is killed."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        super().__init__(Path("/nowhere"))

    def remove(self) -> None:
        """Once a fit is done."""
        self._runs, self._lines = [], []

    @property
    def runs(self) -> list[Message]:
        """All that there were, with their rounds."""
        return self._runs

    def killed(self, random: Random) -> None:
        """The process has gone: read again what there is."""
        if self._lines and random.random() < 0.5:
            self._lines[-1] = self._lines[-1][: random.randrange(len(self._lines[-1]))]
        self._runs, lines, self._lines = [], self._lines, []
        for line in lines:
            try:
                self._note(decode(line))
            except ValueError:
                break
            self._lines.append(line)

    def _append(self, line: Message) -> None:
        self._lines.append(encode(line))
        self._note(line)
