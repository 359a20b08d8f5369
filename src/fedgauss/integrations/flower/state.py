"""A run that goes on after its server was restarted: the monitor, and who is who, in one file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fedgauss.detect import storage
from fedgauss.detect.clients import ClientMonitor
from fedgauss.detect.clients.stored import FORMAT, contents_of

_WORD = "flower"  # beside the monitor's own words, which others read without it
_BY = "Monitored(..., state=)"


def save(path: Path, monitor: ClientMonitor, words: dict[str, Any]) -> None:
    """Write the file, whole or not at all. It is a monitor's, too: `ClientMonitor.load` reads it."""
    own, arrays = contents_of(monitor)
    storage.write(path, {**own, _WORD: words}, arrays, FORMAT)


def load(path: Path, asked: ClientMonitor) -> tuple[ClientMonitor, dict[str, Any]]:
    """What `save` wrote, if its monitor watches as the one that is asked for; otherwise a ValueError."""
    monitor = ClientMonitor.load(path)
    words = storage.read(path, FORMAT, _BY)[0].get(_WORD)
    if not isinstance(words, dict):
        raise ValueError(f"{os.fspath(path)} must be a file that {_BY} wrote; it has a monitor only.")
    for name in ("alpha", "horizon", "rate"):
        if getattr(monitor, name) != getattr(asked, name):
            raise ValueError(
                f"{name} must be {getattr(monitor, name)!r}, as in {os.fspath(path)}; got {getattr(asked, name)!r}. "
                "A watch that was begun keeps its level: give the same Clients, or another file."
            )
    return monitor, words
