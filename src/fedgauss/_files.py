"""Files that are written whole or not at all, and files that only their owner can read."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LONGEST_PREFIX = 100  # of a temporary file's name: with what is random it must stay below 255


def append_private(path: str | os.PathLike[str]) -> IO[str]:
    """A file to add lines to, made so that only its owner can read it."""
    return open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600))


def write_whole(path: str | os.PathLike[str], content: bytes, public: bool = False) -> None:
    """Write a file as `whole_file` does."""
    with whole_file(path, public) as file:
        file.write(content)


@contextmanager
def whole_file(path: str | os.PathLike[str], public: bool = False) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends, and is on disk by then.

    If the block fails, the disk is full or the process is killed, `path` is as it was before. Several threads or
    processes may write to one path: each has a temporary file of its own, and the last to finish wins.

    Parameters
    ----------
    path : str or path-like
        In a folder that exists.
    public : bool
        Whether others may read it (mode 0644), as with a page or a table. By default only its owner may (0600).

    Yields
    ------
    file
        To write bytes to.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}"[:_LONGEST_PREFIX] + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if public:
                os.chmod(name, 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """A new name is on disk only once its folder is."""
    if os.name == "nt":  # where folders cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
