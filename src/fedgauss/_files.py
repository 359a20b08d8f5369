"""Files that are written whole or not at all, and files that only their owner can read."""

import os
import tempfile
from pathlib import Path
from typing import IO


def append_private(path: str | os.PathLike[str]) -> IO[str]:
    """A file to add lines to, made so that only its owner can read it."""
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is complete or, if this is interrupted, as it was before."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
